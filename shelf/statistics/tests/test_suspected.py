"""Each suspected item fails a policy that does what it was asked, on the verifier itself."""

import json

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.tools import parse_reference
from shelf.statistics.summary import DEFAULT_PATH, load_suspected
from shelf.testbed.synthesis.verify import passes

ITEMS = json.loads(DEFAULT_PATH.read_text())["items"]


def replaced(value, old, new):
    if isinstance(value, list):
        return [replaced(each, old, new) for each in value]
    return new if value == old else value


@pytest.mark.parametrize("item", [item for item in ITEMS if "wanted" in item], ids=lambda item: item["task_id"])
def test_what_was_shown_fails_and_what_is_wanted_passes(item):
    task = load_tasks()[item["task_id"]]
    wanted = [[parse_reference(call) for call in turn] for turn in task.reference]
    shown = [
        [
            (name, {key: replaced(value, item["wanted"], item["shown"]) for key, value in arguments.items()})
            for name, arguments in turn
        ]
        for turn in wanted
    ]
    assert [turn for turn in range(len(wanted)) if shown[turn] != wanted[turn]] == [item["turn"]]
    assert passes(task, wanted)
    assert not passes(task, shown)


def test_the_unsolvable_item_needs_a_withheld_tool_before_it_is_revealed():
    task = load_tasks()["multi_turn_miss_func_49"]
    ((reveal, tools),) = task.withheld.items()
    used = {parse_reference(call)[0] for turn in task.reference[:reveal] for call in turn}
    assert used & set(tools)


def test_every_item_has_a_reason_and_a_reported_one_a_link():
    items = load_suspected()
    assert "multi_turn_miss_func_49" in {item.task_id for item in items}
    assert len({item.task_id for item in items}) == len(items)
    assert all(item.reason for item in items)
    reported = {item["task_id"] for item in ITEMS if item["origin"] == "reported"}
    assert reported <= {item.task_id for item in items if item.link and item.link.startswith("https://")}
