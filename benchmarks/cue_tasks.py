"""The primary outcome apart for tasks that need a cue: `python -m benchmarks.cue_tasks EXPERIMENT.yaml`.

Such a task needs a tool whose arguments the small policy's lessons never told (`seal.policy.renaming.CUED`). An
exploratory look at the committed results: p-values are not corrected.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from env_service.environments.bfcl.task_file import read_task_file
from seal.experiment.effects import Runs, by_arm, family, levels
from seal.experiment.matrix import Experiment
from seal.experiment.scores import panel
from seal.paths import HOME
from seal.policy.renaming import CUED
from seal.records.experiment import RunResult

FILES = tuple(HOME / "data" / "test_bed" / name for name in ("held_out.jsonl", "evidence.jsonl"))


def needing_cues() -> frozenset[str]:
    """The held-out tasks whose reference calls a tool of CUED."""
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
    for inside, name in ((True, "need a cue"), (False, "others")):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    print("| tasks | arm or difference | passed, % | seeds, % |")
    print("| --- | --- | --- | --- |")
    for row in rows(Experiment.read(parser.parse_args().experiment)):
        print(row)


if __name__ == "__main__":
    main()
