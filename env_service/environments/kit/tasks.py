"""What the author of an environment with tool calls writes: tasks, their tools and worlds."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, get_args

from env_service.answers import UserOpening
from env_service.environments.base import Call, Document, Side, Split, TaskFacts
from env_service.environments.kit.formats import FORMATS, Format, get_format
from env_service.environments.kit.tool_calls import AGENT_FORMATS, MODE, ToolCalls
from seal.method.diagnosis.evidence import CallError, CallEvidence
from seal.method.interface.secrets import Secrets, reference_secrets


class Turns:
    """The user turns of a task; a prefix of them can be played. users, reference: one entry per user turn."""

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

    category, side and group: as in `TaskFacts`. data: anything that the environment needs to set up its world.
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
        texts = [(name, getattr(self, name)) for name in ("id", "category", "group")]
        for name, value in (*texts, *(("user message", message) for message in self.users)):
            if not isinstance(value, str):
                raise ValueError(f"task {self.id!r}: its {name} is {value!r:.80}, which is not text.")
        if self.side not in (*get_args(Side), None):
            raise ValueError(f"task {self.id!r}: its side is {self.side!r:.80}: write train, eval or None.")
        for call in (call for calls in self.reference for call in calls):
            if not isinstance(call, tuple | list) or len(call) != 2 or not isinstance(call[1], dict):
                raise ValueError(f"task {self.id!r}: {call!r} in its reference is not a call: write (name, arguments).")

    @property
    def facts(self) -> TaskFacts:
        return TaskFacts(self.id, self.category, self.side, self.group, len(self.users))


@dataclass(frozen=True)
class Outcome:
    """The result of a call as the policy sees it, and the class of its error if it failed."""

    text: str
    error: CallError | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or self.error not in (*get_args(CallError), None):
            classes = ", ".join(get_args(CallError))
            raise TypeError(f"{self!r:.80} is not an outcome: text must be str, its error None or one of {classes}.")


@dataclass(frozen=True)
class UserPart:
    """The user of a task, for a language model that plays it. The policy sees none of this.

    instructions: the model's system text, which names `stops`. greeting: the message that it answers first, as if from
    the policy. tools: documents of the user's tools. stops: a message that contains one of these ends the episode.
    max_messages: after this many messages of the user, the episode ends with a step limit.
    """

    instructions: str
    greeting: str = "Hi! How can I help you today?"
    tools: Sequence[Document] = ()
    stops: tuple[str, ...] = ("###STOP###",)
    max_messages: int = 20

    def __post_init__(self) -> None:
        if isinstance(self.stops, str):
            raise TypeError(f"UserPart.stops is the text {self.stops!r:.80}: write ({self.stops!r:.80},).")

    def opening(self) -> UserOpening:
        """The part as the model gets it."""
        told = [{"role": "system", "content": self.instructions}, {"role": "user", "content": self.greeting}]
        return {"messages": told, "tools": ToolCalls().definitions(self.tools)}


@dataclass(frozen=True)
class Needed:
    """The tools of a turn's reference calls, those that change the state, and why the reference fails, if it does."""

    tools: tuple[str, ...]
    writes: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True)
class Check:
    """The verifier's facts about a finished turn; None for a comparison that it does not make.

    absent: the tools of the reference calls whose result was needed but not obtained.
    instances_match: whether the same simulators exist as in the reference's run.
    """

    state_match: bool | None = None
    response_match: bool | None = None
    absent: tuple[str, ...] = ()
    instances_match: bool | None = None

    def __post_init__(self) -> None:
        for name in ("state_match", "response_match", "instances_match"):
            if (value := getattr(self, name)) not in (True, False, None):
                raise TypeError(f"Check.{name} is {value!r:.80}: give True, False or None.")
            object.__setattr__(self, name, None if value is None else bool(value))  # numpy's True is another object
        if isinstance(self.absent, str):
            raise TypeError(f"Check.absent is the text {self.absent!r:.80}: write ({self.absent!r:.80},).")

    @property
    def passed(self) -> bool:
        """True if state or response was compared and every comparison holds, as the label `pass` asks."""
        comparisons = (self.state_match, self.response_match)
        return True in comparisons and False not in (*comparisons, self.instances_match)


