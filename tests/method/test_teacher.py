"""The teacher's choices without an engine: roles, and how long a cue with and without lift stays."""

import random

import pytest

from seal.method.interface.cues import Omega
from seal.method.teacher import TEACHERS, Evidence, Retry, Trial, omega_for

CUE = "schema_required"
OMEGA = Omega.of([CUE, "recover"])


@pytest.mark.parametrize(
    ("teacher", "roles"),
    [
        ("off", ["plain", "cued", "plain", "cued"]),
        ("share", ["plain", "cued", "plain", "cued"]),
        ("retry", ["plain", "retry", "plain", "control"]),
    ],
)
def test_the_roles_of_a_prompts_rollouts(teacher, roles):
    assert [TEACHERS[teacher](0.5).role(sample, 4) for sample in range(4)] == roles


def test_a_single_retry_is_no_control():
    assert [Retry(0.5).role(sample, 2) for sample in range(2)] == ["plain", "retry"]


def test_what_a_role_shows():
    for role in ("plain", "control"):
        assert omega_for(role, OMEGA, "base", ["argument_mismatch"]) is None
    assert omega_for("cued", OMEGA, "base") == OMEGA and omega_for("cued", Omega(), "base") is None
    assert omega_for("retry", OMEGA, "base", ["argument_mismatch"]).for_category("base") == (CUE,)
    assert omega_for("retry", OMEGA, "base") is None


def test_a_prompt_multiplies_the_evidence_and_cannot_sink_it():
    """As docs/how-it-works.md says: by 1 + 0.35 (0.10 - lift), from 1, not below 0.1; a cue retires at 25."""
    for lift in (1.0, 0.0, -1.0):
        seen = [("bfcl", [trial((CUE,), lift > 0), trial((), lift < 0)])]
        assert Evidence().after(seen).against == {f"bfcl/{CUE}": pytest.approx(1 + 0.35 * (0.10 - lift))}
    lifted = [("bfcl", [trial((CUE,), True), trial((), False)])]
    assert Evidence().after(lifted * 50).against == {f"bfcl/{CUE}": 0.1}
    harmed = [("bfcl", [trial((CUE,), False), trial((), True)])]
    assert Evidence({f"bfcl/{CUE}": 25 / 1.386}).after(harmed).retired == frozenset()
    assert Evidence({f"bfcl/{CUE}": 25 / 1.384}).after(harmed).retired == {f"bfcl/{CUE}"}


def retired_within(steps: int, prompts: int, plain: float, lift: float, fades: int = 0, runs: int = 300) -> float:
    """The share of runs in which a cue retires. Each prompt has three retries with it and a plain control.

    plain: the control's pass rate. lift: what the cue adds; before step `fades` it adds 0.3.
    """
    rng, gone = random.Random(f"{prompts}/{plain}/{lift}"), 0
    for _ in range(runs):
        evidence = Evidence()
        for step in range(steps):
            rate = plain + (0.3 if step < fades else lift)
            seen = [
                (
                    "bfcl",
                    [
                        *(trial((CUE,), rng.random() < rate) for _ in range(3)),
                        trial((), rng.random() < plain),
                    ],
                )
                for _ in range(prompts)
            ]
            evidence = evidence.after(seen)
        gone += bool(evidence.retired)
    return gone / runs


def trial(cues: tuple[str, ...], passed: bool) -> Trial:
    return Trial(cues, frozenset({"argument_mismatch"}), float(passed), False, None, True)


@pytest.mark.parametrize("prompts", [3, 5])
@pytest.mark.parametrize("plain", [0.02, 0.3])
def test_a_cue_that_gives_ten_points_stays(prompts, plain):
    assert retired_within(72, prompts, plain, lift=0.1) < 0.05


def test_a_cue_without_lift_retires():
    """In 40 steps where plain retries seldom pass. Where they pass more often, chance hides ten points for longer: a
    sequential likelihood ratio that keeps 95 % of such cues needs 42 steps on average at a rate of 0.3.
    """
    assert retired_within(40, 4, plain=0.02, lift=0.0) > 0.95
    assert retired_within(40, 4, plain=0.1, lift=0.0) > 0.75
    assert retired_within(72, 4, plain=0.3, lift=0.0) > 0.75
    assert retired_within(72, 4, plain=0.02, lift=0.0, fades=12) > 0.95
