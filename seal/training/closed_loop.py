"""Algorithm 1 between rollouts: aggregate C_t, update rho, weigh the advantages, evolve Omega.

Free of verl and torch: trajectories in, weights and the next state out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from seal.diagnosis.profile import Profile, Trajectory
from seal.diagnosis.sources import counted_labels, relabelled
from seal.interface.cues import Omega, catalogue
from seal.interface.evolve import evolve, initial_omega
from seal.records.step import Lift, Range, StepRecord, StepReport
from seal.records.trajectory import TrajectoryRecord, count_labels
from seal.reweighting import initial_rho, update_rho, weights
from seal.settings import SealSettings
from seal.teacher import Lessons, Rollout, figures, sees_omega
from seal.training.group import Group, by_prompt


class ClosedLoop:
    """C_t, rho_t and Omega_t, and the step from each to the next.

    Beside C_t it keeps the profile of the labels as diagnosed, which the random
    control draws from; the two are the same where labels come from the verifier.
    """

    def __init__(self, settings: SealSettings):
        self._settings = settings
        taxonomy = settings.diagnosis.taxonomy
        self._profile = Profile(window=settings.diagnosis.window)
        self._observed = self._profile
        self._rho = initial_rho(settings.reweighting, taxonomy)
        self._omega = initial_omega(settings.interface.evolve, taxonomy)
        self._lessons = Lessons(settings.diagnosis.window)

    def omega_to_send(self) -> dict[str, Any] | None:
        """Omega_t for the next training prompts, or None where the interface is off."""
        return self._omega.to_json() if self._settings.shows_omega else None

    def step(
        self,
        step: int,
        records: Sequence[TrajectoryRecord],
        groups: Sequence[Group],
        advantages: Sequence[float],
        transfers: Mapping[int, float] | None = None,
    ) -> tuple[list[float], StepReport]:
        """One round of Algorithm 1: C_t from the step's labels, rho_t from C_t, w from rho_t, Omega_{t+1} from C_t.

        advantages: A_j of each trajectory. One that does not count (see `mark_groups`)
        has weight 0 and stays out of C_t. With a teacher C_t counts what saw no cues, as an evaluation sees none;
        transfers: of what was taught (`seal.teacher.Rollout`), by its number.
        """
        settings = self._settings
        # The controls draw in this order, which must not depend on which rollout ended first.
        counted = sorted((i for i, group in enumerate(groups) if group.counts), key=lambda i: _identity(records[i]))
        rows, row_advantages = [records[i] for i in counted], [advantages[i] for i in counted]
        diagnosed = [counted_labels(row.labels, row.diagnosis, settings.diagnosis.blame) for row in rows]
        profiled = [not (settings.teaches and row.cues) for row in rows]
        self._observed = _counted(self._observed, step, rows, diagnosed, profiled)
        labels = relabelled(diagnosed, settings.diagnosis, settings.seed, step, self._observed.recent())
        self._profile = _counted(self._profile, step, rows, labels, profiled)
        if settings.enabled and settings.closed_loop:
            self._rho = update_rho(self._rho, self._profile, settings.reweighting, settings.diagnosis.taxonomy)
        w = [1.0] * len(rows)
        if settings.enabled:
            w = weights(labels, self._rho, settings.reweighting, settings.diagnosis.taxonomy)
        everybody = [0.0] * len(records)
        for i, factor in zip(counted, w, strict=True):
            everybody[i] = factor

        prompts = self._prompts(groups, records, transfers or {}) if settings.teaches else []
        shown, events = self._omega, ()
        if settings.shows_omega and settings.closed_loop:
            evolving = settings.interface.evolve
            if settings.teaches:
                self._lessons = self._lessons.after(step, prompts, evolving.min_count)
            taxonomy, retired = settings.diagnosis.taxonomy, self._lessons.retired
            self._omega, events = evolve(shown, self._profile, evolving, step, taxonomy, retired)
        rollouts = [[records[i] for i in places] for places in by_prompt(groups).values()]
        record = StepRecord.of(
            step,
            records,
            shown if settings.shows_omega else None,
            label_counts=count_labels(labels),
            rho=self._rho,
            w=Range.of(w),
            push=_push(rows, w, row_advantages),
            lift=Lift.of(rollouts),
            teaching=figures(prompts),
            groups_with_spread=sum(len({each.score for each in prompt}) > 1 for prompt in rollouts),
            trajectories_dropped=len(records) - len(counted),
            groups_dropped=len({group.uid for group in groups}) - len(rollouts),
            staleness=Range.of([step - 1 - row.weights[0] for row in rows if row.weights]),
            events=tuple(events),
        )
        report = StepReport(record, self._profile.to_json(), self.omega_to_send())
        return everybody, report

    def _prompts(
        self, groups: Sequence[Group], records: Sequence[TrajectoryRecord], transfers: Mapping[int, float]
    ) -> list[tuple[str, list[Rollout]]]:
        """The rollouts of each prompt that count, with the prompt's environment."""
        interface = self._settings.interface
        prompts: dict[str, tuple[str, list[Rollout]]] = {}
        for i, (group, record) in enumerate(zip(groups, records, strict=True)):
            compared, failures = True, record.signals
            if interface.teacher == "retry":  # the cues were chosen for what failed before
                compared = sees_omega(record.sample, interface.share)
                failures = frozenset(catalogue()[cue].label for cue in record.cues)
            rollout = Rollout(record.cues, failures, record.score, record.taught, transfers.get(i), compared)
            if group.counts:
                prompts.setdefault(group.uid, (record.environment, []))[1].append(rollout)
        return list(prompts.values())

    @property
    def state(self) -> dict[str, Any]:
        """C, rho and Omega as JSON values, for the checkpoint."""
        return {
            "profile": self._profile.to_json(),
            "observed": self._observed.to_json(),
            "rho": dict(self._rho),
            "omega": self._omega.to_json(),
            "lessons": self._lessons.to_json(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state; what the recipe fixes (the window, a static rho) is the recipe's."""
        self._profile = Profile.from_json(state["profile"]).within(self._settings.diagnosis.window)
        self._observed = Profile.from_json(state["observed"]).within(self._settings.diagnosis.window)
        if self._settings.closed_loop:
            self._rho = dict(state["rho"])
        self._omega = Omega.from_json(state["omega"])
        if "lessons" in state:  # not in checkpoints of earlier versions
            self._lessons = Lessons.from_json(state["lessons"], self._settings.diagnosis.window)


def weighed(
    records: Sequence[TrajectoryRecord], groups: Sequence[Group], advantages: Sequence[float], w: Sequence[float]
) -> list[TrajectoryRecord]:
    """A step's records as they are logged: with the number of their prompt in the step, A_j and w_j."""
    numbers = {uid: number for number, uid in enumerate(dict.fromkeys(group.uid for group in groups))}
    rows = zip(records, groups, advantages, w, strict=True)
    return [replace(record, group=numbers[group.uid], advantage=a, w=factor) for record, group, a, factor in rows]


def _push(rows: Sequence[TrajectoryRecord], w: Sequence[float], advantages: Sequence[float]) -> dict[str, float]:
    """|A| summed over the sampled tokens of each sign, with w and without, as the token-mean loss counts it."""
    sums = dict.fromkeys(("successes", "failures", "successes_unweighted", "failures_unweighted"), 0.0)
    for row, factor, advantage in zip(rows, w, advantages, strict=True):
        name = "successes" if advantage > 0 else "failures"
        sums[name] += abs(advantage) * (factor * row.tokens)
        sums[f"{name}_unweighted"] += abs(advantage) * row.tokens
    return sums if any(sums.values()) else {}


def _identity(record: TrajectoryRecord) -> tuple[str, str, int]:
    return record.data_source, record.task_id, record.sample


def _counted(
    profile: Profile,
    step: int,
    records: Sequence[TrajectoryRecord],
    labels: Sequence[Sequence[str]],
    profiled: Sequence[bool],
) -> Profile:
    """The profile with each trajectory that it counts in the step whose Omega it was played with.

    In the synchronous trainer that is `step` itself. An older one leaves the window with the others of its Omega.
    """
    by_step: dict[int, list[Trajectory]] = {step: []}
    for record, row in compress(zip(records, labels, strict=True), profiled):
        drawn = step if record.drawn is None else record.drawn
        by_step.setdefault(drawn, []).append(Trajectory(record.category, tuple(row), record.score))
    for drawn in sorted(by_step, reverse=True):
        profile = profile.updated(drawn, by_step[drawn])
    return profile
