"""The statistics of validation logs: tables, records for programs, and problems in the logs.

One run: rates by step and category with intervals, and label shares, with and
without the suspected items. Several runs: paired differences on the same tasks.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType

from env_service.environments.bfcl.splits import side_of
from env_service.environments.registry import get_environment
from seal.method.diagnosis.categories import BENCHMARK, qualify
from seal.records.benchmark import parse_task_id
from seal.records.changes import training_launches
from seal.records.folder import RunFolder
from seal.records.source import WHOLE
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import BadLine, read_jsonl
from seal.system.text import enumeration
from shelf.statistics.comparison import Side, compare
from shelf.statistics.log import REPLACED, SETTINGS, Log, has_verdict, read_validation_dir
from shelf.statistics.summary import Expected, SuspectedItem, Task, played, summarise, summarise_step, suspected_tasks
from shelf.statistics.tables import comparison_record, comparison_table, label_table, summary_record, summary_table
from shelf.task_rows import read_rows

EVALUATED = ("max_tokens", "max_steps", "harness", "user")
"""Settings of an evaluation, besides its model and sampling, on which its verdicts depend."""

PROVENANCE = {"data_hash": "data", "prompt_mode": "prompt mode"}
"""The fields that say where lines come from, and their readable names."""

ABOUT_COMPARISONS = (
    "Differences in percentage points, paired by task; intervals and 'p boot' resample whole scenarios "
    "(10,000 draws); 'p exact' is McNemar's, which takes tasks as independent."
)


class RunStatistics(NamedTuple):
    """The statistics of some logs: tables, flat records, and problems in the logs.

    kind is the key of the records in files: summaries or comparisons.
    """

    kind: str
    tables: tuple[RenderableType, ...]
    records: tuple[Mapping[str, Any], ...]
    bad: tuple[BadLine, ...]
    missing: tuple[str, ...]
    provenance: Mapping[str, Sequence[str]]
    warning: str | None = None

    @property
    def problems(self) -> list[str]:
        """Bad lines and missing tasks, one sentence each."""
        return [*map(str, self.bad), *self.missing]

    def to_json(self) -> dict[str, Any]:
        """Everything except the tables, for programs."""
        return {self.kind: self.records, "problems": self.problems, "warning": self.warning, **self.provenance}


def summarise_run(
    folder: Path, items: Sequence[SuspectedItem], step: int | None = None, expected: Iterable[Expected] | None = None
) -> RunStatistics:
    """The rates of a run, or of a validation_log folder; at one step only if it is given.

    items: the suspected items; expected: the tasks that every step must have.
    ValueError if there is nothing to read, or no such step.
    """
    log = read_validation_dir(folder)
    expected = played(log.lines) if expected is None else set(expected)
    run = folder.parent if folder.name == RunFolder(folder).validations.name else folder
    if step is not None:
        log = Log(log.at(step), log.bad)
    suspected = suspected_tasks(log.lines, items)
    rows = summarise(log)
    less = summarise(log, suspected) if suspected else ()
    labels = label_table(rows)
    tables = [summary_table(rows, f"Validation of {folder}", {(row.step, row.name): row for row in less})]
    tables += [labels] if labels else []
    records = [summary_record(row, "with") for row in rows] + [summary_record(row, "without") for row in less]
    return RunStatistics(
        kind="summaries",
        tables=(*tables, _notes(log, suspected)),
        records=tuple(records),
        bad=log.bad,
        missing=missing_sentences({"": log}, expected),
        provenance=provenance([log]),
        warning=" ".join(filter(None, (not_held_out(run, log.lines), *name_mixtures([log])))) or None,
    )


def compare_runs(names: Sequence[str], items: Sequence[SuspectedItem], step: int | None = None) -> RunStatistics:
    """Compare runs with the first one at their last (or the given) step; for a single run, its last and first step.

    Commas in a name join the seeds of one side. ValueError if a run is named
    twice, or if the sides differ in data or prompt mode.
    """
    if max(Counter(Path(each).resolve() for each in ",".join(names).split(",")).values()) > 1:
        raise ValueError("A run is named twice in --compare: name each once.")
    named = {name: {f"{folder}: ": read_validation_dir(folder) for folder in name.split(",")} for name in names}
    logs = {name: [*runs.values()] for name, runs in named.items()}
    every = [log for each in logs.values() for log in each]
    first, *others = sides = _sides(logs, step)
    suspected = suspected_tasks((line for side in sides for line in side.lines), items)
    tables: list[RenderableType] = []
    records = []
    for other in others:
        _require_comparable(first, other)
        rows = compare(first, other)
        tables.append(comparison_table(rows, f"{other.name} against {first.name}"))
        records += [comparison_record(row, "with") for row in rows]
        if suspected:
            less = compare(first, other, suspected)
            averages = [row for row in less if row.is_average]
            tables.append(comparison_table(averages, f"the same without {len(suspected)} suspected items"))
            records += [comparison_record(row, "without") for row in less]
        scored = ({(x.category, *x.task) for x in side.lines if has_verdict(x)} for side in (first, other))
        unpaired = len(set.symmetric_difference(*scored))
        tables += [f"{unpaired} tasks are on one side only and left out."] if unpaired else []
        lost = sum(line.infra is not None for side in (first, other) for line in side.lines)
        tables += [f"{lost} rollouts were lost to infrastructure and are in no figure."] if lost else []
    seeds = [_seeds(side) for side in sides if len(side.runs) > 1]
    return RunStatistics(
        kind="comparisons",
        tables=(*tables, ABOUT_COMPARISONS, *seeds),
        records=tuple(records),
        bad=Log.joined(every).bad,
        missing=tuple(sentence for runs in named.values() for sentence in missing_sentences(runs)),
        provenance=provenance(every),
        warning=" ".join((*name_mixtures(every), *_unlike(logs, step))) or None,
    )


def band(folder: Path, step: int | None = None) -> list[dict[str, Any]]:
    """The tasks of a validation that passed in some of their samples but not all, with rates, as for a `task_file`.

    A group whose rollouts all fail or all pass has no group-relative advantage. turns: the measured prefix, -1 for the
    whole task. step: that of the validation, by default the last. ValueError for bad lines, for tasks of the evaluation
    side, and if there is no such task.
    """
    passed: dict[Expected, list[bool]] = {}
    log = read_validation_dir(folder)
    log.without_bad()
    for line in log.at(log.steps[-1] if step is None else step):
        own = line.environment == BENCHMARK
        side = side_of(line.task_id) if own else get_environment(line.environment).task(line.task_id).side
        if side == "eval":
            raise ValueError(
                f"{line.task_id} belongs to the evaluation side and must not choose what is trained on: measure the "
                "training side (seal.data.val: [{split: train}])."
            )
        if line.infra is None:
            passed.setdefault((line.environment, *line.task), []).append(line.passed)
    found = [
        {"task_id": task, "turns": turns, "rate": statistics.fmean(each), "passed": sum(each), "n": len(each)}
        for (_, task, turns), each in passed.items()
        if 0 < sum(each) < len(each)
    ]
    if not found:
        raise ValueError(
            f"None of the {len(passed)} tasks of {folder} passed in some of its samples: take more of them "
            "(val_kwargs.n), shorter prefixes or another checkpoint."
        )
    return found


def expected_tasks(parquet: Path | None, question_files: Sequence[Path]) -> set[Expected] | None:
    """The tasks that every validation must have: those of the parquet file, else of the question files, else None.

    ValueError for a file that is missing or has another format.
    """
    asked = {(BENCHMARK, task, WHOLE) for path in question_files for task in _question_ids(path)}
    return {(row.environment, row.task_id, row.turns) for row in read_rows(parquet)} if parquet else asked or None


def _question_ids(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist: make it with `bash env_service/environments/bfcl/setup.sh`, or leave "
            "--bfcl-jsonl out."
        )
    for line in read_jsonl(path):
        if isinstance(line, BadLine) or not isinstance(line.value.get("id"), str):
            place = line if isinstance(line, BadLine) else line.bad("has no id")
            raise ValueError(f"{place}: name a question file of the benchmark")
        parse_task_id(line.value["id"])
        yield line.value["id"]


def _sides(logs: Mapping[str, Sequence[Log]], step: int | None) -> list[Side]:
    if len(logs) == 1:
        ((name, runs),) = logs.items()
        if len(runs[0].steps) < 2:
            raise ValueError(f"{name} validated at one step only: name a second run to compare it with.")
        ends = min(run.steps[0] for run in runs), max(run.steps[-1] for run in runs)
        return [Side(f"{name} at step {each}", tuple(run.at(each) for run in runs)) for each in ends]
    return [
        Side(name, tuple(run.at(run.steps[-1] if step is None else step) for run in runs))
        for name, runs in logs.items()
    ]


def _require_comparable(a: Side, b: Side) -> None:
    for field, what in (("data_hash", "benchmark data"), ("prompt_mode", "prompt modes")):
        known = [{(x.environment, value) for x in side.lines if (value := getattr(x, field))} for side in (a, b)]
        both = set.intersection(*({name for name, _ in each} for each in known))
        values_a, values_b = ({value for name, value in each if name in both} for each in known)
        if values_a != values_b:
            raise ValueError(
                f"{a.name} and {b.name} were measured with different {what} "
                f"({', '.join(sorted(values_a))[:40]} and {', '.join(sorted(values_b))[:40]}): not comparable."
            )


def _unlike(logs: Mapping[str, Sequence[Log]], step: int | None) -> Iterator[str]:
    """A sentence for each condition, other than the model, in which the sides of a comparison differ."""
    last = {name: {run.steps[-1] for run in runs} - {0} for name, runs in logs.items() if len(logs) > 1}
    found = {name: [_recorded(Path(folder)) for folder in name.split(",")] for name in logs}
    sampled = {name: {_sampling(each) for each in every} - {""} for name, every in found.items()}
    conditions = {"training steps": last if step is None else {}, "sampling": sampled}
    asked = {name: [each for each in every if "max_steps" in each] for name, every in found.items()}  # no runs
    conditions |= {what: {name: {str(x.get(what)) for x in asked[name]} for name in logs} for what in EVALUATED}
    for what, known in conditions.items():
        if len({frozenset(values) for values in known.values() if values}) > 1:
            parts = "; ".join(f"{name}: {', '.join(map(str, sorted(values)))}" for name, values in known.items())
            yield f"The sides differ in {what} ({parts}): the change is not due to one thing only."


def _recorded(folder: Path) -> Mapping[str, Any]:
    """The settings of an evaluation, or how the validations of a run sample; empty if they were not recorded."""
    folder = folder.parent if folder.name == RunFolder(folder).validations.name else folder
    if (folder / SETTINGS).is_file():
        return json.loads((folder / SETTINGS).read_bytes())
    launches = [*training_launches(RunFolder(folder)).values()]  # of any version
    return launches[-1]["config"]["actor_rollout_ref"]["rollout"]["val_kwargs"] if launches else {}


def _sampling(found: Mapping[str, Any]) -> str:
    """How rollouts were sampled, in words; "" if it was not recorded."""
    own = found.get(REPLACED, {})
    if found.get("do_sample") is False or (found.get("temperature") == 0 and "temperature" not in own):
        return "temperature 0"
    known = {name: f"{value:g}" for name in ("temperature", "top_p") if (value := found.get(name)) is not None}
    return ", ".join(f"{name} {'of the endpoint' if name in own else known[name]}" for name in known)


def _seeds(side: Side) -> str:
    rates = ([row.rate for row in summarise_step(run) if row.is_average and row.rate] for run in side.runs)
    means = [100 * run[0].rate for run in rates if run]
    deviation = f" (standard deviation {statistics.stdev(means):.1f})" if len(means) > 1 else ""
    return (
        f"{side.name}: pass rate by run {', '.join(f'{mean:.1f}' for mean in means)}{deviation}; intervals and "
        "p-values cover the choice of tasks, not of seeds."
    )


def provenance(logs: Sequence[Log]) -> dict[str, list[str]]:
    """The hashes of the benchmark data and the prompt modes of all lines."""
    lines = [line for log in logs for line in log.lines]
    return {field: sorted({getattr(line, field) for line in lines} - {""}) for field in PROVENANCE}


def name_mixtures(logs: Sequence[Log]) -> Iterator[str]:
    """A sentence for each field of PROVENANCE in which an environment's lines differ, and what to do about it."""
    lines = [line for log in logs for line in log.lines]
    for name, (field, what) in product(sorted({line.environment for line in lines}), PROVENANCE.items()):
        counts = Counter(value for line in lines if line.environment == name and (value := getattr(line, field)))
        if len(counts) > 1:
            parts = ", ".join(f"{count} of {value[:16]}" for value, count in counts.most_common())
            yield (
                f"MIXED: the rollouts differ in {what} ({parts}), so they are different tests, and no figure is of one "
                "of them: use none. Put the lines of each into a folder of its own and read it there, or evaluate all "
                f"tasks again with the same {what}."
            )


