"""What an endpoint answers becomes a reply, a retry, or one sentence."""

import json

import pytest

from seal.evaluation.endpoint import EndpointFault, EndpointRefused, _reply


def answer(finish="stop", **message):
    return json.dumps({"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}]})


def test_a_completion_is_read():
    reply = _reply(answer(content="hello"), "u")
    assert (reply.text, reply.truncated, reply.tokens) == ("hello", False, 0)
    assert _reply(answer("length", content="hel"), "u").truncated
    assert _reply(answer(content=None), "u").text == ""


def test_half_a_surrogate_pair_can_be_logged():
    text = _reply('{"choices":[{"message":{"content":"a\\ud83d"},"finish_reason":"stop"}]}', "u").text
    assert text.encode("utf-8") == b"a?"


def test_an_endpoint_that_parses_tool_calls_is_refused():
    with pytest.raises(EndpointRefused, match="without a tool-call parser"):
        _reply(answer(content=None, tool_calls=[{"id": "1"}]), "u")


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"choices": []}', '{"choices": [{"message": 3}]}'])
def test_anything_else_is_a_fault_of_the_endpoint(text):
    with pytest.raises(EndpointFault, match="no chat completion"):
        _reply(text, "u")
