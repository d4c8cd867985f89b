"""Progress of the runs of an experiment."""

from rich.console import RenderableType

from seal.system.lock import Holder
from shelf.lab.experiment.arms import recorded_arm
from shelf.lab.experiment.collect import read_attempts
from shelf.lab.experiment.matrix import Cell, Experiment
from shelf.statistics.log import begun
from shelf.statistics.tables import table

STAGES = {"train": "step", "update": "step", "save": "step", "sync": "step", "validate": "validation at step"}


def status_parts(experiment: Experiment) -> list[RenderableType]:
    """A table of arms and seeds, the reasons of failed runs, and who works in the folder."""
    seeds = sorted({cell.seed for cell in experiment.cells})
    made = table(f"Runs of {experiment.design.name}", ["arm", *(f"seed {seed}" for seed in seeds)])
    made.columns[0].justify = "left"
    failures = {attempt.cell: attempt for attempt in read_attempts(experiment)}
    steps = {arm: found.steps for arm in experiment.design.arms if (found := recorded_arm(experiment, arm))}
    done = 0
    for arm in experiment.design.arms:
        cells = {seed: Cell(arm, seed) for seed in experiment.design.seeds_of(arm)}
        states = {seed: _state(experiment, cell, steps.get(arm), failures) for seed, cell in cells.items()}
        done += sum(state == "finished" for state in states.values())
        made.add_row(arm, *(states.get(seed, "") for seed in seeds))
    parts: list[RenderableType] = [made, f"{done} of {len(experiment.cells)} runs are finished."]
    holder = Holder.of(experiment.lock)
    if holder and not holder.gone:
        parts.append(f"Process {holder.pid} on {holder.host} took up the experiment at {holder.since}.")
    for cell in experiment.cells:
        attempt = failures.get(str(cell))
        if attempt and attempt.code and not experiment.result(cell).is_file():
            parts.append(f"{cell} ended with code {attempt.code}: {attempt.reason}")
    return parts


def _state(experiment: Experiment, cell: Cell, of: int | None, failures: dict) -> str:
    if experiment.result(cell).is_file():
        return "finished"
    folder = experiment.run(cell)
    failed = failures.get(str(cell))
    ended = f"code {failed.code}, " if failed and failed.code else ""
    last = begun(folder)[-1:]
    if not last:
        return ended.rstrip(", ") or ("started" if folder.path.is_dir() else "-")
    return f"{ended}{STAGES.get(last[0]['stage'], 'step')} {last[0]['step']} of {of}"
