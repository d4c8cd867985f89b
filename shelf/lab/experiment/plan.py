"""An experiment at a glance: the runs, hours and disk space it needs, what it can detect, and how far its runs are."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import RenderableType

from seal.system.lock import Holder
from shelf.lab.experiment.arms import ComposedArm, recorded_arm
from shelf.lab.experiment.collect import Attempt, folder_size, read_attempts
from shelf.lab.experiment.effects import by_arm, detectable, family
from shelf.lab.experiment.matrix import Cell, Experiment
from shelf.lab.experiment.records import RunResult
from shelf.statistics.log import read_stages
from shelf.statistics.tables import table

GIB = 1 << 30
MIB = 1 << 20
SEEDS = (3, 5, 10, 20)
SAVING = 1
"""Checkpoints in addition to those that are kept: the one being written."""
STAGES = {"train": "step", "update": "step", "save": "step", "sync": "step", "validate": "validation at step"}
DONE = "finished"


class ArmPlan(NamedTuple):
    """The runs of one arm. minutes: those of one run, nan if unknown. devices: GPUs per run, 0 on a CPU."""

    arm: str
    runs: int
    done: int
    steps: int
    validations: int
    devices: int
    minutes: float

    @property
    def hours_left(self) -> float:
        """Hours of the missing runs, one after the other."""
        return (self.runs - self.done) * self.minutes / 60


class ExperimentPlan(NamedTuple):
    """What the matrix needs. basis: the source of the minutes. disk: in GiB, while it runs and after it has ended."""

    arms: Sequence[ArmPlan]
    jobs: int
    basis: str
    disk_during: float
    disk_after: float

    @property
    def hours_left(self) -> float:
        """Hours of all missing runs, one after the other; nan if those of an arm are unknown."""
        return sum(arm.hours_left for arm in self.arms)


def plan_experiment(experiment: Experiment, arms: Mapping[str, ComposedArm], jobs: int = 1) -> ExperimentPlan:
    """The plan of an experiment with `jobs` runs at a time, based on finished runs or else on the file's `cost`."""
    results, plans = [result for _cell, result in experiment.finished()], []
    for name, arm in arms.items():
        own = [result for result in results if result.arm == name]
        needs = (arm.steps, len(arm.validation_steps), arm.devices, _minutes(experiment, arms, arm, own or results))
        plans.append(ArmPlan(name, len(experiment.design.seeds_of(name)), len(own), *needs))
    return ExperimentPlan(plans, jobs, _basis(experiment, results), *_disk(experiment, arms, results, jobs))


def plan_parts(experiment: Experiment, plan: ExperimentPlan) -> list[RenderableType]:
    """The plan for the terminal."""
    gpus = ["GPU hours left"] if any(arm.devices for arm in plan.arms) else []
    columns = ["arm", "runs", "done", "steps", "validations", "min per run", "hours left", *gpus]
    made = table(f"Plan of {experiment.design.name}", columns)
    for arm in plan.arms:
        cells = *map(str, arm[:5]), _number(arm.minutes, 0), _number(arm.hours_left)
        made.add_row(*cells, *(_number(arm.hours_left * arm.devices, 0) for _ in gpus))
    made.add_section()
    counts = (str(sum(getattr(arm, name) for arm in plan.arms)) for name in ("runs", "done"))
    gpu_hours = sum(arm.hours_left * arm.devices for arm in plan.arms)
    cells = "all", *counts, "", "", "", _number(plan.hours_left), *(_number(gpu_hours, 0) for _ in gpus)
    made.add_row(*cells, style="bold")
    sentences = [
        f"Times: {plan.basis}.",
        f"With --jobs {plan.jobs}: {_number(plan.hours_left / plan.jobs)} hours of wall time left.",
        f"Disk: {plan.disk_during:.1f} GiB while it runs, {plan.disk_after:.1f} GiB when it has ended.",
    ]
    return [made, *sentences, *_power(experiment)]


def _power(experiment: Experiment) -> list[str]:
    """The differences of the primary outcome that more seeds would find, per comparison with two finished pairs."""
    design, sentences = experiment.design, []
    runs = by_arm(design, (result for _cell, result in experiment.finished()))
    for effect in family(design.contrasts, [design.primary], runs)[0]:
        if (parts := effect.difference.components) and effect.detectable is not None:
            scenarios, alpha = effect.difference.scenarios, 0.05 / (len(design.contrasts) * len(design.primaries))
            errors = {n: (parts.error(n, scenarios), parts.freedom(n, scenarios)) for n in SEEDS}
            points = ", ".join(f"{100 * detectable(*each, alpha):.1f} with {n}" for n, each in errors.items())
            contrast = f"{effect.contrast.arm} - {effect.contrast.against}"
            sentences.append(f"Points that {contrast} finds with a probability of 80 %, by seeds: {points}.")
    return sentences


