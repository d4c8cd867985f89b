"""A rollout of another program: user turns of actions, whatever file it came from."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from seal.method.diagnosis.categories import parse_task_id
from seal.records.source import WHOLE

Document = Mapping[str, Any]
TOOL_ROLES = ("tool", "function", "ipython")
STEP_LIMIT = "step_limit"
"""The service's word for its own limit."""
RESPONSE = "<tool_response>"
"""The start of a user message of Qwen's template that holds results."""
_REFUSES = re.compile(r"error|exception|invalid|malformed|not valid|fail|expected|must be|decode|parse", re.IGNORECASE)
"""Words of a harness that could not read a call."""


class Heard(NamedTuple):
    """A call as its harness read it. refused: why it is none, "" if it is one; then arguments are as written."""

    name: str
    arguments: Any
    result: str
    refused: str = ""

    @property
    def written(self) -> str:
        """The call as text, as Qwen's template writes it."""
        call = json.dumps({"name": self.name, "arguments": self.arguments})
        return f"<tool_call>\n{call}\n</tool_call>"


@dataclass
class Action:
    """One assistant message. calls: names and arguments as written. results: theirs, in order; nudge: what its
    harness said to a message without any, as a user."""

    text: str
    calls: tuple[tuple[Any, Any], ...] = ()
    results: list[str] = field(default_factory=list)
    nudge: str = ""

    def heard(self, documents: Mapping[str, Document]) -> list[Heard]:
        """The calls, those that are none after the others. documents: of the tools, by name."""
        pairs = zip_longest(self.calls, self.results[: len(self.calls)], fillvalue="")
        found = [_heard(*call, result, documents) for call, result in pairs]
        shared = {each.result for each in found if each.refused} - {""}  # all have it if a harness refuses the message
        found = [
            each._replace(refused=each.refused or "its message was refused") if each.result in shared else each
            for each in found
        ]
        return sorted(found, key=lambda each: bool(each.refused))


@dataclass
class Turn:
    """A user's message and the actions that answer it."""

    user: str
    actions: list[Action] = field(default_factory=list)


@dataclass(frozen=True)
class Rollout:
    """place: file and line. tools: their documents, None if the file has none. reward: the file's, None without one.

    prefix: the user turns that were asked for, WHOLE for all. cut: the budget that ended it (a key of CUTS, or
    STEP_LIMIT), "" if none is known. truncated: as in a record. steps: its harness read a call in each message but a
    turn's last. failure: why it was not played, "" if it was. subagents: trajectories of others that it names or holds.
    continued: further files that it goes on in.
    """

    place: str
    task_id: str
    turns: Sequence[Turn]
    system: str = ""
    tools: Sequence[Document] | None = None
    reward: float | None = None
    prefix: int = WHOLE
    cut: str = ""
    truncated: tuple[int, ...] = ()
    steps: bool = False
    failure: str = ""
    subagents: int = 0
    continued: tuple[Path, ...] = ()

    @property
    def replays(self) -> bool:
        """True if the task is one of the benchmark, which the service plays again."""
        if self.failure:
            return False
        try:
            return parse_task_id(self.task_id) is not None and not self.task_id.startswith("synth_")
        except ValueError:
            return False

    @property
    def structured(self) -> bool:
        """True if calls are separate from the text."""
        return any(action.calls for turn in self.turns for action in turn.actions)


class Call(BaseModel):
    """A call as OpenAI (in `function`), verifiers, the Responses API and ATIF (flat) write it."""

    id: str | None = Field(None, validation_alias=AliasChoices("call_id", "tool_call_id", "id"))
    name: Any = Field("", validation_alias=AliasChoices("name", "function_name"))
    arguments: Any = None

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping):
            return {"id": value.get("id"), **value["function"]}
        return value if isinstance(value, Mapping | Call) else {"arguments": value}


class ChatMessage(BaseModel):
    """A message of a chat."""

    role: str
    content: str | list[Any] | None = None
    tool_calls: list[Call] | None = None
    function_call: Call | None = None
    tool_call_id: str | None = None


def text_of(content: Any) -> str:
    """The text of a message's content, whose parts may be objects with a `text`."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") if isinstance(part, Mapping) else str(part) for part in content)
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _heard(name: Any, written: Any, result: str, documents: Mapping[str, Document]) -> Heard:
    """A call, or why it is none: some harnesses decode text in text, and for a tool that needs none null is {}."""
    if not isinstance(name, str) or not name.strip():
        return Heard(str(name), written, result, "a call has no name")
    document = documents.get(name.strip(), {})
    needs = (document.get("parameters") or {}).get("required")
    try:
        found = json.loads(written) if isinstance(written, str) and written.strip() else written
        if isinstance(found, str) and found.strip() and result and not _REFUSES.search(result):
            found = json.loads(found)
    except (ValueError, RecursionError) as error:
        return Heard(name, written, result, f"the arguments of {name} are no JSON: {error}")
    if (isinstance(found, str) and not found.strip()) or (found is None and not needs):
        found = {}
    if isinstance(found, dict):
        return Heard(name, found, result)
    return Heard(name, written, result, f"the arguments of {name} are no JSON object: {json.dumps(found)[:80]}")


def turns_of(messages: Iterable[ChatMessage]) -> tuple[str, list[Turn]]:
    """The system text and the user turns of a chat; a result goes to its call by id, else to the next one."""
    system: list[str] = []
    turns: list[Turn] = []
    waiting: list[str | None] = []
    for message in messages:
        text = text_of(message.content)
        if message.role in ("system", "developer"):
            system.append(text)
        elif message.role == "assistant":
            turns = turns or [Turn("")]
            calls = message.tool_calls or ([message.function_call] if message.function_call else [])
            waiting = [call.id for call in calls]
            named = tuple((call.name, call.arguments) for call in calls)
            turns[-1].actions.append(Action(text, named, [""] * len(calls)))
        elif turns and turns[-1].actions and (message.role in TOOL_ROLES or text.startswith(RESPONSE)):
            results = turns[-1].actions[-1].results
            if message.tool_call_id in waiting:
                results[waiting.index(message.tool_call_id)] = text
            elif "" in results:
                results[results.index("")] = text
            else:
                results.append(text)
        elif turns and not turns[-1].actions:
            turns[-1].user += f"\n\n{text}"
        else:
            turns.append(Turn(text))
    if not any(turn.actions for turn in turns):
        raise ValueError("has no message of the policy")
    return "\n\n".join(system), turns


class _Schema(BaseModel):
    """The parts of a JSON schema that the checks of arguments read."""

    model_config = ConfigDict(extra="allow")

    properties: "dict[str, _Schema]" = {}
    required: list[str] = []


class _Tool(BaseModel):
    name: str
    parameters: _Schema | None = None


def documents_of(tools: Sequence[Any] | None) -> Sequence[Document] | None:
    """Tools as name and parameters, from OpenAI's shape (in `function`) or a flat one; None if there are none.

    ValueError if one has a name and cannot be read; those without a name are the endpoint's own.
    """
    flat = [tool.get("function", tool) for tool in tools or () if isinstance(tool, Mapping)]
    named = [tool for tool in flat if isinstance(tool, Mapping) and "name" in tool]
    return [_Tool.model_validate(tool).model_dump(exclude_unset=True) for tool in named] or None