def own(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the arguments that a world may keep and change, so that evidence and references stay as they were."""
    return json.loads(json.dumps(arguments))


class World(Protocol):
    """The state of one episode. Worlds share nothing that a call can change."""

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run one documented tool. Wrong arguments give an outcome with an error, never an exception."""

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        """Judge user turn `turn` (from 0) when it ends. calls: the turn's calls. Changes nothing."""


class TaskSource(ABC):
    """A source of tasks: its author writes `name`, `writes`, `rule` and the abstract methods.

    rule: one sentence that says what never is on both sides of the default split. strict: calls whose arguments break
    the tool's document get an error and do not run. max_steps: messages with calls per user turn. error_limit: failed
    calls after which an episode ends; None for no limit. stop_tool: a tool that ends the user turn; a message without a
    call then ends the turn too, but the turn fails. No call in the message that calls the stop tool is run.
    own_users: false if only a model plays the users, so that `users` is not used. forms: every format by name.
    """

    name: ClassVar[str]
    writes: ClassVar[frozenset[str]]
    rule: ClassVar[str]
    formats: ClassVar[tuple[str, ...]] = tuple(FORMATS)
    forms: ClassVar[Mapping[str, Format]] = {**AGENT_FORMATS, MODE: ToolCalls()}
    ungrounded: ClassVar[Mapping[str, str]] = {}
    strict: ClassVar[bool] = True
    max_steps: ClassVar[int] = 20
    error_limit: ClassVar[int | None] = None
    stop_tool: ClassVar[str | None] = None
    own_users: ClassVar[bool] = True

    @abstractmethod
    def load(self) -> Sequence[ToolTask]:
        """Every task, in the order that all lists use. Called once per process."""

    @abstractmethod
    def tools(self, task: ToolTask) -> Sequence[Document]:
        """The documents of the tools that a task offers."""

    def described(self, task: ToolTask) -> Sequence[Document]:
        """The same, with an empty description and empty parameters if a document has none."""
        empty = {"description": "", "parameters": {}}
        return [{**tool, **{key: empty[key] for key in empty if tool.get(key) is None}} for tool in self.tools(task)]

    @abstractmethod
    def world(self, task: ToolTask) -> World:
        """A new world in the task's initial state."""

    @abstractmethod
    def data_hash(self) -> str:
        """sha256 (hex) over everything that tasks and worlds are made of."""

    def instructions(self, task: ToolTask, compact: bool) -> str:
        """The system text before the tools; for a compact format, the shortest that is sufficient."""
        return ""

    def packages(self) -> Mapping[str, str]:
        """Versions that results depend on, by package."""
        return {}

    def user(self, task: ToolTask) -> UserPart | None:
        """The user that a language model plays if a run names one (`seal.user`); None if there is only `users`."""
        return None

    def further_splits(self) -> Mapping[str, tuple[Split, Mapping[str, Sequence[str]]]]:
        """Further splits beside the default one, each with the task ids of its sides."""
        return {}

    def form(self, name: str) -> Format:
        """The prompt and parser format of that name; ValueError for an unknown name."""
        return get_format(name, self.forms)

    def calls(self, task: ToolTask) -> Sequence[Sequence[Call]]:
        """The reference's calls by user turn, without the stop tool, which ends each."""
        return tuple(tuple(call for call in turn if call[0] != self.stop_tool) for turn in task.reference)

    def task_secrets(self, task: ToolTask) -> Secrets:
        """The secrets of the reference: its calls and their results."""
        world, calls = self.world(task), [call for turn in self.calls(task) for call in turn]
        return reference_secrets(calls, [world.call(name, own(given)).text for name, given in calls])
