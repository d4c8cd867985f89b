"""The laws of the token stream, checked on damaged and on real trajectories."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError

from seal.rollout.budgets import Budgets
from seal.rollout.dialogue import Dialogue
from seal.rollout.stream import TokenStream, on_token_path
from seal.rollout.token_path import Sampled, TokenPathError, check
from tests.support.rollout_play import ScriptedEngine, agent_loop, configured, tokenizer

TOKENS = st.integers(0, 50)
LOGPROBS = st.floats(-20, -1e-6)
MESSAGE = st.lists(st.tuples(TOKENS, LOGPROBS), min_size=1, max_size=6).map(
    lambda pairs: Sampled(tuple(i for i, _ in pairs), tuple(p for _, p in pairs))
)
CONTEXT = st.lists(TOKENS, max_size=5)
DIALOGUES = st.lists(st.tuples(MESSAGE, CONTEXT), min_size=1, max_size=5)


def stream(dialogue):
    """The arguments of `check` for messages that are each followed by context."""
    response, mask, logprobs, spans = [], [], [], []
    for message, context in dialogue:
        spans.append((len(response), len(response) + len(message.ids)))
        response += [*message.ids, *context]
        mask += [1] * len(message.ids) + [0] * len(context)
        logprobs += [*message.logprobs, *([0.0] * len(context))]
    return response, mask, logprobs, spans, [message for message, _ in dialogue]


def test_a_dialogue_that_a_chat_template_refuses_is_one_of_the_token_path():
    async def refusing():
        raise TemplateError("System message must be at the beginning.")

    with pytest.raises(TokenPathError, match="refused the dialogue: System message must be at the beginning"):
        asyncio.run(on_token_path(refusing()))


@given(DIALOGUES)
def test_a_stream_of_sampled_messages_and_context_passes(dialogue):
    check(*stream(dialogue))


@given(DIALOGUES, st.data())
def test_any_single_change_is_found(dialogue, data):
    response, mask, logprobs, spans, sampled = stream(dialogue)
    place = data.draw(st.integers(0, len(response) - 1))
    inside = bool(mask[place])
    change = data.draw(st.sampled_from(["mask", "logprob", "lost", "added"] + ["token"] * inside))
    if change == "mask":
        mask[place] = 1 - mask[place]
    elif change == "logprob":
        logprobs[place] -= 1.0
    elif change == "token":
        response[place] += 1
    elif change == "lost":
        number = data.draw(st.integers(0, len(spans) - 1))
        del spans[number]
    else:
        sampled.insert(data.draw(st.integers(0, len(sampled))), Sampled((1,), (-1.0,)))
    with pytest.raises(TokenPathError):
        check(response, mask, logprobs, spans, sampled)


@given(DIALOGUES, st.data())
def test_streams_of_different_length_are_refused(dialogue, data):
    parts = list(stream(dialogue))
    part = data.draw(st.integers(0, 2))
    parts[part] = parts[part][:-1]
    with pytest.raises(TokenPathError):
        check(*parts)


@given(DIALOGUES)
def test_messages_in_another_order_are_refused(dialogue):
    response, mask, logprobs, spans, sampled = stream(dialogue)
    if sampled == sampled[::-1]:
        sampled = [replace(sampled[0], ids=(*sampled[0].ids[:-1], sampled[0].ids[-1] + 1)), *sampled[1:]]
    with pytest.raises(TokenPathError):
        check(response, mask, logprobs, spans, sampled[::-1])


@pytest.mark.parametrize("logprobs", [(), (-1.0,), (-1.0, float("nan"))])
def test_the_engine_must_give_a_number_for_each_token(logprobs):
    with pytest.raises(TokenPathError):
        Sampled((1, 2), logprobs)


TURNS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40), st.booleans()), min_size=1, max_size=6)
BUDGETS = st.builds(
    Budgets,
    message=st.integers(1, 40),
    validation_message=st.integers(1, 40),
    response=st.integers(20, 150),
    model=st.integers(20, 200),
    actor=st.integers(20, 200),
    max_steps=st.just(9),
)


@given(TURNS, BUDGETS, st.booleans())
def test_a_stream_keeps_every_sampled_token_once_and_never_exceeds_a_budget(turns, budgets, trains):
    async def grown() -> TokenStream:
        stream = TokenStream(agent_loop(configured(["http://127.0.0.1:1"]), ScriptedEngine(())), budgets, trains)
        dialogue, eos = Dialogue(messages=[{"role": "system", "content": "s"}]), tokenizer().eos_token_id
        for number, (words, tokens, ends) in enumerate(turns):
            dialogue.messages = [*dialogue.messages, {"role": "user", "content": " sort" * words}]
            if (room := await stream.hear(dialogue)) < 1:
                break
            ids = [100 + number] * min(tokens, room)
            ids = [*ids[:-1], eos] if ends else ids
            if not ends:
                dialogue.truncated.append(number)
            await stream.append(number, Sampled(tuple(ids), (-1.0,) * len(ids)))
            said = stream.decoded(ids[:-1] if ends else ids)
            dialogue.messages = [*dialogue.messages, {"role": "assistant", "content": said}]
        return stream

    stream = asyncio.run(grown())
    stream.check()
    kept = [token for token, own in zip(stream.response, stream.mask, strict=True) if own]
    assert kept == [token for message in stream.sampled for token in message.ids]
    assert len(stream.ids) <= budgets.model
    if trains:
        assert len(stream.ids) <= budgets.actor and len(stream.response) <= budgets.response


def test_a_message_that_is_longer_than_its_room_is_refused():
    async def grown() -> None:
        budgets = Budgets(message=3, validation_message=3, response=99, model=99, actor=99, max_steps=9)
        stream = TokenStream(agent_loop(configured(["http://127.0.0.1:1"]), ScriptedEngine(())), budgets, True)
        assert await stream.hear(Dialogue(messages=[{"role": "user", "content": "u"}])) == 3
        await stream.append(0, Sampled((1,) * 4, (-1.0,) * 4))

    with pytest.raises(TokenPathError, match="4 tokens for a message of at most 3"):
        asyncio.run(grown())
