"""C_t: counts, rewards, windows, and independence of order and grouping."""

import cProfile
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.diagnosis.profile import Profile, Trajectory

LABELS = ["pass", "state_mismatch", "missing_tool_call", "checker_error"]
trajectories = st.builds(
    Trajectory,
    task_id=st.sampled_from(["a", "b"]),
    category=st.sampled_from(["base", "miss_func"]),
    labels=st.lists(st.sampled_from(LABELS), max_size=4).map(tuple),
    reward=st.floats(0, 1),
    weight=st.sampled_from([1.0, 4.0, 6 / 7, 1 / 0.3]),
)
batches = st.lists(st.tuples(st.integers(1, 9), st.lists(trajectories, max_size=6)), max_size=5)


def profile(batches, window=3):
    result = Profile.empty(window)
    for step, batch in batches:
        result = result.updated(step, batch)
    return result


def test_counts_shares_and_means():
    seen = profile(
        [
            (
                1,
                [
                    Trajectory("a", "base", ("pass", "pass"), 1.0),
                    Trajectory("b", "base", ("pass", "state_mismatch"), 0.0),
                    Trajectory("b", "miss_func", ("checker_error", "state_mismatch"), 0.0),
                ],
            )
        ]
    ).recent()
    assert {z: cell.count for z, cell in seen.labels().items()} == {"pass": 3, "state_mismatch": 2}
    assert seen.shares() == {"pass": 0.6, "state_mismatch": 0.4}
    assert seen.labels()["pass"].mean == pytest.approx(2 / 3)
    assert seen.labels()["pass"].successes == 2
    assert {z: cell.count for z, cell in seen.labels("miss_func").items()} == {"state_mismatch": 1}
    assert {z: c.count for z, c in seen.positions()[1].items()} == {"pass": 1, "state_mismatch": 2}
    assert {c: (cell.count, cell.reward) for c, cell in seen.categories().items()} == {"base": (2, 1.0)}
    assert {t: cell.mean for t, cell in seen.tasks().items()} == {"a": 1.0, "b": 0.0}
    assert seen.excluded()["checker_error"].count == 1
    assert seen.turns() == 5 and seen.turns("base") == 4


def test_a_trajectory_counts_by_its_weight_and_whole_weights_are_whole_in_json():
    seen = [
        Trajectory("a", "base", ("pass", "pass"), 1.0, 4.0),
        Trajectory("b", "base", ("state_mismatch",), 0.5),
        Trajectory("b", "base", ("state_mismatch",), 0.0, 6 / 7),
    ]
    whole, part = profile([(1, seen[:2])]).recent(), profile([(1, seen)])
    assert whole.to_json()["label"] == {"pass": [8, 8, 8_000_000], "state_mismatch": [1, 0, 500_000]}
    assert all(isinstance(figure, int) for cell in whole.to_json()["label"].values() for figure in cell)
    cell = part.recent().labels()["state_mismatch"]
    assert cell.count == pytest.approx(1 + 6 / 7, abs=1e-3) and cell.mean == pytest.approx(0.5 / (1 + 6 / 7), abs=1e-3)
    assert part.recent().labels()["pass"].mean == 1
    assert Profile.from_json(json.loads(json.dumps(part.to_json()))) == part


def test_the_window_forgets_and_the_totals_do_not():
    one = [Trajectory("a", "base", ("pass",), 1.0)]
    seen = profile([(step, one) for step in range(1, 8)], window=3)
    assert seen.recent().labels()["pass"].count == 3
    assert seen.total().labels()["pass"].count == 7
    assert [step for step, _ in seen.steps] == [5, 6, 7]


@given(batches, st.randoms(use_true_random=False))
def test_order_within_and_between_steps_does_not_matter(given_batches, rng):
    shuffled = [(step, rng.sample(batch, len(batch))) for step, batch in given_batches]
    rng.shuffle(shuffled)
    assert profile(shuffled).to_json() == profile(given_batches).to_json()


@given(batches, batches, batches)
def test_merging_is_associative_commutative_and_the_same_as_counting(a, b, c):
    x, y, z = profile(a), profile(b), profile(c)
    assert x.merge(y).merge(z).to_json() == x.merge(y.merge(z)).to_json() == profile(a + b + c).to_json()
    assert x.merge(y).to_json() == y.merge(x).to_json()


@given(batches)
def test_json_round_trip_is_exact(given_batches):
    seen = profile(given_batches)
    text = json.dumps(seen.to_json())
    assert json.dumps(Profile.from_json(json.loads(text)).to_json()) == text
    assert Profile.from_json(json.loads(text)) == seen


def test_a_value_is_never_changed():
    before = Profile.empty(2)
    before.updated(1, [Trajectory("a", "base", ("pass",), 1.0)])
    assert before == Profile.empty(2)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="at least one step"):
        Profile.empty(0)
    with pytest.raises(ValueError, match="windows of 2 and 3"):
        Profile.empty(2).merge(Profile.empty(3))
    with pytest.raises(ValueError, match="'total' is missing"):
        Profile.from_json({"window": 1, "steps": []})
    with pytest.raises(ValueError, match="unknown dimension 'colour'"):
        Profile.from_json({"window": 1, "steps": [], "total": {"colour": {}}})


def calls(act) -> int:
    """How many functions are called meanwhile: what a step costs, on any machine."""
    counted = cProfile.Profile()
    counted.runcall(act)
    return sum(entry.callcount for entry in counted.getstats())


def test_a_late_step_costs_what_an_early_one_does():
    rng = random.Random(0)
    seen, costs = Profile.empty(5), {}
    for step in range(1, 61):
        batch = [
            Trajectory(f"t{rng.randrange(40)}", "base", tuple(rng.choices(LABELS, k=4)), rng.choice([0.0, 1.0]))
            for _ in range(64)
        ]
        costs[step] = calls(lambda seen=seen, step=step, batch=batch: seen.updated(step, batch).recent())
        seen = seen.updated(step, batch)
    assert costs[60] < 1.5 * costs[20]