def _minutes(experiment: Experiment, arms: Mapping[str, ComposedArm], arm: ComposedArm, runs: list[RunResult]) -> float:
    """Minutes per run of an arm: from finished runs, scaled by the times that the file expects, or by steps."""
    cost = experiment.design.cost

    def expected(arm: ComposedArm) -> float:
        if cost is None:
            return arm.steps
        return (cost.start_s + arm.steps * cost.seconds_per_step + len(arm.validation_steps) * cost.validation_s) / 60

    if measured := [run.minutes / expected(arms[run.arm]) for run in runs if run.minutes]:
        return statistics.fmean(measured) * expected(arm)
    return math.nan if cost is None else expected(arm)


def _basis(experiment: Experiment, results: list[RunResult]) -> str:
    if timed := sum(result.minutes > 0 for result in results):  # those of a cluster's jobs are not
        return f"measured in {timed} finished run{'s' * (timed > 1)}"
    if (cost := experiment.design.cost) is None:
        return "unknown until a run has ended; give cost.seconds_per_step in the file"
    parts = f"{cost.seconds_per_step:g} s per step, {cost.validation_s:g} s per validation, {cost.start_s:g} s to start"
    return f"{parts} ({cost.source.strip().rstrip('.')})"


def _disk(
    experiment: Experiment, arms: Mapping[str, ComposedArm], results: list[RunResult], jobs: int
) -> tuple[float, float]:
    """GiB while the matrix runs and afterwards."""
    design, runs = experiment.design, len(experiment.cells)
    measured = max((result.checkpoint_bytes for result in results), default=0) / GIB
    one = measured or (design.cost.checkpoint_gb if design.cost else None)
    at_once = max(_at_once(arm, one) for arm in arms.values())
    sizes = [folder_size(experiment.run(cell).path) for cell in experiment.cells if experiment.result(cell).is_file()]
    kept = statistics.fmean(sizes) / GIB if sizes else (design.cost.kept_mb if design.cost else 0) * MIB / GIB
    if design.keep.checkpoints != "none" and not sizes:
        kept += (one or at_once) if design.keep.checkpoints == "last" else at_once
    after = runs * kept
    return min(jobs, runs) * at_once + after, after


def _at_once(arm: ComposedArm, checkpoint: float | None) -> float:
    """GiB that the checkpoints of one run in progress take."""
    settings = arm.settings
    if checkpoint is None:
        return settings.min_free_gb
    return (settings.checkpoints.keep_last + settings.checkpoints.keep_best + SAVING) * checkpoint


def _number(value: float, digits: int = 1) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def status_parts(experiment: Experiment) -> list[RenderableType]:
    """A table of arms and seeds, the reasons why runs failed, and the process that works in the folder."""
    seeds = sorted({cell.seed for cell in experiment.cells})
    made = table(f"Runs of {experiment.design.name}", ["arm", *(f"seed {seed}" for seed in seeds)])
    last = {attempt.cell: attempt for attempt in read_attempts(experiment)}
    done, cells = {cell for cell, _result in experiment.finished()}, experiment.cells
    states = {cell: DONE if cell in done else _state(experiment, cell, last.get(str(cell))) for cell in cells}
    for arm in experiment.design.arms:
        made.add_row(arm, *(states.get(Cell(arm, seed), "") for seed in seeds))
    parts: list[RenderableType] = [made, f"{[*states.values()].count(DONE)} of {len(states)} runs are finished."]
    holder = Holder.of(experiment.lock)
    if holder and not holder.gone:
        parts.append(f"Process {holder.pid} on {holder.host} took up the experiment at {holder.since}.")
    for cell, state in states.items():
        if (attempt := last.get(str(cell))) and attempt.code and state != DONE:
            parts.append(f"{cell} ended with code {attempt.code}: {attempt.reason}")
    return parts


def _state(experiment: Experiment, cell: Cell, attempt: Attempt | None) -> str:
    folder, arm = experiment.run(cell), recorded_arm(experiment, cell.arm)
    ended = f"code {attempt.code}" if attempt and attempt.code else ""
    if not (stages := read_stages(folder)):
        return ended or ("started" if folder.path.is_dir() else "-")
    stage = stages[-1]
    at = f"{STAGES.get(stage['stage'], 'step')} {stage['step']} of {arm and arm.steps}"
    return f"{ended}, {at}" if ended else at
