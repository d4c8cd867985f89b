"""Dense rewards as the release defines them; binary is the verdict."""

import pytest

from seal.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.diagnosis.reward import RewardSettings, terminal_reward

SAY, CALLS = ActionEvidence(), ActionEvidence((CallEvidence("ls", {}, True),))
PASSED = TurnEvidence(0, 1, (CALLS, SAY), "answered", True, True, True)
FAILED = TurnEvidence(1, 1, (SAY,))
ABSTAINED = TurnEvidence(2, 0, (SAY,))
LATER = TurnEvidence(3, 1, stop="not_reached")


@pytest.mark.parametrize(
    ("settings", "valid", "turns", "expected"),
    [
        ({}, False, [PASSED, FAILED], 0.0),
        ({}, True, [PASSED], 1.0),
        ({"mode": "capped"}, False, [PASSED, FAILED], 0.0),
        ({"mode": "capped", "cap": 0.3}, False, [PASSED, FAILED], 0.3),
        ({"mode": "capped", "cap": 0.9, "weight": 0.8}, False, [PASSED, FAILED], 0.4),
        ({"mode": "capped", "cap": 0.3}, True, [PASSED], 1.0),
        ({"mode": "t3rl"}, False, [PASSED, FAILED, ABSTAINED], 0.6),
        ({"mode": "t3rl"}, False, [PASSED, FAILED, ABSTAINED, LATER], 1.5 / 3.5),
        ({"mode": "t3rl", "abstention": 0.0}, True, [ABSTAINED], 1.0),
    ],
)
def test_modes(settings, valid, turns, expected):
    assert terminal_reward(valid, turns, RewardSettings.from_config(settings)) == pytest.approx(expected)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="unknown mode 'dense'"):
        RewardSettings.from_config({"mode": "dense"})
    with pytest.raises(ValueError, match=r"reward.cap: expected a number, got 'x'"):
        RewardSettings.from_config({"cap": "x"})
    with pytest.raises(ValueError, match="unknown setting 'capp'"):
        RewardSettings.from_config({"capp": 1})