def _notes(log: Log, suspected: frozenset[Task]) -> str:
    notes = [f"w/o susp.: without {len(suspected)} suspected items (docs/recipes.md)"] if suspected else []
    for field, values in provenance([log]).items():
        notes += [f"{PROVENANCE[field]} {', '.join(value[:16] for value in values)}"] if values else []
    return "; ".join(notes)


def missing_sentences(logs: Mapping[str, Log], expected: set[Expected] | None = None) -> tuple[str, ...]:
    """One sentence per step that lacks tasks, after its log's name; by default, tasks that any step of any log has."""
    wanted = {task for log in logs.values() for task in played(log.lines)} if expected is None else expected
    steps = ((f"{name}step {step}", log.at(step)) for name, log in logs.items() for step in log.steps)
    absent = ((place, sorted(wanted - played(lines))) for place, lines in steps)
    return tuple(f"{place} lacks {len(lost)} tasks: {_in_words(lost)}" for place, lost in absent if lost)


def _in_words(tasks: Sequence[Expected]) -> str:
    prefixes = {turns: f" (first {turns} turns)" for _, _, turns in tasks} | {WHOLE: ""}
    return enumeration([qualify(name, task) + prefixes[turns] for name, task, turns in tasks], 5)


def not_held_out(run: Path | str, lines: Iterable[TrajectoryRecord]) -> str | None:
    """A warning if validated tasks, or other variants of them, are in the run's training data.

    None if there are none, or if the run recorded no training data. For other environments, it compares the groups of
    the run's validation rows and the ids of all tasks.
    """
    rows = RunFolder(Path(run)).training_rows
    if not rows.is_file():
        return None
    trained = read_rows(rows)
    known = {(row.environment, row.task_id) for row in trained}
    scenarios = {row.scenario for row in trained if row.environment == BENCHMARK}
    groups, beside = {(row.environment, row.scenario) for row in trained}, rows.with_name("val.parquet")
    validation = read_rows(beside) if beside.is_file() else ()
    known |= {(row.environment, row.task_id) for row in validation if (row.environment, row.scenario) in groups}
    validated = {(line.environment, line.task_id): line for line in lines}
    seen = [
        key
        for key, line in validated.items()
        if key in known or (line.environment == BENCHMARK and line.scenario in scenarios)
    ]
    if not seen:
        return None
    return (
        f"NOT HELD OUT: of {len(validated)} validated tasks {len(seen)} are trained on, as they are or as another "
        "variant of the same scenario or group."
    )
