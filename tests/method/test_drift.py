"""Evolve over 200 steps of a slowly drifting policy: places change hands seldom, and a clear change is followed."""

import random

import pytest

from seal.method.interface.evolve import evolve, initial_omega
from seal.method.profile import Profile, Rollout
from seal.settings.interface import EvolveSettings

STEPS = 200
START = {
    "state_mismatch": 0.20,
    "missing_tool_call": 0.16,
    "response_mismatch": 0.15,
    "recovery_failure": 0.14,
    "argument_mismatch": 0.13,
    "invalid_tool_call": 0.10,
    "spurious_tool_call": 0.06,
}


def rollout(rng, shares):
    """Labels of two to five turns; the failures of one trajectory are alike."""
    habit = rng.choices(list(shares), list(shares.values()))[0]
    turns = [rng.random() < sum(shares.values()) for _ in range(rng.randint(2, 5))]
    other = rng.choices(list(shares), list(shares.values()), k=len(turns))
    return tuple(
        (habit if rng.random() < 0.5 else z) if failed else "pass" for failed, z in zip(turns, other, strict=True)
    )


def cues_off(settings, trajectories, window, shares, seed=0, steps=STEPS):
    """(step, cue) of each cue that was turned off."""
    rng, omega, profile, off = random.Random(seed), initial_omega(settings), Profile(window), []
    for step in range(1, steps + 1):
        rows = [rollout(rng, shares(step)) for _ in range(trajectories)]
        batch = [Rollout("base", row, float(set(row) == {"pass"})) for row in rows]
        profile = profile.after(step, batch)
        omega, events = evolve(omega, profile, settings, step)
        off += [(event.step, event.cue) for event in events if not event.on]
    return off


def drifting(step):
    return {z: share * (1 - 0.35 * step / STEPS) for z, share in START.items()}


@pytest.mark.parametrize(("trajectories", "window"), [(32, 5), (256, 10)])
def test_contested_places_change_hands_seldom(trajectories, window):
    assert len(cues_off(EvolveSettings(), trajectories, window, drifting)) <= 4


def test_without_the_margin_small_batches_rotate_the_cues(monkeypatch):
    """The reason for the margin: five weaknesses of about the same size, three places, 32 trajectories a step."""
    monkeypatch.setattr("seal.method.interface.evolve._MARGIN", 0.0)
    assert len(cues_off(EvolveSettings(), 32, 5, drifting)) >= 12


def test_a_clear_change_is_followed_within_two_windows():
    def changed(step):
        return START if step <= 20 else {**START, "state_mismatch": 0.02, "spurious_tool_call": 0.24}

    off = cues_off(EvolveSettings(), 32, 5, changed, steps=32)
    assert "reread_state" in {cue for step, cue in off if 20 < step <= 30}
