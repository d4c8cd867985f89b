"""The splits are the documented ones, and the released list is regenerated exactly."""

import pytest

from env_service.environments.bfcl.splits import EVAL_SCENARIOS, TRAIN_SCENARIOS, side_of, task_ids
from seal.records.benchmark import CATEGORIES, parse_task_id
from shelf.operate.data import siblings_in_train


def test_scenarios_are_divided_in_halves_that_cover_all():
    assert len(TRAIN_SCENARIOS) == len(EVAL_SCENARIOS) == 100
    assert sorted(TRAIN_SCENARIOS + EVAL_SCENARIOS) == list(range(200))


def test_the_default_split_leaks_nothing():
    sides = task_ids()
    assert len(sides["train"]) == len(sides["eval"]) == 400
    assert siblings_in_train(sides["train"], sides["eval"]) == ()
    assert {side_of(task) for task in sides["train"]} == {"train"}
    assert sides["train"][:3] == ("multi_turn_base_0", "multi_turn_base_2", "multi_turn_base_3")


def test_the_released_list_is_regenerated_in_its_order():
    sides = task_ids("released_ids")
    assert sides["train"][:5] == tuple(f"multi_turn_base_{number}" for number in (74, 77, 45, 191, 107))
    assert [len({t for t in sides["eval"] if parse_task_id(t)[0] == category}) for category in CATEGORIES] == [100] * 4
    assert len(set(sides["train"]) & set(task_ids()["train"])) == 206
    assert len(siblings_in_train(sides["train"], sides["eval"])) == 344


@pytest.mark.parametrize(
    "wrong", ["multi_turn_base_200", "multi_turn_base_-1", "simple_3", "multi_turn_composite_1", ""]
)
def test_other_ids_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match="not a multi-turn task id"):
        parse_task_id(wrong)


def test_an_unknown_split_names_the_known_ones():
    with pytest.raises(ValueError, match="scenario, released_ids"):
        task_ids("random")
