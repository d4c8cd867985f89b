"""How turns of validation ended, by arm: `python -m benchmarks.failure_labels EXPERIMENT.yaml [--compare ARM CONTROL]`.

A row per label: of the turns on the set of the primary outcome at the last validation, the share that has it in each
arm, mean over tasks and over the seeds whose run has a certificate, and the difference between two arms, paired by
seed and task. Exploratory: no p-value, no correction.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shelf.lab.certificate.file import read
from shelf.lab.experiment.design import Contrast
from shelf.lab.experiment.effects import Runs, by_arm, family, levels
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.records import RunResult, TaskScore

Turns = dict[str, Counter[str]]
"""How often each label ends a turn, by task."""


def labelled_turns(certificate: Path, source: str) -> Turns:
    """The labels of a run's last validation on one data source."""
    steps: dict[int, Turns] = defaultdict(lambda: defaultdict(Counter))
    for record in read(certificate):
        if record.kind == "validation" and (line := record.value)["data_source"] == source and not line["infra"]:
            steps[line["step"]][line["task_id"]].update(line["labels"])
    return steps[max(steps)]


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
    results, turns = [], {}
    for cell, result in experiment.finished():
        if experiment.certificate(cell).is_file():
            results.append(result)
            turns[cell.arm, cell.seed] = labelled_turns(experiment.certificate(cell), primary.set)
    seen = Counter(label for run in turns.values() for count in run.values() for label in count.elements())
    arms = Counter(each.arm for each in results)
    names = " | ".join(f"{arm} ({arms[arm]})" for arm in experiment.design.arms if arm in arms)
    yield f"| label, % of turns | {names} | {contrast.arm} - {contrast.against} |"
    yield "| --- |" + " --- |" * (len(arms) + 1)
    for label, _times in seen.most_common():
        runs: Runs = by_arm(
            experiment.design,
            (counting(each, primary.set, turns[each.arm, each.seed], label) for each in results),
        )
        shares = levels(primary, runs)
        means = " | ".join(f"{100 * level.mean.value:.1f}" for level in shares)
        [effect], _missing = family([contrast], [primary], runs)
        found = effect.difference
        yield f"| {label} | {means} | {100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}] |"


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
