"""What a text of the policy's shows of a call."""

import pytest

from seal.rollout.harness.evidence import holds


@pytest.mark.parametrize(
    ("text", "name", "arguments", "held"),
    [
        ("print(ls())", "ls", {}, True),
        ('{"name": "mcp__files__ls"}', "ls", {}, True),
        ("That is false.", "ls", {}, False),
        ("mv(source='a.txt', destination='b')", "mv", {"source": "a.txt", "destination": "b"}, True),
        ("mv(source='a.txt')", "mv", {"source": "a.txt", "destination": "b"}, False),
        ("set_x(a=5)", "set_x", {"a": 5}, True),
        ("set_x(a=5.0)", "set_x", {"a": 5}, True),
        ("set_x(a=15)", "set_x", {"a": 5}, False),
        ("set_x(a=0.1)", "set_x", {"a": 1}, False),
        ("set_x(a=-5)", "set_x", {"a": 5}, False),
        ("Action: get_status\nAction Input: {}", "get_status", {}, True),
        ("I cannot use get_status today.", "get_status", {}, False),
    ],
)
def test_a_text_holds_a_call_whose_tool_and_values_it_names(text, name, arguments, held):
    assert holds(text, name, arguments) is held
