"""The command behind ``scripts/stats_validation_bfcl.py``.

One run: rates by step and category with intervals, label shares, with and
without the suspected items. Several runs: paired differences on the same tasks.
"""

from __future__ import annotations

import argparse
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group

from env_service.environments.bfcl.splits import parse_task_id
from seal.data.parquet import read_rows
from seal.data.suspected import DEFAULT_PATH, load_suspected
from seal.evaluation import tables
from seal.evaluation.comparison import Comparison, Side, compare
from seal.evaluation.heldout import not_held_out
from seal.evaluation.plots import rates_figure, save
from seal.evaluation.summary import Task, missing_tasks, summarise, suspected_tasks
from seal.evaluation.tables import (
    comparison_record,
    comparison_table,
    label_table,
    summary_record,
    summary_table,
    to_csv,
)
from seal.files import write_json, write_text
from seal.jsonl import BadLine, read_jsonl
from seal.records.source import WHOLE
from seal.records.validation import Log, read_validation_dir

NAMED_BAD_LINES = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when every line was usable and no task missing, 1 otherwise, 2 for bad input."""
    options = _parser().parse_args(arguments)
    console = tables.console()
    try:
        return _compare(options, console) if options.compare else _summarise(options, console)
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"stats_validation_bfcl: {error}", markup=False)
        return 2


def _summarise(options: argparse.Namespace, console: Console) -> int:
    if options.val_dir is None:
        raise ValueError("Nothing to read: give --val-dir RUN, or --compare RUN RUN.")
    log = read_validation_dir(options.val_dir)
    log = _only(log, options.step)
    present = suspected_tasks(log.lines, load_suspected(options.suspected))
    rows = summarise(log)
    less = summarise(log, present) if present else ()
    parts = [
        summary_table(rows, f"Validation of {options.val_dir}", {(row.step, row.name): row for row in less}),
        *([label_table(rows)] if label_table(rows) else []),
        _notes(log, present),
    ]
    console.print(Group(*parts))
    leak = not_held_out(_run_of(options.val_dir), log.lines)
    if leak:
        console.print(leak, style="bold red", soft_wrap=True)
    problems = _report_problems(log, _expected(options), console)
    records = [summary_record(row, "with") for row in rows] + [summary_record(row, "without") for row in less]
    figure = rates_figure({str(options.val_dir): rows}) if options.plot else None
    _export(
        options,
        records,
        {"summaries": records, "problems": problems, "warning": leak, **_provenance([log])},
        figure,
        parts,
        console,
    )
    return 1 if problems else 0


def _compare(options: argparse.Namespace, console: Console) -> int:
    logs: dict[str, list[Log]] = {}
    for name in options.compare:
        logs[name] = [read_validation_dir(folder) for folder in name.split(",")]
    if len(options.compare) != len(logs):
        raise ValueError("A run is named twice in --compare: name each once.")
    every = [log for each in logs.values() for log in each]
    problems = [problem for log in every for problem in _report_problems(log, None, console)]
    sides = _sides(logs, options.step)
    pairs = [(sides[0], other) for other in sides[1:]]
    shared = suspected_tasks((line for side in sides for line in side.lines), load_suspected(options.suspected))
    parts: list[Any] = []
    records = []
    for a, b in pairs:
        _check_comparable(a, b)
        rows = compare(a, b)
        parts.append(comparison_table(rows, f"{b.name} against {a.name}"))
        records += [comparison_record(row, "with") for row in rows]
        if shared:
            less = compare(a, b, shared)
            parts.append(comparison_table(_averages(less), f"the same without {len(shared)} suspected items"))
            records += [comparison_record(row, "without") for row in less]
        parts += [f"{rows[-1].unpaired} tasks are on one side only and left out."] if rows[-1].unpaired else []
    parts.append(
        "Differences in percentage points, paired by task; intervals and 'p boot' resample whole scenarios "
        "(10,000 draws); 'p exact' is McNemar's, which takes tasks as independent."
    )
    for side in sides:
        if len(side.runs) > 1:
            scored = [[line.passed for line in run if line.infra is None] for run in side.runs]
            means = [sum(run) / len(run) for run in scored if run]
            by_run = ", ".join(f"{100 * mean:.1f}" for mean in means)
            spread = f" (standard deviation {100 * statistics.stdev(means):.1f})" if len(means) > 1 else ""
            parts.append(
                f"{side.name}: pass rate by run {by_run}{spread}; intervals and p-values cover the choice of tasks, "
                "not of seeds."
            )
    console.print(Group(*parts))
    figure = rates_figure({name: summarise(_joined(each)) for name, each in logs.items()}) if options.plot else None
    _export(
        options, records, {"comparisons": records, "problems": problems, **_provenance(every)}, figure, parts, console
    )
    return 1 if problems else 0


def _joined(logs: Sequence[Log]) -> Log:
    """The lines of several seeds as samples of the same tasks."""
    return Log(tuple(line for log in logs for line in log.lines))


def _sides(logs: dict[str, list[Log]], step: int | None) -> list[Side]:
    """One side a named group of runs at its last (or the given) step; one single run: its first and last step."""
    if len(logs) == 1:
        ((name, runs),) = logs.items()
        if len(runs[0].steps) < 2:
            raise ValueError(f"{name} validated at one step only: name a second run to compare it with.")
        first, last = min(run.steps[0] for run in runs), max(run.steps[-1] for run in runs)
        return [Side(f"{name} at step {each}", tuple(run.at(each) for run in runs)) for each in (first, last)]
    return [
        Side(name, tuple(run.at(run.steps[-1] if step is None else step) for run in runs))
        for name, runs in logs.items()
    ]


def _check_comparable(a: Side, b: Side) -> None:
    """ValueError when the two sides were measured on different data or in different prompt modes."""
    for field, what in (("data_hash", "benchmark data"), ("prompt_mode", "prompt modes")):
        values_a = {getattr(line, field) for line in a.lines} - {None}
        values_b = {getattr(line, field) for line in b.lines} - {None}
        if values_a and values_b and values_a != values_b:
            raise ValueError(
                f"{a.name} and {b.name} were measured with different {what} "
                f"({', '.join(sorted(values_a))[:40]} and {', '.join(sorted(values_b))[:40]}): not comparable."
            )


def _averages(rows: Sequence[Comparison]) -> list[Comparison]:
    return [row for row in rows if row.name.startswith("average")]


def _run_of(folder: Path) -> Path:
    """The run that a folder of validation logs belongs to."""
    return folder.parent if folder.name == "validation_log" else folder


def _provenance(logs: Sequence[Log]) -> dict[str, list[str]]:
    """The hashes and prompt modes of all lines, for files that programs read."""
    fields = ("data_hash", "service_hash", "prompt_mode")
    return {
        field: sorted({value for log in logs for line in log.lines if (value := getattr(line, field))})
        for field in fields
    }


def _only(log: Log, step: int | None) -> Log:
    return log if step is None else Log(log.at(step), log.bad)


def _expected(options: argparse.Namespace) -> set[Task] | None:
    expected: set[Task] = set()
    if options.parquet:
        expected |= {(row.task_id, row.turns) for row in read_rows(options.parquet)}
    for path in options.bfcl_jsonl:
        for line in read_jsonl(path):
            if isinstance(line, BadLine) or not isinstance(line.value.get("id"), str):
                place = line if isinstance(line, BadLine) else line.bad("has no id")
                raise ValueError(f"{place}: name a question file of the benchmark")
            parse_task_id(line.value["id"])
            expected.add((line.value["id"], WHOLE))
    return expected or None


def _notes(log: Log, present: frozenset[Task]) -> str:
    notes = []
    if present:
        notes.append(f"w/o susp.: without {len(present)} suspected items (data/suspected_items.json)")
    for field, what in (("data_hash", "data"), ("service_hash", "service"), ("prompt_mode", "prompt mode")):
        values = sorted({value for line in log.lines if (value := getattr(line, field))})
        if len(values) > 1:
            notes.append(f"WARNING: lines of different {what} ({', '.join(value[:16] for value in values)})")
        elif values:
            notes.append(f"{what} {values[0][:16]}")
    return "; ".join(notes)


def _report_problems(log: Log, expected: set[Task] | None, console: Console) -> list[str]:
    problems = [str(line) for line in log.bad]
    if log.bad:
        console.print(f"{len(log.bad)} bad lines, left out of every figure:", style="bold red")
        for problem in problems[:NAMED_BAD_LINES]:
            console.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)
        if len(problems) > NAMED_BAD_LINES:
            console.print(f"  and {len(problems) - NAMED_BAD_LINES} more (all in --json)")
    for step, tasks in missing_tasks(log, expected).items():
        named = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
        problems.append(f"step {step} lacks {len(tasks)} tasks: {named}")
        console.print(problems[-1], style="bold red", markup=False, highlight=False, soft_wrap=True)
    return problems


def _export(
    options: argparse.Namespace,
    records: Sequence[dict[str, Any]],
    everything: dict[str, Any],
    figure: Any,
    parts: Sequence[Any],
    console: Console,
) -> None:
    if options.csv:
        write_text(to_csv(records), options.csv)
    if options.json:
        write_json(everything, options.json)
    if figure is not None:
        text = tables.console(file=io.StringIO(), record=True)
        text.print(Group(*parts))
        save(figure, options.plot, "BFCL multi-turn validation", text.export_text())
    for path in (options.csv, options.json, options.plot):
        if path:
            console.print(f"wrote {path}", highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stats_validation_bfcl.py", description=__doc__)
    what = parser.add_argument_group("what to read")
    what.add_argument("--val-dir", type=Path, help="a run, or its validation_log folder")
    what.add_argument(
        "--compare",
        nargs="+",
        metavar="RUN",
        help="runs to compare with the first; commas join the seeds of one side; one run: its first and last step",
    )
    what.add_argument("--step", type=int, help="this validation step only (default: all; --compare: the last)")
    what.add_argument("--parquet", type=Path, help="the tasks that every step must have")
    what.add_argument("--bfcl-jsonl", type=Path, nargs="+", default=[], help="the benchmark's question files, likewise")
    what.add_argument("--suspected", type=Path, default=DEFAULT_PATH, help="suspected items (default: data/)")
    out = parser.add_argument_group("what to write besides the tables")
    out.add_argument("--csv", type=Path)
    out.add_argument("--json", type=Path)
    out.add_argument("--plot", type=Path, help="a .png or .html file")
    return parser
