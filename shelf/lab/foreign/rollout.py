"""A rollout of another program: user turns of actions, independent of the file format."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, model_validator

from seal.method.diagnosis.schema import violations
from seal.records.benchmark import parse_task_id
from seal.records.source import WHOLE
from seal.system.jsonl import flaw
from shelf.lab.foreign.normal import call_of, decoded
from shelf.lab.foreign.tools import without_padding

Document = Mapping[str, Any]
STEP_LIMIT = "step_limit"
"""The service's name for its own limit."""
_OWN_TOOLS = ("custom", "custom_tool_call", "mcp_call", "mcp_tool_use", "server_tool_use")
"""Types of calls to tools that take free text, or that the endpoint runs."""
REFUSES = re.compile(r"error|exception|invalid|malformed|not valid|fail|expected|must be|decode|parse", re.IGNORECASE)
"""Words with which a harness says that it could not read a call."""


class Call(BaseModel):
    """A call as OpenAI (in `function`, `custom`), verifiers (as JSON), the Responses API, Anthropic and ATIF write it.

    documented: False if no tool's document judges it. padded: its nulls may come from a table, not from the policy.
    """

    id: str | None = None
    name: Any = ""
    arguments: Any = None
    documented: bool = True
    padded: bool = False

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("{"):
            value = decoded("a call", value)
        if not isinstance(value, Mapping):
            return value if isinstance(value, Call) else {"arguments": value}
        return {**call_of(value), "documented": value.get("type") not in _OWN_TOOLS}


class Heard(NamedTuple):
    """A call as its harness read it. result: None if its file has none. refused: why it is not a valid call (arguments
    are then as written), "" if it is valid."""

    name: str
    arguments: Any
    result: str | None
    refused: str = ""
    documented: bool = True

    @property
    def written(self) -> str:
        """The call as text, as Qwen's template writes it."""
        call = json.dumps({"name": self.name, "arguments": self.arguments})
        return f"<tool_call>\n{call}\n</tool_call>"


@dataclass
class Action:
    """One assistant message. results: those of its calls, in order, None if the file lacks one, then any others.

    nudge: what its harness answered, as a user, to a message without calls. whole: its harness drops a whole message if
    it cannot read one call. cut: a limit on its length ended it.
    """

    text: str
    calls: tuple[Call, ...] = ()
    results: list[str | None] = field(default_factory=list)
    nudge: str = ""
    whole: bool = False
    cut: bool = False

    def heard(self, documents: Mapping[str, Document]) -> list[Heard]:
        """The calls, the refused ones last. documents: those of the tools, by name."""
        pairs = zip_longest(self.calls, self.results[: len(self.calls)])
        found = [_heard(call, result, {} if self.whole else documents, self.whole) for call, result in pairs]
        refused = [each.result for each in found if each.refused]
        every = bool(refused) and self.whole
        shared = {*refused} - {"", None}  # all calls have this result if a harness refuses the message
        found = [
            each._replace(refused=each.refused or "its message was refused") if every or each.result in shared else each
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
    """place: file and line. system: what precedes the policy's turns. tools: their documents, None without any.

    reward: that of the file, None without one. prefix: the user turns that were asked for, WHOLE for all. cut: the
    budget that ended it (a key of CUTS, or STEP_LIMIT), "" if none is known. truncated: as in a record. steps: its
    harness read a call in each message except a turn's last. mode: the prompt mode that reads its texts as its harness
    did, "" if unknown. failure: why its program did not play it to the end, "" if it did.
    subagents: the number of other trajectories that it names or holds. continued: further files that continue it.
    unread: the kinds of content that is not read, each as often as it occurs.
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
    mode: str = ""
    failure: str = ""
    subagents: int = 0
    continued: tuple[Path, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def category(self) -> str | None:
        """The category of a benchmark task, None for any other task."""
        try:
            return None if self.task_id.startswith("synth_") else parse_task_id(self.task_id)[0]
        except ValueError:
            return None

    @property
    def replays(self) -> bool:
        """True if it is a benchmark task's, which the service plays again."""
        return self.category is not None and not self.failure

    @property
    def structured(self) -> bool:
        """True if calls are separate from the text."""
        return any(action.calls for turn in self.turns for action in turn.actions)


def _heard(call: Call, result: str | None, documents: Mapping[str, Document], strict: bool) -> Heard:
    """A call, or why it is not valid. Some harnesses decode JSON twice, and take null as {} if no argument is required.

    strict: its harness does neither.
    """
    name, written, why = call.name, call.arguments, ""
    if not isinstance(name, str) or not name.strip():
        return Heard(str(name or ""), written, result, "a call has no name")
    document = documents.get(name.strip(), {})
    schema = document.get("parameters") or {}
    try:
        found = json.loads(written) if isinstance(written, str) and (strict or written.strip()) else written
        if not strict and isinstance(found, str) and found.strip() and not REFUSES.search(result or ""):
            found = json.loads(found)
    except (ValueError, RecursionError) as error:
        found, why = written, f"JSON: {flaw(error)}"
    empty = not found.strip() if isinstance(found, str) else found is None and not schema.get("required")
    if isinstance(found := {} if empty and not strict else found, dict):
        bare = without_padding(found, schema, call.padded) if schema and isinstance(written, dict) else found
        meant = bare != found and violations(bare, document) and not violations(found, document)  # by the policy
        return Heard(name, found if meant else bare, result, documented=call.documented)
    if not call.documented:  # free text
        return Heard(name, {"input": written}, result, documented=False)
    why = why or f"a JSON object: {json.dumps(found)[:80]}"
    return Heard(name, written, result, f"the arguments of {name} are not {why}")
