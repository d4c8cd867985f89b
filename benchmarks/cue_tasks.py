"""Tasks that need a cue, and the others: `python -m benchmarks.cue_tasks FOLDER [--training]`.

FOLDER is a published experiment (benchmarks/NAME). A task needs a cue if it calls a tool whose arguments the lessons of
the small policy never told
(`shelf.testbed.policy.renaming.CUED`).
The first table takes the primary outcome of the committed results apart; with --training a second one has the reward
of the training rollouts of certified runs. Exploratory: no p-value, no correction.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

from benchmarks.rollouts import rollouts_of
from env_service.environments.bfcl.task_file import read_task_file
from seal.system.paths import HOME
from shelf.lab.experiment.effects import Runs, by_arm, family, levels
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.records import RunResult
from shelf.lab.experiment.scores import panel
from shelf.testbed.policy.renaming import CUED

TEST_BED = HOME / "data" / "test_bed"
FILES = tuple(TEST_BED / name for name in ("train.jsonl", "held_out.jsonl", "evidence.jsonl"))
KINDS = ("need a cue", "others", "benchmark")
"""Synthesised tasks that need a cue, other synthesised tasks, and first turns of the benchmark's tasks."""
WINDOWS = ((1, 4), (5, 12), (13, 24))
"""The steps, first and last, over which training rewards are averaged."""


def needing_cues() -> frozenset[str]:
    """The synthesised tasks of the test bed whose reference calls a tool of CUED."""
    return frozenset(
        task.id
        for file in FILES
        for task in read_task_file(file)
        if any(call.partition("(")[0] in CUED for turn in task.reference for call in turn)
    )


def restricted(runs: Runs, tasks: frozenset[str], inside: bool) -> Runs:
    """The runs with the scores of these tasks alone, or of all others."""
    return {arm: {seed: _only(result, tasks, inside) for seed, result in found.items()} for arm, found in runs.items()}


def _only(result: RunResult, tasks: frozenset[str], inside: bool) -> RunResult:
    kept = (
        replace(each, tasks={task: score for task, score in each.tasks.items() if (task in tasks) is inside})
        for each in result.validations
    )
    return replace(result, validations=tuple(kept))


def rows(experiment: Experiment) -> Iterator[str]:
    """The table: a row per arm and per comparison, for the tasks that need a cue and for the others."""
    design, tasks = experiment.design, needing_cues()
    runs = by_arm(design, (result for _cell, result in experiment.finished()))
    for inside, name in ((True, KINDS[0]), (False, KINDS[1])):
        chosen = restricted(runs, tasks, inside)
        for level in levels(design.primary, chosen):
            means = panel(list(chosen[level.arm].values()), design.primary).means
            by_seed = ", ".join(f"{100 * mean:.1f}" for mean in means)
            yield f"| {name} | {level.arm} | {100 * level.mean.value:.1f} | {by_seed} |"
        for effect in family(design.contrasts, [design.primary], chosen)[0]:
            found = effect.difference
            points = f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
            arms = f"{effect.contrast.arm} - {effect.contrast.against}"
            yield f"| {name} | {arms} | {points} | {len(effect.seeds)} pairs |"


def training_rows(experiment: Experiment) -> Iterator[str]:
    """A row per arm and kind of task: rollouts, and their mean reward in each window of steps.

    An arm some of whose rollouts see no Omega (`seal.interface.share`) has a row for each half.
    """
    synthesised = frozenset(task.id for file in FILES for task in read_task_file(file))
    tasks = needing_cues()
    rewards: dict[tuple[str, str, bool], list[tuple[int, float]]] = defaultdict(list)
    for rollout in rollouts_of(experiment.folder):
        if not rollout.validation:
            kind = KINDS[0] if rollout.task in tasks else KINDS[1] if rollout.task in synthesised else KINDS[2]
            rewards[rollout.run.rsplit("-", 1)[0], kind, rollout.cues].append((rollout.step, rollout.score))
    for (arm, kind, sees), found in sorted(rewards.items()):
        name = f"{arm}, {'with' if sees else 'without'} Omega" if (arm, kind, not sees) in rewards else arm
        means = (mean(score for step, score in found if low <= step <= high) for low, high in WINDOWS)
        yield f"| {kind} | {name} | {len(found)} | {' | '.join(f'{each:.3f}' for each in means)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--training", action="store_true", help="also the reward of training rollouts")
    options = parser.parse_args()
    experiment = Experiment.read(options.experiment)
    print("| tasks | arm or difference | passed, % | seeds, % |\n| --- | --- | --- | --- |")
    for row in rows(experiment):
        print(row)
    if options.training:
        steps = " | ".join(f"steps {low}-{high}" for low, high in WINDOWS)
        print(f"\n| tasks | arm | rollouts | {steps} |\n| --- | --- | --- |{' --- |' * len(WINDOWS)}")
        for row in training_rows(experiment):
            print(row)


if __name__ == "__main__":
    main()
