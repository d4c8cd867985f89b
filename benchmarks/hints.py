"""Which hint helps a task that no plain rollout passes? `python -m benchmarks.hints MODEL RECIPE FOLDER [KEY=VALUE]...`

Each cue alone, and all cues together, on every task whose plain rollouts all failed; benchmarks/hints.md says what is
compared. A retry with one cue that is drawn from a set passes as often as the mean over the set, so no cue is drawn.
FOLDER gets rollouts.csv.gz, from which the comparisons are computed, and hints.json.
"""

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from seal.cli.train import console
from seal.data.rows import TaskRow
from seal.launch.recipe import read_recipe
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.evolve import cues_in_use
from seal.settings import SealSettings
from seal.system.files import write_json
from shelf.lab.probe.measure import Question, Rollouts, play_tasks, seen_labels
from shelf.statistics.intervals import paired_difference
from shelf.suites.bar import Bar

NONE, ALL = "none", "all"
COMPARED = (("fired", "not fired"), ("fired", "any"), ("fired", NONE), ("not fired", NONE), ("fired", ALL))
"""The first two are registered as primary."""
COLUMNS = ("cue", "task", "scenario", "sample", "passed", "fired")

Rates = Mapping[str, Mapping[str, float]]
"""Pass rates by task and cue."""


def each_cue(settings: SealSettings, tasks: Sequence[TaskRow], plain: Rollouts) -> Iterator[Question]:
    """Every cue alone and all of them, on the tasks that no plain rollout passed."""
    failed = [n for n, some in plain.items() if not any(each.record.passed for each in some)]
    names = [cue.name for cue in cues_in_use(settings.interface.evolve, settings.diagnosis.taxonomy)]
    for arm, shown in (*((name, [name]) for name in names), (ALL, names)):
        yield Question(arm, "", len(failed) / len(plain), dict.fromkeys(failed, Omega.of(shown)))


def arms(rates: Mapping[str, float], fired: Collection[str], left_out: Collection[str]) -> dict[str, float]:
    """The pass rate of a task by arm: the mean over the cues from which a retry would draw one."""
    single = {cue: rate for cue, rate in rates.items() if cue not in (NONE, ALL, *left_out)}
    sides = {"fired": [], "not fired": [], "any": list(single.values())}
    for cue, rate in single.items():
        sides["fired" if catalogue()[cue].label in fired else "not fired"].append(rate)
    return {side: fmean(some) for side, some in sides.items() if some} | {arm: rates[arm] for arm in (NONE, ALL)}


def compare(rows: Sequence[Mapping[str, str]], left_out: Collection[str] = ()) -> list[dict[str, float | str]]:
    """The registered differences in points, paired by task, with intervals that count scenarios."""
    passed: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        passed[row["task"]][row["cue"]].append(int(row["passed"]))
    fired = {row["task"]: row["fired"].split() for row in rows}
    scenarios = {row["task"]: row["scenario"] for row in rows}
    rates = {task: {cue: fmean(some) for cue, some in by_cue.items()} for task, by_cue in passed.items()}
    by_task = {task: arms(some, fired[task], left_out) for task, some in rates.items() if {NONE, ALL} <= some.keys()}
    found = []
    for arm, against in COMPARED:
        pairs = {task: some for task, some in by_task.items() if {arm, against} <= some.keys()}
        sides = ({task: some[side] for task, some in pairs.items()} for side in (against, arm))
        difference = paired_difference(*sides, scenarios, dict.fromkeys(pairs, ""))
        figures = {"arm": difference.mean_b, "against": difference.mean_a, "difference": difference.difference}
        figures |= {"low": difference.low, "high": difference.high}
        found.append({"what": f"{arm} - {against}", "tasks": len(pairs)} | {k: 100 * v for k, v in figures.items()})
    return found


def main(model: Path, recipe: Path, folder: Path, *changes: str) -> None:
    """Play, write the rollouts, then the comparisons; with the rollouts there, only the comparisons."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rollouts.csv.gz"
    if not path.exists():
        read = read_recipe(recipe, [*changes, f"actor_rollout_ref.model.path={model.resolve()}"])
        with Bar(console()) as bar:
            plain, control, answers = play_tasks(read, folder, bar, each_cue)
        fired = seen_labels(plain)
        with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
            write = csv.writer(file)
            write.writerow(COLUMNS)
            for arm, rollouts in ((NONE, control), *((question.cue, some) for question, some in answers)):
                for n, some in rollouts.items():
                    for job, record in (each[:2] for each in some if each.record.usable):
                        row = arm, record.task_id, record.scenario, job.sample, int(record.passed)
                        write.writerow([*row, " ".join(sorted(fired[n]))])
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    by_cue: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_cue[row["cue"]].append(int(row["passed"]))
    shares = {cue: 100 * fmean(some) for cue, some in by_cue.items()}
    strongest = max(shares.keys() - {NONE, ALL}, key=shares.__getitem__)
    without = f"without {strongest}"
    found = {"compared": compare(rows), without: compare(rows, [strongest])}
    write_json({"changes": changes, "cues": shares, **found}, folder / "hints.json")
    for name, lines in found.items():
        console().print(name)
        for line in lines:
            interval = "{difference:+5.1f} [{low:+.1f}, {high:+.1f}]".format(**line)
            console().print("  {what:<22}{tasks:>4} tasks {arm:5.1f} {against:5.1f}  ".format(**line) + interval)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
