"""Algorithm 1 between rollouts: weigh the advantages, aggregate C_t, update rho and Omega.

Free of verl and torch: trajectories in, weights and the next state out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seal.diagnosis.blame import counted_labels
from seal.diagnosis.profile import Profile, Trajectory
from seal.diagnosis.sources import relabel
from seal.interface.cues import Omega
from seal.interface.evolve import evolve, initial_omega
from seal.records.step import Range, StepRecord, StepReport
from seal.records.trajectory import TrajectoryRecord, count_labels
from seal.reweighting import initial_rho, turn_weights, update_rho, weights
from seal.settings import SealSettings
from seal.training.group import Group, groups_dropped, groups_with_spread


@dataclass(frozen=True)
class TokenWeights:
    """w of one trajectory: one factor for all its tokens, or one for the tokens of each span.

    spans: (start, end, factor) in response tokens; tokens outside every span keep w.
    """

    w: float
    spans: tuple[tuple[int, int, float], ...] = ()

    def per_token(self, length: int) -> list[float]:
        """The factor of each of `length` response tokens."""
        factors = [self.w] * length
        for start, end, factor in self.spans:
            factors[start:end] = [factor] * (min(end, length) - min(start, length))
        return factors


class ClosedLoop:
    """C_t, rho_t and Omega_t, and the step from each to the next.

    Beside C_t it keeps the profile of the labels as diagnosed, which the random
    control draws from; the two are the same where labels come from the verifier.
    """

    def __init__(self, settings: SealSettings):
        self._settings = settings
        self._profile = Profile.empty(window=settings.diagnosis.window)
        self._rho = initial_rho(settings.reweighting)
        self._observed = self._profile
        self._omega = initial_omega(settings.interface.evolve)

    @property
    def _sends_omega(self) -> bool:
        return self._settings.enabled and self._settings.interface.enabled

    def omega_to_send(self) -> dict[str, Any] | None:
        """Omega_t for the next training prompts, or None where the interface is off."""
        return self._omega.to_json() if self._sends_omega else None

    def step(
        self,
        step: int,
        records: Sequence[TrajectoryRecord],
        groups: Sequence[Group],
        signs: Sequence[int],
    ) -> tuple[list[TokenWeights], StepReport]:
        """Weigh a step's trajectories with rho_t, then make C_t, rho_{t+1} and Omega_{t+1}.

        signs: sign of each trajectory's advantage. A trajectory that does not
        count (see `mark_groups`) has weight 0 and stays out of C_t.
        """
        settings = self._settings
        # The controls draw in this order, which must not depend on which rollout ended first.
        counted = sorted((i for i, group in enumerate(groups) if group.counts), key=lambda i: _identity(records[i]))
        blame = settings.diagnosis.blame
        diagnosed = [counted_labels(records[i].labels, records[i].diagnosis, blame) for i in counted]
        labels = relabel(diagnosed, settings.diagnosis.source, settings.seed, step, self._observed)
        w = [1.0] * len(counted)
        if settings.enabled:
            w = weights(labels, self._rho, settings.reweighting, step, [signs[i] for i in counted])
        token_weights = [TokenWeights(0.0)] * len(records)
        for i, row_labels, row_w in zip(counted, labels, w, strict=True):
            token_weights[i] = self._token_weights(records[i], row_labels, row_w, step, signs[i])

        rows = [records[i] for i in counted]
        profile = self._profile.updated(step, _trajectories(rows, labels))
        self._observed = self._observed.updated(step, _trajectories(rows, diagnosed))
        rho, omega, events = self._rho, self._omega, ()
        if settings.enabled and settings.closed_loop:
            rho = update_rho(self._rho, profile, settings.reweighting)
            if settings.interface.enabled:
                omega, events = evolve(self._omega, profile, settings.interface.evolve, step)
        record = StepRecord.of(
            step,
            records,
            self._omega if self._sends_omega else None,
            label_counts=count_labels(labels),
            rho=self._rho,
            w=Range.of(w),
            groups_with_spread=groups_with_spread(groups, records),
            trajectories_dropped=len(records) - len(counted),
            groups_dropped=groups_dropped(groups),
            events=tuple(events),
        )
        report = StepReport(record, profile.to_json(), omega.to_json() if self._sends_omega else None)
        self._profile, self._rho, self._omega = profile, rho, omega
        return token_weights, report

    @property
    def state(self) -> dict[str, Any]:
        """C, rho and Omega as JSON values, for the checkpoint."""
        return {
            "profile": self._profile.to_json(),
            "observed": self._observed.to_json(),
            "rho": dict(self._rho),
            "omega": self._omega.to_json(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state; what the recipe fixes (the window, a static rho) is the recipe's."""
        self._profile = Profile.from_json(state["profile"]).within(self._settings.diagnosis.window)
        self._observed = Profile.from_json(state["observed"]).within(self._settings.diagnosis.window)
        if self._settings.closed_loop:
            self._rho = dict(state["rho"])
        self._omega = Omega.from_json(state["omega"])

    def _token_weights(
        self, record: TrajectoryRecord, labels: Sequence[str], w: float, step: int, sign: int
    ) -> TokenWeights:
        settings = self._settings.reweighting
        if not (self._settings.enabled and settings.per_turn):
            return TokenWeights(w)
        factors = turn_weights(labels, self._rho, settings, step, sign)
        return TokenWeights(
            w, tuple((start, end, factors[turn]) for turn, start, end in record.spans if turn < len(factors))
        )


def _identity(record: TrajectoryRecord) -> tuple[str, str, int]:
    return record.data_source, record.task_id, record.sample


def _trajectories(records: Sequence[TrajectoryRecord], labels: Sequence[Sequence[str]]) -> list[Trajectory]:
    return [
        Trajectory(record.task_id, record.category, tuple(row), record.score)
        for record, row in zip(records, labels, strict=True)
    ]
