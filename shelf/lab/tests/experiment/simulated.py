"""Matrices whose truth is known: results drawn from a seed, without any run."""

from pathlib import Path

import numpy as np

from env_service.environments.bfcl.splits import EVAL_SCENARIOS
from shelf.lab.experiment.design import parse_design
from shelf.lab.experiment.matrix import Cell, Experiment
from shelf.lab.experiment.records import RunResult, StepFigures, TaskScore, ValidationScores

STEPS = (0, 8, 16, 24, 32)


def experiment(folder: Path, arms, seeds=(0, 1, 2, 3, 4), **more) -> Experiment:
    """An experiment over the quickstart; the first arm is the control."""
    extra = "".join(f"{key}: {value}\n" for key, value in more.items())
    text = (
        f"name: simulated\nfolder: {folder}\nquestion: Which arm learns more?\nstopping: every run, once\n"
        f"recipe: exp/quickstart.yaml\nseeds: {list(seeds)}\ncontrol: {next(iter(arms))}\n"
        "arms:\n" + "".join(f"  {arm}: {{}}\n" for arm in arms) + "primary: {set: base@1}\n" + extra
    )
    path = folder / "simulated.yaml"
    path.write_text(text)
    return Experiment(parse_design(text, str(path)), path, text)


def write_results(made: Experiment, gains, **truth) -> None:
    """Give every run a result, see `results`."""
    for cell, found in results(made, gains, **truth).items():
        found.write(made.result(cell))


def results(
    made: Experiment, gains, seed=0, between_seeds=0.03, between_tasks=0.05, samples=8
) -> dict[Cell, RunResult]:
    """The result of each run: an arm's pass rate rises by its gain until the last step."""
    found = {}
    rng = np.random.default_rng(seed)
    ease = rng.beta(0.6, 2.0, len(EVAL_SCENARIOS)) * 0.6
    liking = {arm: rng.normal(0, between_tasks, len(ease)) for arm in gains}
    for cell in made.cells:
        luck = rng.normal(0, between_seeds)
        validations = []
        for step in STEPS:
            done = step / STEPS[-1]
            chance = np.clip(ease + done * (gains[cell.arm] + luck + liking[cell.arm]), 0, 1)
            passed = rng.binomial(samples, chance)
            tasks = {
                f"multi_turn_base_{scenario}": TaskScore(int(k), samples, int(k), samples)
                for scenario, k in zip(EVAL_SCENARIOS, passed, strict=True)
            }
            validations.append(ValidationScores(step, "base@1", tasks))
        found[cell] = result(made, cell, tuple(validations))
    return found


def result(made: Experiment, cell: Cell, validations=(), **more) -> RunResult:
    """A result with these validations and 32 steps."""
    figures = {
        "experiment": made.design.name,
        "arm": cell.arm,
        "seed": cell.seed,
        "configuration": cell.arm,
        "commit": "c" * 40,
        "inputs": "i" * 64,
        "ended": "2026-11-22T07:00:00+0000",
        "launches": 1,
        "minutes": 9.0,
        "steps": tuple(StepFigures(step, 0.4 + step / 200, 1.15, 1, 5, 15.0) for step in range(1, 33)),
        "validations": validations,
        "prompt_modes": ("compact",),
        "data_hashes": ("d" * 64,),
        "leak": None,
        "bad_lines": 0,
        "checkpoint_bytes": 24_000_000,
    }
    return RunResult(**{**figures, **more})
