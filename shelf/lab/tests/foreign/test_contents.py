"""Results in a file whose parts are not all text."""

import pytest

from shelf.lab.foreign.chat import ChatMessage, dialogue_of

READ = {"type": "resource", "resource": {"uri": "file:///a", "text": "LANTERN"}}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": [{"type": "text", "text": "read"}, READ]}, "read\nLANTERN"),
        ({"content": [], "structuredContent": {"rows": 3}}, '{"rows": 3}'),
        ({"structured_content": {"rows": 3}}, '{"rows": 3}'),
        ({"content": [{"type": "refusal", "refusal": "No."}, {"type": "thinking", "thinking": "Hm."}]}, "No."),
    ],
)
def test_a_result_is_the_text_of_all_its_parts(message, text):
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", **message},
    ]
    found = dialogue_of([ChatMessage.model_validate(each) for each in said])
    assert found.turns[0].actions[0].results == [text] and found.unread == ()


def test_data_is_unread_and_two_pictures_differ():
    parts = [{"type": "image", "data": data} for data in ("QUJD", "REVG")]
    one, other = (ChatMessage(role="tool", content=[part]).text for part in parts)
    assert one != other
    found = dialogue_of([ChatMessage(role="user", content=parts), ChatMessage(role="assistant", content="Done.")])
    assert found.unread == ("image", "image")
