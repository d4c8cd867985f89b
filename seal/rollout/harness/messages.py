"""Messages between a harness and the policy: the one form that each dialect is translated to and from.

A harness sends the whole history with every request. What the policy said in it is recognised by its meaning, because
SDKs rewrite the form; the tokens stay those that were sampled.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

from env_service.environments.base import Call
from env_service.environments.kit.formats import Format
from seal.system.text import without_thoughts as after_thoughts

MODEL = "policy"
"""The name of the policy at the gateway."""

_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""One object for each, because a NaN equals only itself."""


class ChatMessage(NamedTuple):
    """One message of a request; calls: name and arguments, so that 57 and 57.0 are the same."""

    role: str
    text: str
    calls: tuple[tuple[str, Any], ...] = ()


class Item(NamedTuple):
    """A message as a dialect sends it. ids: of its calls. answers: the id of the call whose answer it is."""

    message: ChatMessage
    ids: tuple[Any, ...] = ()
    answers: Any = None


class Request(NamedTuple):
    """The parts of a request that count.

    tools: their documents by name. most: the tokens that the answer may have, None for the recipe's limit. logprobs:
    the answer's tokens are wanted as text.
    """

    messages: tuple[ChatMessage, ...]
    tools: Mapping[str, Mapping[str, Any]]
    most: int | None = None
    logprobs: bool = False


class Answer(NamedTuple):
    """A message of the policy, for a dialect to write.

    heard: as later requests repeat it. text: what the harness reads beside its calls, thoughts included if there are
    none. cut: by a limit. prompt: the number of tokens before it. tokens: its own, text (or id) and log-prob of each.
    """

    heard: ChatMessage
    text: str
    calls: Sequence[Call]
    cut: bool
    prompt: int
    tokens: Sequence[tuple[str | int, float]]


def meaning(name: str, arguments: Any) -> tuple[str, Any]:
    """A call; ValueError if it holds half of a surrogate pair, which no tokenizer can encode."""
    text = json.dumps([name, arguments], ensure_ascii=False)
    text.encode()
    return tuple(json.loads(text, parse_constant=_CONSTANTS.get))


def _whole(items: Iterable[Item]) -> list[Item]:
    """Each message of the policy in one piece: some SDKs send its text and its calls apart, either of them first."""
    found: list[Item] = []
    for item in items:
        (role, text, calls), ids, _ = item
        (last, before, earlier), known, _ = found[-1] if found else Item(ChatMessage("", ""))
        if role == last == "assistant" and (ids or known) and not (text and before):
            found[-1] = Item(ChatMessage(role, before + text, earlier + calls), known + ids)
        else:
            found.append(item)
    return found


def in_order(items: Iterable[Item]) -> tuple[ChatMessage, ...]:
    """The messages, tool answers in the order of their calls: in the formats only the order pairs them with calls."""
    found: list[ChatMessage] = []
    ids: tuple[Any, ...] = ()
    for role, group in groupby(_whole(items), key=lambda item: item.message.role):
        run = list(group)
        if role == "tool":
            run.sort(key=lambda each: ids.index(each.answers) if each.answers in ids else len(ids))
        ids = run[-1].ids or ids
        found += (item.message for item in run)
    return tuple(found)


def without_thoughts(text: str) -> str:
    """What an assistant's message says after its thoughts, which SDKs drop or write anew."""
    return after_thoughts(text).strip()


def rendered(messages: Sequence[ChatMessage], form: Format) -> Iterator[dict[str, str]]:
    """The messages in a format: each run of tool answers as one message, and calls within the assistant's text."""
    for role, group in groupby(messages, key=lambda message: message.role):
        if role == "tool":
            yield from form.results([message.text for message in group])
            continue
        for message in group:
            text = form.message(message.text, message.calls) if message.calls else message.text
            yield {"role": role, "content": text}


def rendered_start(
    messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]], form: Format, cues: str
) -> list[dict[str, str]]:
    """The first messages of a dialogue: with tools, these are in the system text, and after them the cues."""
    if not tools:
        return list(rendered(messages, form))
    heads, rest = (messages[:1], messages[1:]) if messages[0].role == "system" else ((), messages)
    system = form.system(tools, "".join(head.text for head in heads)) + cues
    return [{"role": "system", "content": system}, *rendered(rest, form)]


def read(sampled: str, form: Format | None, tools: Collection[str]) -> tuple[ChatMessage, Sequence[Call]]:
    """A message of the policy as later requests repeat it, and its calls.

    One that cannot be read, or that calls an unknown tool, becomes text: SDKs raise for a tool that they do not know.
    """
    parsed = form.parse(sampled) if form is not None else None
    if parsed is not None and parsed.calls and not parsed.refusals and all(name in tools for name, _ in parsed.calls):
        with suppress(ValueError):
            calls = tuple(meaning(*call) for call in parsed.calls)
            return ChatMessage("assistant", parsed.text.strip(), calls), parsed.calls
    return ChatMessage("assistant", without_thoughts(sampled)), ()
