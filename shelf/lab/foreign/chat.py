"""Chats: messages of OpenAI's API, Anthropic's API and the Responses API, as turns of actions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, model_validator

from env_service.environments.kit.calls import blocks
from env_service.environments.kit.contents import contents_text, is_data
from shelf.error_marks import marks_failure
from shelf.lab.foreign.normal import TOOL_ROLES, message_of
from shelf.lab.foreign.rollout import Action, Call, Turn

RESPONSES = ("<tool_response>", "</tool_response>")
"""The tags around a result in a user message of Qwen's template."""
REMINDERS = ("<system-reminder>", "</system-reminder>")
"""The tags around what a harness, not the user, says beside the results of calls."""
INSTRUCTS = ("system", "developer")
ITEM_CALLS = ("function_call", "custom_tool_call", "mcp_call")
ITEM_OUTPUTS = ("function_call_output", "custom_tool_call_output")
READ = ("text", "refusal", "tool_use", "tool_result", "resource", "resource_link", "json")
THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "mcp_list_tools", "cachePoint")
"""Types of parts and items that a dialogue does not show."""
_SILENT = ("text", "refusal", "tool_use", "tool_result", *THOUGHTS)
"""Types of parts that say nothing besides their text."""


class ChatMessage(BaseModel):
    """A message of a chat. name: a result's tool. error: true for the result of a call that failed.
    given: the policy did not write it. cut: a limit on its length ended it."""

    role: str
    content: Any = None
    calls: list[Call] = Field([], validation_alias="tool_calls")
    name: Any = None
    tool_call_id: str | None = None
    error: Any = None
    structured: Any = Field(None, validation_alias=AliasChoices("structuredContent", "structured_content"))
    given: bool = False
    cut: bool = False

    @model_validator(mode="before")
    @classmethod
    def _normal(cls, value: Any) -> Any:
        return message_of(value)

    @property
    def text(self) -> str:
        """The text of the message; for the result of a failed call, a text that says so."""
        text = text_of(self.content, self.structured)
        return json.dumps({"error": text, "isError": True}) if self.error and not marks_failure(text) else text


@dataclass
class Dialogue:
    """A chat as turns. system: its system texts and what precedes the policy's turns. unread: kinds of unread parts."""

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    unread: tuple[str, ...] = ()


