"""Dialogues as text: chat templates decoded without their special tokens, as verl dumps them."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from env_service.environments.kit.calls import blocks
from shelf.lab.foreign.chat import RESPONSES, ChatMessage

_CHATML = re.compile(r"(?:(?<![ \w])|(?=user\n<tool_response>))(system|user|assistant|tool|ipython)\n")
"""The head of a message: at the start of a line, or directly after a message that ends without a line break."""
_LLAMA = re.compile(r"(system|user|assistant|tool|ipython)\n\n")
_GEMMA = re.compile(r"(?<![ \w])(user|model)\n")
_POLICY = ("assistant", "model")
_HEADS = re.compile(r"(?i)<[|\uff5c](?:header_start|start_(?:header|of_)|\w*user|observation|start\|>(?!a))|\[INST\]")
"""Heads of other speakers in the templates of Llama, Cohere, Granite, Kimi, DeepSeek, Phi, GLM, gpt-oss and Mistral."""
_OTHER = "where its messages begin is not certain, for its chat template is not ChatML's: write messages, not texts"


def dialogues(
    prompt: str | list[ChatMessage], completion: str | list[ChatMessage], dumped: bool
) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The messages of a prompt and of its completion, either of which may be a text.

    dumped: a training framework wrote the texts, so that a prompt has heads. ValueError if the template of a text has
    heads that cannot be distinguished from what the messages say.
    """
    head = _CHATML
    if isinstance(completion, str) and _HEADS.search(completion):
        raise ValueError(_OTHER)
    if isinstance(prompt, str):
        head = _head(prompt)
        before, said = _split(prompt, head)
        if not said and isinstance(completion, str) and (dumped or _split(completion, head)[1]):
            raise ValueError(_OTHER)
        said = [("user", before)] * bool(before.strip() or not said) + said
        if len(said) > 1 and said[-1][0] in _POLICY:
            said.pop()  # this head opens the completion
        prompt = [ChatMessage(role=role, content=text.strip()) for role, text in said]
    if isinstance(completion, str):
        before, said = _split(completion, head)
        said = [("assistant", before)] * bool(before or not said) + said
        if not _plausible(said) or (head is _LLAMA and re.search(r"[ \w](?:" + _LLAMA.pattern + ")", completion)):
            raise ValueError(_OTHER)
        completion = [ChatMessage(role=role, content=text.strip()) for role, text in said]
    return prompt, completion


def _head(prompt: str) -> re.Pattern[str]:
    """The heads of a template, by the last one of its prompt, which opens the completion."""
    if prompt.endswith("model\n") and _GEMMA.search(prompt):
        return _GEMMA
    *_, last = [None, *_CHATML.finditer(prompt)]
    return _LLAMA if last and prompt.startswith("\n", last.end()) and _LLAMA.match(prompt) else _CHATML


def _split(text: str, head: re.Pattern[str]) -> tuple[str, list[tuple[str, str]]]:
    """What precedes the first head, and role and text of each message; heads inside tagged results do not count."""
    text = re.sub(r"<\|im_(?:start|end)\|>|<(?:start|end)_of_turn>|<bos>", "", text)
    results = list(_results(text))
    found = [each for each in head.finditer(text) if not any(start < each.start() < end for start, end in results)]
    ends = [*(each.start() for each in found[1:]), len(text)]
    said = [(each[1], text[each.end() : end]) for each, end in zip(found, ends, strict=False)]
    return text[: found[0].start()] if found else text, said


def _results(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (start := text.find(RESPONSES[0], at)) >= 0 and (at := text.find(RESPONSES[1], start)) >= 0:
        yield start, at


def _plausible(said: list[tuple[str, str]]) -> bool:
    """True if a template may have written this completion: the policy's messages get answers that are not empty."""
    turns = not any(one in _POLICY and other in _POLICY for (one, _), (other, _) in pairwise(said))
    return turns and all(role != "system" and (role in _POLICY or text.strip()) for role, text in said)


def tools_in(text: str) -> list[Any]:
    """The tool documents that Qwen's template writes into the system text, one per line."""
    found = []
    for line in (line for block in blocks(text, "<tools>", "</tools>")[0] for line in block.splitlines()):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return found
