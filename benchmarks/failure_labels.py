"""How turns of validation ended, by arm: `python -m benchmarks.failure_labels FOLDER [--compare ARM CONTROL]`.

FOLDER is a published experiment (benchmarks/NAME). A row per label: of the turns on the set of the primary outcome at
the last validation, the share that has it in each arm, mean over tasks and over the seeds whose run was certified, and
the difference between two arms, paired by seed and task. Exploratory: no p-value, no correction.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.rollouts import rollouts_of
from shelf.lab.experiment.design import Contrast
from shelf.lab.experiment.effects import Runs, by_arm, family, levels
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.records import RunResult, TaskScore

Turns = dict[str, Counter[str]]
"""How often each label ends a turn, by task."""


def labelled_turns(folder: Path, source: str) -> dict[str, Turns]:
    """The labels of the last validation on one data source, by run."""
    turns: dict[str, Turns] = defaultdict(lambda: defaultdict(Counter))
    for rollout in rollouts_of(folder):
        if rollout.validation and rollout.source == source:
            turns[rollout.run][rollout.task].update(rollout.labels)
    return turns


def counting(result: RunResult, source: str, turns: Turns, label: str) -> RunResult:
    """The run with the share of turns that have this label in place of each task's share of passes."""
    scores = {
        task: TaskScore(count[label], count.total(), count[label], count.total()) for task, count in turns.items()
    }
    last = max(each.step for each in result.validations if each.source == source)
    kept = (replace(each, tasks=scores) for each in result.validations if (each.step, each.source) == (last, source))
    return replace(result, validations=tuple(kept))


def rows(experiment: Experiment, contrast: Contrast) -> Iterator[str]:
    """The table, heading first; labels that no turn has are left out."""
    primary = experiment.design.primary
    turns = labelled_turns(experiment.folder, primary.set)
    results = {str(cell): result for cell, result in experiment.finished() if str(cell) in turns}
    seen = Counter(label for run in turns.values() for count in run.values() for label in count.elements())
    arms = Counter(result.arm for result in results.values())
    names = " | ".join(f"{arm} ({arms[arm]})" for arm in experiment.design.arms if arm in arms)
    yield f"| label, % of turns | {names} | {contrast.arm} - {contrast.against} |"
    yield "| --- |" + " --- |" * (len(arms) + 1)
    for label, _times in seen.most_common():
        counted = (counting(result, primary.set, turns[run], label) for run, result in results.items())
        runs: Runs = by_arm(experiment.design, counted)
        means = " | ".join(f"{100 * level.mean.value:.1f}" for level in levels(primary, runs))
        [effect], _missing = family([contrast], [primary], runs)
        difference = effect.difference
        points = (f"{100 * value:+.1f}" for value in (difference.value, difference.low, difference.high))
        yield "| {} | {} | {} [{}, {}] |".format(label, means, *points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--compare", nargs=2, metavar=("ARM", "CONTROL"), help="default: the file's first comparison")
    options = parser.parse_args()
    experiment = Experiment.read(options.experiment)
    contrast = experiment.design.contrasts[0]
    if options.compare:
        if unknown := sorted(set(options.compare) - set(experiment.design.arms)):
            parser.error(f"{unknown[0]} is not an arm of {options.experiment}: {', '.join(experiment.design.arms)}.")
        contrast = Contrast(arm=options.compare[0], against=options.compare[1])
    for row in rows(experiment, contrast):
        print(row)


if __name__ == "__main__":
    main()