def as_given(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages, marked as not written by the policy."""
    return [message.model_copy(update={"given": True}) for message in messages]


def messages_of_items(items: Iterable[Mapping[str, Any]]) -> tuple[list[ChatMessage], tuple[str, ...]]:
    """Items of the Responses API as messages, and the types not read; consecutive calls become one message."""
    kinds = [(str(item.get("type") or "message"), item) for item in items]  # a table holds null for no type
    readable = ("message", *ITEM_CALLS, *ITEM_OUTPUTS)
    messages: list[ChatMessage] = []
    known = (pair for pair in kinds if pair[0] in readable)
    for calls, group in groupby(known, lambda pair: pair[0] in ITEM_CALLS):
        pairs = list(group)
        if calls:
            messages.append(ChatMessage(role="assistant", tool_calls=[item for _, item in pairs]))
            for _, item in pairs:
                result, error = item.get("output"), item.get("error")
                if (result, error) != (None, None):  # an mcp_call contains its result
                    answer = {"content": error or result, "error": error, "tool_call_id": item.get("id")}
                    messages.append(ChatMessage(role="tool", **answer))
        for kind, item in () if calls else pairs:
            answers = {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
            messages.append(ChatMessage.model_validate({"role": "", **item} if kind == "message" else answers))
    if kinds and all(kind in THOUGHTS for kind, _ in kinds):
        messages.append(ChatMessage(role="assistant", content=""))
    return messages, tuple(kind for kind, _ in kinds if kind not in (*readable, *THOUGHTS))


def text_of(content: Any, structured: Any = None) -> str:
    """The text of a message's content, whose parts may be objects, and of a result's structured content."""
    if isinstance(content, list) or structured is not None:
        parts = content if isinstance(content, list) else [content] if content else []
        said = [part for part in parts if _kind(part) not in _SILENT or part.get("text") or part.get("refusal")]
        return contents_text(said, structured)
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _kind(part: Any) -> str:
    """The kind of a part, by the end of its type: "tool_use" also for `mcp_tool_use`; "" without a type."""
    kind = str(part.get("type") or "") if isinstance(part, Mapping) else ""
    return next((end for end in ("tool_use", "tool_result") if kind.endswith(end)), kind)


def _split(message: ChatMessage) -> Iterator[ChatMessage]:
    """A message whose parts are calls (Anthropic's `tool_use`) or results, split into one message per result."""
    parts = message.content if isinstance(message.content, list) else ()
    if not {_kind(part) for part in parts} & {"tool_use", "tool_result"}:
        yield message
        return
    calls = [Call.model_validate(part) for part in parts if _kind(part) == "tool_use"]
    results = [ChatMessage.model_validate({**part, "role": "tool"}) for part in parts if _kind(part) == "tool_result"]
    rest = [part for part in parts if _kind(part) not in ("tool_use", "tool_result")]
    said = message.model_copy(update={"content": rest, "calls": [*message.calls, *calls]})
    acts = message.role == "assistant"
    yield from ([said] if acts else results)
    yield from (results if acts else [said] if text_of(rest) else ())


def dialogue_of(messages: Sequence[ChatMessage], cut: bool = False) -> Dialogue:
    """A chat as turns; a result goes to its call by id, else to the next one.

    Messages that others wrote before the policy's first one (examples, history) become part of the system text. cut: a
    budget ended it, maybe before the policy's first message. ValueError without a message of the policy.
    """
    every = [part for message in messages for part in _split(message)]
    before, rest = _opening(every)
    turns = _turns(message for message in rest if message.role not in INSTRUCTS)
    if cut and turns and not any(turn.actions for turn in turns):
        turns[-1].actions.append(Action(""))
    if not any(turn.actions for turn in turns):
        raise ValueError("has no message of the policy")
    system = [message.text if message.role in INSTRUCTS else _quoted(message) for message in before]
    system += [message.text for message in rest if message.role in INSTRUCTS]
    return Dialogue("\n\n".join(system), turns, tuple(kind for message in messages for kind in _unread(message)))


def _opening(messages: list[ChatMessage]) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The messages up to the last answer by another before the policy's first message, and the messages after that."""
    own = (at for at, message in enumerate(messages) if message.role == "assistant" and not message.given)
    first = next(own, len(messages))
    answers = ("assistant", *TOOL_ROLES)
    start = max((at + 1 for at in range(first) if messages[at].role in answers), default=0)
    return messages[:start], messages[start:]


def _unread(message: ChatMessage) -> Iterator[str]:
    """The kinds of a message's parts that are neither text nor the policy's calls, results or thoughts."""
    known = message.role in TOOL_ROLES  # whose other parts are read as JSON
    for part in message.content if isinstance(message.content, list) else ():
        if (kind := _kind(part)) == "tool_result":
            yield from _unread(ChatMessage.model_validate({**part, "role": "tool"}))
        elif kind and part.get("text") is None and (is_data(part) or not (known or kind in (*READ, *THOUGHTS))):
            yield kind
    if message.calls and message.role != "assistant":
        yield f"calls of the {message.role}"


def _quoted(message: ChatMessage) -> str:
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in message.calls]
    return "\n".join(filter(None, (f"{message.role}: {message.text}", *calls)))


def _turns(messages: Iterable[ChatMessage]) -> list[Turn]:
    turns: list[Turn] = []
    actions: list[Action] = []
    aside = False  # the last message with calls is not the policy's
    for message in messages:
        text, acts = message.text, bool(turns and turns[-1].actions)
        tagged = text.lstrip().startswith(RESPONSES[0])
        answers = message.role in TOOL_ROLES or tagged
        late = actions and None in actions[-1].results and not (aside or message.given)  # the user spoke before it
        aside = message.given if message.role == "assistant" else aside
        if message.role == "assistant" and not message.given:
            turns = turns or [Turn("")]
            actions.append(Action(text, tuple(message.calls), [None] * len(message.calls), cut=message.cut))
            turns[-1].actions.append(actions[-1])
        elif message.role == "assistant" and acts:
            actions[-1].results.append(_quoted(message))
        elif answers and (acts or late):
            if message.content is None and message.structured is None and not message.error:
                continue  # the file lacks this result
            unanswered = [each.calls and not any(each.results) for each in turns[-1].actions[-2:]]
            if message.tool_call_id is None and len(unanswered) == 2 and all(unanswered):
                raise ValueError("a result without an id follows several messages with calls: whose is it?")
            for result in [each.strip("\n") for each in blocks(text if tagged else "", *RESPONSES)[0]] or [text]:
                if aside or message.given:
                    actions[-1].results.append(_quoted(message) if message.given else result)
                else:
                    _answer(actions, result, message.tool_call_id, message.name)
        elif acts and actions[-1].calls and text.strip() and not blocks(text, *REMINDERS)[1].strip():
            actions[-1].results.append(_quoted(message))
        elif turns and not turns[-1].actions:
            turns[-1].user += f"\n\n{_quoted(message) if message.given else text}"
        else:
            turns.append(Turn(text))
    return turns


def _answer(actions: Sequence[Action], result: str, given: str | None, name: Any) -> None:
    """Assign a result to the call with its id, else to the next call of the last message (if the result names a tool,
    preferably of that tool). The last one with a call's id counts; one that matches no call goes after the others."""
    known = [action for action in actions if given is not None and any(call.id == given for call in action.calls)]
    action = known[-1] if known else actions[-1]
    calls = [(at, call) for at, call in enumerate(action.calls) if not known or call.id == given]
    free = [(at, call) for at, call in calls if action.results[at] is None]
    named = [at for at, call in free if name is not None and call.name == name]
    again = [at for at, _ in calls[-1:] if known]  # its harness tried the call again
    at = next(iter([*named, *(at for at, _ in free), *again]), len(action.results))
    action.results += [] if free else action.results[at : at + 1]
    action.results[at : at + 1] = [result]
