"""C_t: counts, rewards, windows, and independence of order and grouping."""

import cProfile
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.method.profile import Profile, Rollout

LABELS = ["pass", "state_mismatch", "missing_tool_call", "checker_error"]
trajectories = st.builds(
    Rollout,
    category=st.sampled_from(["base", "miss_func"]),
    labels=st.lists(st.sampled_from(LABELS), max_size=4).map(tuple),
    reward=st.floats(0, 1),
)
batches = st.lists(st.tuples(st.integers(1, 9), st.lists(trajectories, max_size=6)), max_size=5)


def profile(batches, window=3):
    result = Profile(window)
    for step, batch in batches:
        result = result.after(step, batch)
    return result


def test_counts_and_means():
    seen = profile(
        [
            (
                1,
                [
                    Rollout("base", ("pass", "pass"), 1.0),
                    Rollout("base", ("pass", "state_mismatch"), 0.0),
                    Rollout("miss_func", ("checker_error", "state_mismatch"), 0.0),
                ],
            )
        ]
    ).recent()
    assert {z: cell.count for z, cell in seen.labels().items()} == {"pass": 3, "state_mismatch": 2}
    assert seen.labels()["pass"].mean == pytest.approx(2 / 3)
    assert {z: cell.count for z, cell in seen.labels("miss_func").items()} == {"state_mismatch": 1}
    assert {c: (cell.count, cell.mean) for c, cell in seen.by_category.items()} == {"base": (2, 0.5)}
    assert [sum(cell.count for cell in seen.labels(name).values()) for name in (None, "base")] == [5, 4]


def test_the_window_forgets():
    one = [Rollout("base", ("pass",), 1.0)]
    seen = profile([(step, one) for step in range(1, 8)], window=3)
    assert seen.recent().labels()["pass"].count == 3
    assert [step for step, _ in seen.steps] == [5, 6, 7]


@given(batches, st.randoms(use_true_random=False))
def test_order_within_and_between_steps_does_not_matter(given_batches, rng):
    shuffled = [(step, rng.sample(batch, len(batch))) for step, batch in given_batches]
    rng.shuffle(shuffled)
    assert profile(shuffled).to_json() == profile(given_batches).to_json()


@given(batches)
def test_json_round_trip_is_exact(given_batches):
    seen = profile(given_batches)
    text = json.dumps(seen.to_json())
    assert json.dumps(Profile.from_json(json.loads(text)).to_json()) == text
    assert Profile.from_json(json.loads(text)) == seen


def test_a_value_is_never_changed():
    before = Profile(2)
    before.after(1, [Rollout("base", ("pass",), 1.0)])
    assert before == Profile(2)


def test_bad_input_is_named():
    with pytest.raises(KeyError, match="steps"):
        Profile.from_json({"window": 1})


def calls(act) -> int:
    """Return the number of function calls that `act` makes: the cost of a step, on any machine."""
    counted = cProfile.Profile()
    counted.runcall(act)
    return sum(entry.callcount for entry in counted.getstats())


def test_a_late_step_costs_what_an_early_one_does():
    rng = random.Random(0)
    seen, costs = Profile(5), {}
    for step in range(1, 61):
        batch = [Rollout("base", tuple(rng.choices(LABELS, k=4)), rng.choice([0.0, 1.0])) for _ in range(64)]
        costs[step] = calls(lambda seen=seen, step=step, batch=batch: seen.after(step, batch).recent())
        seen = seen.after(step, batch)
    assert costs[60] < 1.5 * costs[20]
