"""Rewards grade what the verifier says and nothing else."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.rollout.rewards import terminal_reward
from seal.settings.reward import Mode, RewardSettings


def evaluation(valid=False, solved=0, scorable=4, abstained=0, abstainable=0):
    info = {
        "passed_turns": solved,
        "scorable_turns": scorable,
        "passed_irrelevance_turns": abstained,
        "irrelevance_turns": abstainable,
    }
    return {"valid": valid, "progress_info": info}


def test_binary_is_the_verdict():
    assert terminal_reward(evaluation(True, 4), RewardSettings()) == 1.0
    assert terminal_reward(evaluation(False, 3), RewardSettings()) == 0.0


def test_capped_grades_failed_trajectories_up_to_half():
    settings = RewardSettings(mode="capped")
    assert terminal_reward(evaluation(False, 1), settings) == pytest.approx(0.125)
    assert terminal_reward(evaluation(False, 4), settings) == 0.5
    assert terminal_reward(evaluation(True, 4), settings) == 1.0


def test_t3rl_counts_abstention_at_its_weight():
    settings = RewardSettings(mode="t3rl")
    assert terminal_reward(evaluation(False, 2, 4, 1, 2), settings) == pytest.approx(2.5 / 5)


@given(
    st.sampled_from(get_args(Mode)),
    st.booleans(),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_every_mode_stays_between_0_and_1(mode, valid, solved, more, abstained, further):
    result = terminal_reward(
        evaluation(valid, solved, solved + more, abstained, abstained + further), RewardSettings(mode=mode)
    )
    assert 0.0 <= result <= 1.0
