"""The part of an environment with tool calls that its author writes: tasks, their tools and worlds."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

from env_service.answers import UserOpening
from env_service.environments.base import Call, Document, Side, Split, TaskFacts
from env_service.environments.kit.formats import FORMATS, Format, get_format
from env_service.environments.kit.tool_calls import AGENT_FORMATS, MODE, ToolCalls
from seal.method.diagnosis.evidence import CallError, CallEvidence
from seal.method.interface.secrets import Secrets, reference_secrets


class Turns:
    """The user turns of a task, of which a prefix can be played. users, reference: one entry per user turn."""

    id: str
    users: tuple[Any, ...]
    reference: tuple[Any, ...]

    def prefix(self, turns: int) -> Self:
        """The task cut after its first `turns` user turns; ValueError outside 1..len(users)."""
        if not 1 <= turns <= len(self.users):
            raise ValueError(f"turns must be in 1..{len(self.users)} for {self.id}, got {turns}.")
        return replace(self, users=self.users[:turns], reference=self.reference[:turns])


@dataclass(frozen=True)
class ToolTask(Turns):
    """One task: users has a message for each user turn, reference the calls that each turn needs.

    category, side and group: as in `TaskFacts`. data: whatever the environment needs to set its world up.
    """

    id: str
    category: str
    side: Side | None
    group: str
    users: tuple[str, ...]
    reference: tuple[tuple[Call, ...], ...]
    data: Any = None

    def __post_init__(self) -> None:
        if len(self.users) != len(self.reference) or not self.users:
            raise ValueError(f"task {self.id!r} has {len(self.users)} user turns and {len(self.reference)} references.")
        for call in (call for calls in self.reference for call in calls):
            if len(call) != 2 or not isinstance(call[1], dict):
                raise ValueError(f"task {self.id!r}: {call!r} in its reference is not a call: write (name, arguments).")

    @property
    def facts(self) -> TaskFacts:
        return TaskFacts(self.id, self.category, self.side, self.group, len(self.users))


@dataclass(frozen=True)
class Outcome:
    """The result of a call as the policy sees it, and the class of its error if it failed."""

    text: str
    error: CallError | None = None


@dataclass(frozen=True)
class UserPart:
    """The user of a task, for a language model that plays it. The policy is shown none of this.

    instructions: the model's system text, which names `stops`. greeting: what it answers first, as if the policy had
    said it. tools: documents of the tools that the user has. stops: a message that holds one of these ends the episode.
    max_messages: of the user, after which the episode ends at the step limit.
    """

    instructions: str
    greeting: str = "Hi! How can I help you today?"
    tools: Sequence[Document] = ()
    stops: tuple[str, ...] = ("###STOP###",)
    max_messages: int = 20

    def opening(self) -> UserOpening:
        """The part as the model gets it."""
        told = [{"role": "system", "content": self.instructions}, {"role": "user", "content": self.greeting}]
        return {"messages": told, "tools": ToolCalls().definitions(self.tools)}


_FORMATS: Mapping[str, Format] = {**AGENT_FORMATS, MODE: ToolCalls()}


@dataclass(frozen=True)
class Needed:
    """The tools of a turn's reference calls, those of them that change the state, and why the reference fails if so."""

    tools: tuple[str, ...]
    writes: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True)
class Check:
    """The verifier's facts about a turn that is over; None for a comparison that it does not make.

    absent: the tools of the reference calls whose result was needed and not obtained.
    instances_match: whether the same simulators are there as in the reference's run.
    """

    state_match: bool | None = None
    response_match: bool | None = None
    absent: tuple[str, ...] = ()
    instances_match: bool | None = None

    def __post_init__(self) -> None:
        for name in ("state_match", "response_match", "instances_match"):
            if (value := getattr(self, name)) not in (True, False, None):
                raise TypeError(f"Check.{name} is {value!r:.80}: give True, False or None.")
            object.__setattr__(self, name, None if value is None else bool(value))  # numpy's is another True

    @property
    def passed(self) -> bool:
        """True if something was compared and every comparison holds."""
        comparisons = (self.state_match, self.response_match, self.instances_match)
        return False not in comparisons and True in comparisons


def own(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a world may keep and change them: those of evidence and references stay as they were."""
    return json.loads(json.dumps(arguments))


class World(Protocol):
    """The state of one episode. It shares nothing that a call can change with another world."""

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run one documented tool. Wrong arguments are an outcome with an error, never an exception."""

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        """Judge user turn `turn` (from 0) when it ends. calls: those of the turn. Changes nothing."""


_MISSING = (("description", ""), ("parameters", {}))


class TaskSource(ABC):
    """A source of tasks: its author writes `name`, `writes`, `rule` and the abstract methods.

    rule: one sentence that says what never is on both sides of the default split. strict: calls whose arguments break
    the tool's document are answered with an error and not run. max_steps: messages with calls per user turn.
    error_limit: failed calls after which an episode ends; None for no limit. stop_tool: a tool that ends the user turn;
    a message without a call then ends it too, but the turn fails. Nothing of the message that calls it is run.
    own_users: false where only a model plays the users, so that `users` says nothing.
    """

    name: ClassVar[str]
    writes: ClassVar[frozenset[str]]
    rule: ClassVar[str]
    formats: ClassVar[tuple[str, ...]] = tuple(FORMATS)
    ungrounded: ClassVar[Mapping[str, str]] = {}
    strict: ClassVar[bool] = True
    max_steps: ClassVar[int] = 20
    error_limit: ClassVar[int | None] = None
    stop_tool: ClassVar[str | None] = None
    own_users: ClassVar[bool] = True

    @abstractmethod
    def load(self) -> Sequence[ToolTask]:
        """Every task, in the order of all lists. Called once per process."""

    @abstractmethod
    def tools(self, task: ToolTask) -> Sequence[Document]:
        """The documents of the tools that a task offers."""

    def described(self, task: ToolTask) -> Sequence[Document]:
        """The same, with an empty description and empty parameters where a document has none."""
        return [{**tool, **{key: none for key, none in _MISSING if tool.get(key) is None}} for tool in self.tools(task)]

    @abstractmethod
    def world(self, task: ToolTask) -> World:
        """A new world in the task's initial state."""

    @abstractmethod
    def data_hash(self) -> str:
        """sha256 (hex) over everything that tasks and worlds are made of."""

    def instructions(self, task: ToolTask, compact: bool) -> str:
        """The system text before the tools; a compact format wants the shortest that will do."""
        return ""

    def packages(self) -> Mapping[str, str]:
        """Versions that results depend on, by package."""
        return {}

    def user(self, task: ToolTask) -> UserPart | None:
        """The user as a language model plays it where a run names one (`seal.user`); None where `users` is all."""
        return None

    def further_splits(self) -> Mapping[str, tuple[Split, Mapping[str, Sequence[str]]]]:
        """Splits beside the default one: each with the task ids of its sides."""
        return {}

    def form(self, name: str) -> Format:
        """A prompt and parser format; ValueError for an unknown one."""
        return get_format(name, _FORMATS)

    def calls(self, task: ToolTask) -> Sequence[Sequence[Call]]:
        """The reference's calls by user turn."""
        return task.reference

    def task_secrets(self, task: ToolTask) -> Secrets:
        """The secrets of the reference: its calls and their results."""
        world, calls = self.world(task), [call for turn in task.reference for call in turn]
        return reference_secrets(calls, [world.call(name, own(given)).text for name, given in calls])
