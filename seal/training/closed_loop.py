"""Algorithm 1 between rollouts: aggregate C_t, update rho, weigh the advantages, evolve Omega.

Free of verl and torch: trajectories in, weights and the next state out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seal.method.controls import counted_labels, relabelled
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import Event, evolve, initial_omega
from seal.method.profile import Profile, Trajectory
from seal.method.reweighting import initial_rho, update_rho, weight
from seal.method.teacher import Lessons, figures
from seal.records.step import StepReport
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.training.group import Group
from seal.training.round import Round, compared, step_record


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
        """Run a round, with a control's labels or a teacher where the recipe asks for them; returns w_j and the report.

        advantages: A_j of each trajectory. One that does not count (see `mark_groups`)
        has weight 0 and stays out of C_t. With a teacher C_t counts what saw no cues, as an evaluation sees none;
        transfers: of what was taught (`seal.method.teacher.Rollout`), by its number.
        """
        settings = self._settings
        # The controls draw in this order, which must not depend on which rollout ended first.
        counted = sorted((i for i, group in enumerate(groups) if group.counts), key=lambda i: _identity(records[i]))
        rows = [records[i] for i in counted]
        prompts = compared(records, groups, settings.interface, transfers or {}) if settings.teaches else []
        if settings.teaches and self._evolves and settings.interface.teacher != "wrong_hints":
            self._lessons = self._lessons.after(step, prompts, settings.interface.evolve.min_count)
        labels = self._labels(step, rows)
        played = self._round(step, rows, labels)
        weight = dict(zip(counted, played.w, strict=True))
        record = step_record(step, records, groups, advantages, weight, played, teaching=figures(prompts))
        report = StepReport(record, self._profile.to_json(), self.omega_to_send())
        return [weight.get(i, 0.0) for i in range(len(records))], report

    def _round(self, step: int, rows: Sequence[TrajectoryRecord], labels: Sequence[Sequence[str]]) -> Round:
        """Algorithm 1 from the labels of a step's rollouts to Omega_{t+1}: C_t, rho_t from C_t, w from rho_t, Omega.

        rows: the trajectories that count. labels: Psi of their turns, which the environment service diagnosed while
        it verified them (`seal.method.diagnosis`). `PromptSender` sends Omega_{t+1} with the next prompts.
        """
        method, taxonomy, shown = self._settings, self._settings.diagnosis.taxonomy, self._omega
        self._profile = self._counted(self._profile, step, rows, labels)
        if method.enabled and method.closed_loop:
            self._rho = update_rho(self._rho, self._profile, method.reweighting, taxonomy)
        rho = self._rho
        w = [weight(names, rho, method.reweighting, taxonomy) if method.enabled else 1.0 for names in labels]
        events: Sequence[Event] = ()
        if self._evolves:
            evolving, retired = method.interface.evolve, self._lessons.retired
            self._omega, events = evolve(shown, self._profile, evolving, step, taxonomy, retired)
        return Round(labels, self._rho, w, shown if method.shows_omega else None, tuple(events))

    @property
    def _evolves(self) -> bool:
        return self._settings.shows_omega and self._settings.closed_loop

    def _labels(self, step: int, rows: Sequence[TrajectoryRecord]) -> list[tuple[str, ...]]:
        """The labels that a round goes by: as diagnosed, or what a control makes of them."""
        diagnosis = self._settings.diagnosis
        diagnosed = [counted_labels(row.labels, row.diagnosis, diagnosis.blame) for row in rows]
        self._observed = self._counted(self._observed, step, rows, diagnosed)
        return relabelled(diagnosed, diagnosis, self._settings.seed, step, self._observed.recent())

    def _counted(
        self, profile: Profile, step: int, rows: Sequence[TrajectoryRecord], labels: Sequence[Sequence[str]]
    ) -> Profile:
        """The profile with each trajectory in the step whose Omega it was played with; with a teacher, the plain ones.

        In the synchronous trainer that is `step` itself. An older one leaves the window with the others of its Omega.
        """
        by_step: dict[int, list[Trajectory]] = {step: []}
        for row, names in zip(rows, labels, strict=True):
            if not (self._settings.teaches and row.cues):
                drawn = step if row.drawn is None else row.drawn
                by_step.setdefault(drawn, []).append(Trajectory(row.category, tuple(names), row.score))
        for drawn in sorted(by_step, reverse=True):
            profile = profile.updated(drawn, by_step[drawn])
        return profile

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
        self._lessons = Lessons.from_json(state["lessons"], self._settings.diagnosis.window)


def weighed(
    records: Sequence[TrajectoryRecord], groups: Sequence[Group], advantages: Sequence[float], w: Sequence[float]
) -> list[TrajectoryRecord]:
    """A step's records as they are logged: with the number of their prompt in the step, A_j and w_j."""
    numbers = {uid: number for number, uid in enumerate(dict.fromkeys(group.uid for group in groups))}
    rows = zip(records, groups, advantages, w, strict=True)
    return [replace(record, group=numbers[group.uid], advantage=a, w=factor) for record, group, a, factor in rows]


def _identity(record: TrajectoryRecord) -> tuple[str, str, int]:
    return record.data_source, record.task_id, record.sample
