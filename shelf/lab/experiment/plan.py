"""The cost of an experiment before it runs: runs, hours, disk, and the differences that it can detect."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import RenderableType

from shelf.lab.experiment.arms import ComposedArm
from shelf.lab.experiment.collect import folder_size
from shelf.lab.experiment.effects import by_arm, family
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.power import detectable
from shelf.lab.experiment.records import RunResult
from shelf.statistics.tables import table

GIB = 1 << 30
MIB = 1 << 20
SEEDS = (3, 5, 10, 20)
SAVING = 1
"""Checkpoints beside those that are kept: the one that is being written."""


@dataclass(frozen=True)
class ArmPlan:
    """The runs of one arm. minutes: of one run, None if nothing tells; devices: GPUs of a run, 0 on a CPU."""

    arm: str
    runs: int
    done: int
    steps: int
    validations: int
    devices: int
    minutes: float | None

    @property
    def hours_left(self) -> float | None:
        """Hours of the missing runs, one after the other."""
        return None if self.minutes is None else (self.runs - self.done) * self.minutes / 60


@dataclass(frozen=True)
class ExperimentPlan:
    """The needs of the matrix. basis: where the minutes are from; disk in GiB, while it runs and when it has ended."""

    arms: tuple[ArmPlan, ...]
    jobs: int
    basis: str
    disk_during: float
    disk_after: float

    @property
    def hours_left(self) -> float | None:
        """Hours of all missing runs, one after the other; None if an arm's are unknown."""
        return _sum(arm.hours_left for arm in self.arms)


def plan_experiment(experiment: Experiment, arms: Mapping[str, ComposedArm], jobs: int = 1) -> ExperimentPlan:
    """The plan of an experiment with `jobs` runs at a time, from finished runs or else from the file's `cost`."""
    results = [result for _cell, result in experiment.finished()]
    plans = []
    for name, arm in arms.items():
        own = [result for result in results if result.arm == name]
        plans.append(
            ArmPlan(
                arm=name,
                runs=len(experiment.design.seeds_of(name)),
                done=len(own),
                steps=arm.steps,
                validations=len(arm.validation_steps),
                devices=arm.devices,
                minutes=_minutes(experiment, arm, own or results),
            )
        )
    during, after = _disk(experiment, arms, results, jobs)
    return ExperimentPlan(tuple(plans), jobs, _basis(experiment, results), during, after)


def plan_parts(experiment: Experiment, plan: ExperimentPlan) -> list[RenderableType]:
    """The plan for the terminal."""
    made = table(f"Plan of {experiment.design.name}", ["arm", "runs", "done", "steps", "validations", "min per run"])
    made.columns[0].justify = "left"
    made.add_column("hours left", justify="right")
    gpus = any(arm.devices for arm in plan.arms)
    if gpus:
        made.add_column("GPU hours left", justify="right")
    device_hours = [None if arm.hours_left is None else arm.hours_left * arm.devices for arm in plan.arms]
    for arm, left in zip(plan.arms, device_hours, strict=True):
        counts = map(str, (arm.runs, arm.done, arm.steps, arm.validations))
        cells = arm.arm, *counts, _number(arm.minutes, 0), _number(arm.hours_left)
        made.add_row(*cells, *([_number(left, 0)] if gpus else []))
    made.add_section()
    counts = [str(sum(getattr(arm, name) for arm in plan.arms)) for name in ("runs", "done")]
    cells = ["all", *counts, "", "", "", _number(plan.hours_left)]
    made.add_row(*cells, *([_number(_sum(device_hours), 0)] if gpus else []), style="bold")
    wall = "-" if plan.hours_left is None else _number(plan.hours_left / plan.jobs)
    sentences = [
        f"Times: {plan.basis}.",
        f"With --jobs {plan.jobs}: {wall} hours of wall time left.",
        f"Disk: {plan.disk_during:.1f} GiB while it runs, {plan.disk_after:.1f} GiB when it has ended.",
    ]
    return [made, *sentences, *_power(experiment)]


def _power(experiment: Experiment) -> list[str]:
    """The differences of the primary outcome that more seeds would find, by comparison with two finished pairs."""
    design, sentences = experiment.design, []
    runs = by_arm(design, (result for _cell, result in experiment.finished()))
    for effect in family(design.contrasts, [design.primary], runs)[0]:
        if parts := effect.difference.components:
            scenarios, alpha = effect.difference.scenarios, 0.05 / len(design.contrasts)
            errors = {n: (parts.error(n, scenarios), parts.freedom(n, scenarios)) for n in SEEDS}
            points = ", ".join(f"{100 * detectable(*each, alpha):.1f} with {n}" for n, each in errors.items())
            contrast = f"{effect.contrast.arm} - {effect.contrast.against}"
            sentences.append(f"Points that {contrast} finds with a probability of 80 %, by seeds: {points}.")
    return sentences


def _sum(hours: Iterable[float | None]) -> float | None:
    known = list(hours)
    return None if None in known else sum(known)


def _minutes(experiment: Experiment, arm: ComposedArm, results: list[RunResult]) -> float | None:
    measured = [result.minutes / len(result.steps) for result in results if result.steps and result.minutes]
    if measured:
        return statistics.fmean(measured) * arm.steps
    cost = experiment.design.cost
    if cost is None:
        return None
    return (cost.start_s + arm.steps * cost.seconds_per_step + len(arm.validation_steps) * cost.validation_s) / 60


def _basis(experiment: Experiment, results: list[RunResult]) -> str:
    if any(result.minutes for result in results):
        return f"measured in {len(results)} finished run{'s' * (len(results) > 1)}"
    cost = experiment.design.cost
    if cost is None:
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
    finished = [folder_size(experiment.run(cell).path) for cell, _result in experiment.finished()]
    kept = statistics.fmean(finished) / GIB if finished else (design.cost.kept_mb if design.cost else 0) * MIB / GIB
    if design.keep.checkpoints != "none" and not finished:
        kept += (one or at_once) if design.keep.checkpoints == "last" else at_once
    after = runs * kept
    return min(jobs, runs) * at_once + after, after


def _at_once(arm: ComposedArm, checkpoint: float | None) -> float:
    """GiB of the checkpoints of one run under way."""
    settings = arm.settings
    if checkpoint is None:
        return settings.min_free_gb
    return (settings.checkpoints.keep_last + settings.checkpoints.keep_best + SAVING) * checkpoint


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
