"""Drawing prompts: Beta posteriors, shares, floors, determinism, and what it buys on a simulated policy."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.records.trajectory import TrajectoryRecord
from seal.sampling import Candidate, History, Outcome, draw, expected_variance, posterior
from seal.settings.sampling import SamplingSettings
from seal.training.group import Group
from seal.training.prompts import PromptChoice

SETTINGS = SamplingSettings(mode="gradient", prior=4)
SHARP = SamplingSettings(mode="gradient")
GROUP = 8


def candidates(*counts, names=("base", "miss_func", "miss_param")):
    return [
        Candidate((f"{name}_{number}", -1), name)
        for name, count in zip(names, counts, strict=False)
        for number in range(count)
    ]


def outcomes(candidate, *rewards):
    return [Outcome(candidate.task, candidate.source, reward) for reward in rewards]


def test_the_posterior_starts_at_the_mean_of_the_source_and_follows_the_task():
    known, unknown, other = *candidates(2), Candidate(("miss_func_0", -1), "miss_func")
    history = History.empty().updated(1, outcomes(known, *[1.0] * 6, 0.0, 0.0), SETTINGS.half_life)
    means = [
        alpha / (alpha + beta) for alpha, beta in (posterior(c, history, 1, SETTINGS) for c in (known, unknown, other))
    ]
    assert means[2] == pytest.approx(0.5) and means[1] == pytest.approx(7 / 10)
    assert means[0] == pytest.approx((4 * 0.7 + 6) / 12)
    # Later the outcomes weigh less, and all means go back to one half.
    later = [alpha / (alpha + beta) for alpha, beta in (posterior(c, history, 500, SETTINGS) for c in (known, unknown))]
    assert later == [pytest.approx(0.5, abs=1e-3)] * 2


def test_a_task_that_is_always_or_never_passed_is_worth_little():
    values = [expected_variance(1 + passed, 17 - passed) for passed in (0, 8, 16)]
    assert values[1] > 4 * values[0] and values[0] == pytest.approx(values[2])
    assert expected_variance(1, 1) == pytest.approx(1 / 6)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 35), st.floats(0, 1)), max_size=60),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_shares_add_up_and_no_source_falls_below_its_floor(counts, played, explore, floor):
    rows = candidates(*counts)
    settings = SamplingSettings(mode="gradient", explore=explore, floor=floor)
    found = [outcome for number, reward in played for outcome in outcomes(rows[number % len(rows)], reward)]
    drawn = draw(rows, History.empty().updated(1, found, 16), 2, len(rows), 0, settings)
    assert sorted(each.index for each in drawn) == list(range(len(rows)))
    assert sum(each.share for each in drawn) == pytest.approx(1)
    for source in {row.source for row in rows}:
        part = sum(row.source == source for row in rows) / len(rows)
        share = sum(each.share for each in drawn if rows[each.index].source == source)
        assert share >= floor * part * (1 - 1e-6)


def test_seed_step_and_outcomes_decide_whatever_their_order():
    rows = candidates(20, 20)
    found = [outcome for number, row in enumerate(rows) for outcome in outcomes(row, *[float(number % 3 == 0)] * GROUP)]
    shuffled = random.Random(1).sample(found, len(found))
    one, other = (History.empty().updated(1, each, SETTINGS.half_life) for each in (found, shuffled))
    assert one == other == History.from_json(json.loads(json.dumps(one.to_json())))
    assert draw(rows, one, 2, 8, 5, SETTINGS) == draw(rows, other, 2, 8, 5, SETTINGS)
    assert (
        draw(rows, one, 2, 8, 5, SETTINGS) != draw(rows, one, 3, 8, 5, SETTINGS) != draw(rows, one, 3, 8, 6, SETTINGS)
    )


def test_more_draws_than_tasks_are_refused():
    with pytest.raises(ValueError, match="draws 4 tasks, but there are only 3"):
        draw(candidates(3), History.empty(), 1, 4, 0, SETTINGS)


def share_with_spread(settings, seed, steps=40, change_at=None):
    """Share of groups that teach, in the second half, when a fifth of 100 tasks is passed half of the time."""
    rows, rng = candidates(60, 40), random.Random(seed)
    rates = {row.task: rng.choice((0.0, 0.0, 1.0, 1.0, 0.5)) for row in rows}
    history, useful, groups = History.empty(), 0, 0
    for step in range(1, steps + 1):
        if step == change_at:
            rates = {task: 0.5 if rate == 0.0 else 1.0 for task, rate in rates.items()}
        found = []
        for each in draw(rows, history, step, 8, seed, settings):
            task = rows[each.index].task
            rewards = [float(rng.random() < rates[task]) for _ in range(GROUP)]
            found += outcomes(rows[each.index], *rewards)
            if step > steps // 2:
                useful, groups = useful + (len(set(rewards)) > 1), groups + 1
        history = history.updated(step, found, settings.half_life)
    return useful / groups


def test_groups_that_teach_become_more_frequent_also_after_the_policy_has_changed():
    uniform = SamplingSettings(mode="gradient", explore=1.0)
    for seed in range(3):
        assert share_with_spread(SHARP, seed) > 2 * share_with_spread(uniform, seed)
        assert share_with_spread(SHARP, seed, change_at=10) > 1.5 * share_with_spread(uniform, seed, change_at=10)


RECORD = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 1.0, labels=("pass",))
ROWS = [
    {"data_source": "base", "extra_info": {"task_id": f"multi_turn_base_{number}", "turns": -1}} for number in range(10)
]


def test_a_restored_choice_draws_on_as_the_uninterrupted_one_and_says_why():
    choice = PromptChoice(ROWS, SETTINGS, seed=3)
    records = [
        replace(RECORD, task_id=f"multi_turn_base_{task}", score=score) for task in (0, 1) for score in (1.0, 0.0)
    ]
    counts = [Group("a", "a", True), Group("a", "a", True), Group("b", "b", False), Group("b", "b", False)]
    choice.learn(1, records, counts)
    again = PromptChoice(ROWS, SETTINGS, seed=3)
    again.restore(json.loads(json.dumps(choice.state)))
    assert [choice.draw(step, 4) for step in (2, 3)] == [again.draw(step, 4) for step in (2, 3)]
    assert [task for task, *_ in choice.state["tasks"]] == ["multi_turn_base_0"]  # the other group does not count
    line = choice.line(2, choice.draw(2, 10))
    drawn = {each["task_id"]: each for each in line["drawn"]}
    assert drawn["multi_turn_base_0"]["mean"] == 0.5 and drawn["multi_turn_base_0"]["variance"] > 0.2
    assert sum(each["share"] for each in drawn.values()) == pytest.approx(1, abs=1e-3)
