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


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "text": None, "image_url": {"url": "data:x"}},
        {"image": {"format": "png", "source": {"bytes": "QUJD"}}},
        {"text": None, "inlineData": {"mimeType": "image/png", "data": "QUJD"}},
        {"block_type": "image", "image": "QUJD"},
    ],
    ids=["padded", "Bedrock", "Gemini", "LlamaIndex"],
)
def test_a_picture_is_unread_however_it_is_named(part):
    found = dialogue_of([ChatMessage(role="user", content=[part]), ChatMessage(role="assistant", content="Done.")])
    assert len(found.unread) == 1 and "QUJD" not in found.turns[0].user


def test_calls_of_a_user_and_a_kind_that_is_named_by_its_key_are_unread():
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    code = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"text": "Done."},
        {"cachePoint": {"type": "default"}},
    ]
    said = [{"role": "user", "content": "x", "tool_calls": [call]}, {"role": "assistant", "content": code}]
    found = dialogue_of([ChatMessage.model_validate(each) for each in said])
    assert found.unread == ("calls of the user", "executableCode")


def test_of_a_result_only_its_pictures_are_unread():
    parts = [{"type": "image", "source": {"data": "x"}}, {"type": "order", "id": 7}]
    results = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": parts}]},
        {"role": "tool", "tool_call_id": "a", "content": parts},
    ]
    for result in results:
        use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
        found = dialogue_of([ChatMessage.model_validate(each) for each in (use, result)])
        assert found.unread == ("image",) and '{"id": 7, "type": "order"}' in found.turns[0].actions[0].results[0]


@pytest.mark.parametrize("anthropic", [False, True], ids=["openai", "anthropic"])
def test_a_number_pairs_a_result_with_its_call(anthropic):
    """The results stand in the other order than their calls."""
    if anthropic:
        calls = [{"type": "tool_use", "id": number, "name": "f", "input": {"n": number}} for number in (7, 8)]
        results = [{"type": "tool_result", "tool_use_id": number, "content": f"of {number}"} for number in (8, 7)]
        said = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    else:
        calls = [{"id": number, "function": {"name": "f", "arguments": f'{{"n": {number}}}'}} for number in (7, 8)]
        results = [{"role": "tool", "tool_call_id": number, "content": f"of {number}"} for number in (8, 7)]
        said = [{"role": "assistant", "tool_calls": calls}, *results]
    found = dialogue_of([ChatMessage.model_validate(each) for each in ({"role": "user", "content": "x"}, *said)])
    assert found.turns[0].actions[0].results == ["of 7", "of 8"]
