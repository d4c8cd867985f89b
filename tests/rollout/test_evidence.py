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
    ],
)
def test_a_text_holds_a_call_whose_tool_and_values_it_names(text, name, arguments, held):
    assert holds(text, name, arguments) is held
