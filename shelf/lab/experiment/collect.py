"""From the folder of a finished run to its result; large files are removed afterwards."""

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from seal.launch.folder import hold
from seal.records.changes import training_launches
from seal.records.folder import RunFolder
from seal.records.step import read_steps
from seal.system.errors import LaunchError
from seal.system.files import json_hash, replacing
from seal.system.paths import HOME
from seal.training.checkpoints import last_step
from shelf.lab.experiment.arms import ComposedArm, recorded_arm
from shelf.lab.experiment.design import Keep
from shelf.lab.experiment.matrix import Cell, Experiment
from shelf.lab.experiment.records import RunResult, StepFigures, validation_scores
from shelf.statistics.log import Log, has_validations, read_validation_dir, values
from shelf.statistics.runs import not_held_out


class Attempt(NamedTuple):
    """One start of a run and how it ended; times in seconds since 1970."""

    cell: str
    started: float
    ended: float
    code: int
    reason: str


def read_attempts(experiment: Experiment) -> tuple[Attempt, ...]:
    """Every start of a run, in order; a line that was cut short is left out."""
    lines = values(experiment.attempts)
    return tuple(Attempt(**{name: line[name] for name in Attempt._fields}) for line in lines)


def is_whole(folder: RunFolder, arm: ComposedArm) -> bool:
    """Return whether a run has logged its last step and the validation that follows it."""
    if not folder.steps.is_file():
        return False
    steps, _bad = read_steps(folder.steps)
    return bool(steps) and steps[-1].step >= arm.steps and (folder.validations / f"{arm.steps}.jsonl").is_file()


def collect(experiment: Experiment, cell: Cell, arm: ComposedArm) -> RunResult:
    """Write the result of a complete run. ValueError if its logs cannot be read."""
    folder = experiment.run(cell)
    steps, bad = read_steps(folder.steps)
    log = read_validation_dir(folder.path) if has_validations(folder) else Log(())
    attempts = [attempt for attempt in read_attempts(experiment) if attempt.cell == str(cell)]
    commit, inputs, launches = _recorded(experiment, cell)
    last = last_step(folder.checkpoints)
    result = RunResult(
        experiment=experiment.design.name,
        arm=cell.arm,
        seed=cell.seed,
        configuration=arm.hash,
        commit=commit,
        inputs=inputs,
        ended=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        launches=launches,
        minutes=sum(each.ended - each.started for each in attempts) / 60 if len(attempts) >= launches else 0.0,
        steps=tuple(map(StepFigures.of, steps)),
        validations=validation_scores(log.lines),
        prompt_modes=tuple(sorted({line.prompt_mode for line in log.lines} - {""})),
        data_hashes=tuple(sorted({line.data_hash for line in log.lines} - {""})),
        leak=not_held_out(folder.path, log.lines),
        bad_lines=len(bad) + len(log.bad),
        checkpoint_bytes=folder_size(folder.checkpoints / f"global_step_{last}") if last is not None else 0,
    )
    result.write(experiment.result(cell))
    return result


def drop(folder: RunFolder, keep: Keep) -> None:
    """Remove the files that an experiment does not keep of a run with a result."""
    if keep.checkpoints == "none":
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
    elif keep.checkpoints == "last" and (last := last_step(folder.checkpoints)) is not None:
        for checkpoint in folder.checkpoints.glob("global_step_*"):
            if checkpoint.name != f"global_step_{last}":
                shutil.rmtree(checkpoint, ignore_errors=True)
    logs = (folder.trajectories, keep.trajectories), (folder.validations, keep.validations)
    for path, stays in (*logs, (folder.path / "tensorboard", keep.tensorboard)):
        if not stays:
            shutil.rmtree(path, ignore_errors=True)


def collect_finished(experiment: Experiment, drops: bool = False) -> None:
    """Collect every run that is complete and has no result yet; drops: remove what is not kept of runs with a result.

    A run on which a launcher works is left alone, and so is a folder that holds results without the runs.
    """
    if not experiment.has_runs:
        return
    for cell in experiment.cells:
        folder, finished = experiment.run(cell), experiment.result(cell).is_file()
        if not folder.path.is_dir():
            continue
        arm = None if finished else recorded_arm(experiment, cell.arm)
        if not finished and (arm is None or not is_whole(folder, arm)):
            continue
        with hold_run(folder.path) as free:
            if not free:
                continue
            if not finished:
                collect(experiment, cell, arm)
            if drops:
                drop(folder, experiment.design.keep)
    write_results(experiment)


@contextmanager
def hold_run(run_dir: Path) -> Iterator[bool]:
    """Hold the folder's lock as a launcher would; yields False if a launcher, or the rest of its run, works there."""
    with ExitStack() as stack:
        free = False
        with suppress(LaunchError):
            stack.enter_context(hold(RunFolder(run_dir)))
            free = True
        yield free


def write_results(experiment: Experiment) -> None:
    """Write the results of all finished runs as one file, if there are any; those of other arms and seeds stay."""
    done = dict(experiment.finished())
    others = (result for cell, result in experiment.kept().items() if cell not in done)
    lines = [result.line() for result in (*done.values(), *others)]
    if lines:
        with replacing(experiment.results) as draft:
            draft.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def changes_outside(patch: str, folder: str) -> bool:
    """Return whether a patch of `git diff` touches a file outside the folder (a path in the repository)."""
    headers = (line for line in patch.splitlines() if line.startswith("diff --git "))
    return any(not line.startswith(f"diff --git a/{folder}/") for line in headers)


def _recorded(experiment: Experiment, cell: Cell) -> tuple[str, str, int]:
    """Commits and inputs of the launches that trained a run, and how many launches it took."""
    folder = experiment.run(cell)
    trained = [*training_launches(folder).values()]
    patches = (HOME / "launcher_record" / experiment.run_name(cell)).glob("*/diff.patch")
    last = max(patches, key=lambda path: path.stat().st_mtime, default=None)
    # An experiment in the repository changes its own results while it runs.
    changed = last is not None and changes_outside(
        last.read_text(encoding="utf-8", errors="replace"), os.path.relpath(experiment.folder, HOME)
    )
    commits = " ".join(dict.fromkeys(each.get("commit", "") for each in trained))
    hashes = dict(pair for each in trained for pair in each.get("hashes", {}).items())
    hashes.pop("data/train.parquet", None)
    return commits + "+" * changed, json_hash(hashes) if hashes else "", len([*values(folder.launches)])


def folder_size(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
