"""Algorithm 1 of the paper between the rollouts and the update: labelled rollouts in, w and Omega_{t+1} out. Pure.

    C_t       = Agg({Z(tau_j)})                     section 3.2
    rho_t     = update(rho_{t-1}, C_t)              section 3.4, the closed loop
    w_j       = clip(mean of rho_t over Z(tau_j))   section 3.4
    Omega_t+1 = Evolve(Omega_t, C_t)                section 3.3

Before it, rollouts are played under Omega_t, and the service verifies their turns and labels them by Psi. After it, the
trainer multiplies: A~_j = w_j A_j. A control is an argument; a teacher sets `Rollout.profiled`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from seal.method.controls import Batch
from seal.method.diagnosis.extension import Extension
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import Event, evolve, initial_omega
from seal.method.profile import Profile, Rollout, Tally
from seal.method.reweighting import initial_rho, update_rho, weight
from seal.settings import SealSettings

Control = Callable[[Sequence[Sequence[str]], Tally], Batch]
"""Returns the labels to learn from, given the diagnosed labels and their tally in the window of C_t."""


@dataclass(frozen=True)
class State:
    """C_t, rho_t and Omega_{t+1}, which one round hands to the next; observed: C_t of the diagnosed labels."""

    profile: Profile
    observed: Profile
    rho: Mapping[str, float]
    omega: Omega

    @classmethod
    def initial(cls, settings: SealSettings, extension: Extension) -> Self:
        nothing = Profile(window=settings.diagnosis.window)
        rho, omega = initial_rho(settings.reweighting, extension), initial_omega(settings.interface.evolve, extension)
        return cls(nothing, nothing, rho, omega)

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_json() for name in ("profile", "observed", "omega")}
        return parts | {"rho": dict(self.rho)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], settings: SealSettings, extension: Extension) -> Self:
        """The state of a checkpoint, with the recipe's window, and the recipe's rho and Omega unless C_t sets them."""
        seen = (Profile.from_json(data[name]).within(settings.diagnosis.window) for name in ("profile", "observed"))
        start = cls.initial(settings, extension)
        rho = data["rho"] if settings.closed_loop and settings.reweighting.dynamic else start.rho
        omega = Omega.from_json(data["omega"]) if settings.closed_loop else start.omega
        return cls(*seen, dict(rho), omega)


class Round(NamedTuple):
    """One round: the labels that it learned from, by rollout and turn; w by rollout; the changes of Omega."""

    state: State
    labels: Batch
    w: list[float]
    events: tuple[Event, ...]


def play_round(
    state: State,
    step: int,
    rollouts: Sequence[Rollout],
    settings: SealSettings,
    extension: Extension,
    control: Control,
) -> Round:
    """Play one round."""
    rule = settings.reweighting
    diagnosed = [rollout.labels for rollout in rollouts]
    observed = _aggregate(state.observed, step, rollouts, diagnosed)
    labels = control(diagnosed, observed.recent())
    profile = _aggregate(state.profile, step, rollouts, labels)
    rho, omega, events = state.rho, state.omega, ()
    if settings.weighs and settings.closed_loop:
        rho = update_rho(rho, profile, rule, extension)
    w = [weight(z, rho, rule, extension) if settings.weighs else 1.0 for z in labels]
    if settings.shows_omega and settings.closed_loop:
        omega, events = evolve(omega, profile, settings.interface.evolve, step, extension)
    return Round(State(profile, observed, rho, omega), labels, w, events)


def _aggregate(profile: Profile, step: int, rollouts: Sequence[Rollout], labels: Sequence[Sequence[str]]) -> Profile:
    """C with each rollout in the step that drew it: an asynchronous rollout leaves the window with its Omega."""
    by_step: dict[int, list[Rollout]] = {step: []}
    for rollout, z in zip(rollouts, labels, strict=True):
        if rollout.profiled:
            by_step.setdefault(rollout.drawn, []).append(rollout._replace(labels=tuple(z)))
    for drawn in sorted(by_step, reverse=True):
        profile = profile.after(drawn, by_step[drawn])
    return profile
