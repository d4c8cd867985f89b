"""Which prompts go on: the step's size, weights of inclusion, and no bias in C_t."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.diagnosis.profile import Profile, Trajectory
from seal.pilot import PilotPlan, judge, most_prompts, require_rest
from seal.settings.sampling import PilotSettings

DEFAULT = PilotSettings(samples=2)


def play(pilots, prompts, samples, reward, seed=0, step=1):
    """All parts of a step in the order of sending, and the plan; reward: of a rollout, given prompt and number."""
    plan, sendings = PilotPlan(pilots, prompts, samples, seed, step), []
    parts = plan.start()
    while plan.pilots:
        sendings.append(parts)
        scores = [[reward(part.prompt, sample) for sample in range(part.samples)] for part in plan.pilots]
        parts = plan.go_on(scores)
    sendings.append(parts)
    return [part for sending in sendings for part in sending], plan, len(sendings)


@st.composite
def sizes(draw):
    samples = draw(st.integers(4, 12))
    first, keep, waves = draw(st.integers(2, samples - 2)), draw(st.floats(0.01, 1)), draw(st.integers(1, 4))
    return PilotSettings(samples=first, keep=keep, waves=waves), draw(st.integers(1, 12)), samples


@settings(deadline=None)
@given(sizes(), st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1), st.integers(0, 9))
def test_a_step_keeps_its_size_and_every_decision_is_carried_out(size, outcomes, seed):
    pilot, prompts, samples = size
    rng = random.Random(seed)
    rewards = defaultdict(lambda: rng.choice(outcomes))
    parts, plan, sendings = play(pilot, prompts, samples, lambda *rollout: rewards[rollout], seed)

    assert sum(part.samples for part in parts) == prompts * samples
    assert sendings <= pilot.waves + 1
    assert plan.prompts <= most_prompts(pilot, prompts, samples)
    assert sorted({part.prompt for part in parts}) == list(range(plan.prompts))
    by_prompt = defaultdict(list)
    for part in parts:
        by_prompt[part.prompt].append(part)
    for decision in plan.decisions:
        pilots, *further = by_prompt.pop(decision.prompt)
        scores = [rewards[decision.prompt, sample] for sample in range(pilot.samples)]
        assert (pilots.first, pilots.samples, pilots.inclusion) == (0, pilot.samples, 1)
        assert decision.verdict == judge(scores) and decision.went_on == bool(further)
        if decision.verdict != "agree":
            assert decision.went_on and decision.probability == 1
        for part in further:
            assert part.first == pilot.samples and part.samples - (samples - pilot.samples) in (0, 1)
            # However many there are, together they weigh the rest of a group over the probability of playing it.
            assert part.samples * part.inclusion == pytest.approx((samples - pilot.samples) / decision.probability)
    for (part,) in by_prompt.values():  # played without pilots
        assert part.first == 0 and part.samples >= 2 and part.inclusion == 1


@settings(deadline=None)
@given(sizes(), st.integers(0, 9))
def test_seed_step_and_rewards_decide(size, seed):
    rewards = {(prompt, sample): float((prompt * 7 + sample) % 3 == 0) for prompt in range(200) for sample in range(12)}
    found = [play(*size, lambda *rollout: rewards[rollout], seed)[0] for _ in range(2)]
    assert found[0] == found[1]


def test_a_step_without_agreement_plays_full_groups_of_as_many_prompts():
    parts, plan, _ = play(DEFAULT, 8, 8, lambda prompt, sample: float(sample % 2))
    assert plan.figures == {"piloted": 8, "went_on": 8, "in_full": 0}
    assert {part.inclusion for part in parts} == {1}


def test_a_step_without_a_difference_ends_and_its_rest_is_played_in_full():
    never = PilotSettings(samples=2, keep=1e-9)
    parts, plan, sendings = play(never, 8, 8, lambda *_: 0.0)
    # 8 prompts x 2 leave 48 rollouts: 6 more pilots leave 36, which are 4 groups and a smaller one of 4.
    assert plan.figures == {"piloted": 14, "went_on": 0, "in_full": 5} and sendings == 3
    assert [part.samples for part in parts if part.prompt >= 14] == [8, 8, 8, 8, 4]
    assert most_prompts(never, 8, 8) == plan.prompts == 19


def test_a_single_rollout_that_is_left_joins_the_last_group():
    # Of 3 x 5 rollouts the first wave leaves 3 if one prompt drops: a smaller group.
    drops = PilotSettings(samples=2, keep=1e-9)
    parts, *_ = play(drops, 3, 5, lambda prompt, sample: float(sample % 2) if prompt else 0.0)
    assert [tuple(part) for part in parts][3:] == [(1, 2, 3, 1.0), (2, 2, 3, 1.0), (3, 0, 3, 1.0)]
    three = PilotSettings(samples=3, keep=1e-9)
    parts, *_ = play(three, 3, 5, lambda prompt, sample: float(sample % 2) if prompt > 2 else 0.0)
    # 15 - 9 = 6 are left if all drop: a second wave pilots one, which goes on with its rest of 2 and the last one.
    assert [tuple(part) for part in parts][3:] == [(3, 0, 3, 1.0), (3, 3, 3, pytest.approx(2 / 3))]


def test_a_rest_that_is_no_group_is_refused():
    with pytest.raises(ValueError, match="7 pilots leave fewer than two of 8 rollouts"):
        require_rest(PilotSettings(samples=7), 8)
    require_rest(PilotSettings(samples=6), 8)


@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_c_t_of_piloted_steps_is_that_of_full_groups_and_counting_plainly_is_not(lost):
    tasks = [0.5] * 16 + [0.9] * 8 + [0.02] * 36  # pass rates; the failures of each kind have a label of their own
    names = {0.5: "wrong_argument", 0.9: "state_mismatch", 0.02: "missing_tool_call"}
    full = {name: sum(1 - rate for rate in tasks if names[rate] == name) / len(tasks) for name in names.values()}
    weighted, plain, in_full_groups = Profile.empty(), Profile.empty(), 0
    pilots = PilotSettings(samples=2, keep=0.25)
    for step in range(1, 501):
        rng = random.Random(step)
        drawn, rewards = rng.sample(tasks, most_prompts(pilots, 8, 8)), {}

        def reward(prompt, sample, rng=rng, drawn=drawn, rewards=rewards):
            played = float(rng.random() < drawn[prompt])
            return rewards.setdefault((prompt, sample), None if rng.random() < lost else played)

        parts, plan, _ = play(pilots, 8, 8, reward, step=step)
        whole = sum(part.samples for part in parts if part.first == 0 and part.samples > 2)
        in_full_groups += 8 * len(plan.decisions) + whole
        seen = [
            (names[drawn[part.prompt]], reward(part.prompt, sample), part.inclusion)
            for part in parts
            for sample in range(part.first, part.first + part.samples)
        ]
        usable = [("pass" if score else name, score, weight) for name, score, weight in seen if score is not None]
        weighted = weighted.updated(step, [Trajectory("t", "base", (z,), r, w) for z, r, w in usable])
        plain = plain.updated(step, [Trajectory("t", "base", (z,), r) for z, r, _ in usable])
    shares, naive = weighted.total().shares(), plain.total().shares()
    for label, share in full.items():
        assert shares[label] == pytest.approx(share, abs=0.012)
    assert weighted.total().turns() == pytest.approx(in_full_groups * (1 - lost), rel=0.03)
    assert weighted.total().labels()["pass"].mean == 1
    assert abs(naive["missing_tool_call"] - full["missing_tool_call"]) > 0.05
