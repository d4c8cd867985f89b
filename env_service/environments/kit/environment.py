"""An environment with tool calls: a subclass supplies tasks, tools and worlds, everything else is here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from env_service.answers import Evaluation
from env_service.environments.base import Call, Document, Guard, Json, Side, Split, TaskFacts
from env_service.environments.kit.calls import Parsed
from env_service.environments.kit.dialogue import ToolEpisode
from env_service.environments.kit.formats import FORMATS, Format, get_format
from env_service.environments.kit.report import assessment
from env_service.environments.kit.scene import History, Scene
from env_service.environments.kit.settings import EVALUATION_SPLITS, Settings, read_settings
from env_service.environments.kit.tasks import Check, Needed, Outcome, ToolTask, World
from seal.diagnosis.categories import qualified
from seal.diagnosis.evidence import TurnEvidence, Violation
from seal.diagnosis.schema import violations
from seal.interface.secrets import Secrets, reference_secrets


class ToolEnvironment(ABC):
    """Tasks with tools. A subclass sets `name`, `writes` and `rule`, and implements the abstract methods.

    rule: one sentence that says what never is on both sides of the default split. strict: calls
    whose arguments break the tool's document are answered with an error and not run. max_steps:
    messages with calls per user turn. error_limit: failed calls after which an episode ends;
    None for no limit. stop_tool: a tool that ends the user turn; a message without a call then
    ends it too, but the turn fails. Its call runs nothing, and nothing else of its message does.
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

    # --- what an author writes ------------------------------------------------------

    @abstractmethod
    def load(self) -> Sequence[ToolTask]:
        """Every task, in the order of all lists. Called once per process."""

    @abstractmethod
    def tools(self, task: ToolTask) -> Sequence[Document]:
        """The documents of the tools that a task offers."""

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

    def further_splits(self) -> Mapping[str, tuple[Split, Mapping[str, Sequence[str]]]]:
        """Splits beside the default one: each with the task ids of its sides."""
        return {}

    def form(self, name: str) -> Format:
        """A prompt and parser format; ValueError for an unknown one."""
        return get_format(name)

    # --- what follows from it -------------------------------------------------------

    @cached_property
    def _tasks(self) -> Mapping[str, ToolTask]:
        tasks = {task.id: task for task in self.load()}
        if not tasks:
            raise ValueError(f"The environment {self.name} has no tasks.")
        return tasks

    @cached_property
    def _facts(self) -> Sequence[TaskFacts]:
        return [task.facts for task in self._tasks.values()]

    def splits(self) -> Mapping[str, Split]:
        """Return the default split, whose sides share no group, and the further ones."""
        groups: dict[str, set[Side | None]] = {}
        for task in self._facts:
            groups.setdefault(task.group, set()).add(task.side)
        default = Split(self.rule, held_out=all(len(sides) == 1 for sides in groups.values()))
        return {"default": default, **{name: split for name, (split, _) in self.further_splits().items()}}

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the ids of a category, of a side of a split, or of all tasks; ValueError lists the names."""
        known: dict[str, list[str]] = {}
        for task in self._facts:
            known.setdefault(task.category, []).append(task.id)
        known[""] = known["all"] = list(self._tasks)
        known["train"] = [task.id for task in self._facts if task.side == "train"]
        held_out = [task.id for task in self._facts if task.side == "eval"]
        known |= {name: held_out for name in EVALUATION_SPLITS}
        for name, (_, sides) in self.further_splits().items():
            known |= {f"{name}_{side}": list(ids) for side, ids in sides.items()}
        if split not in known:
            raise ValueError(f"split {split!r} is unknown; choose one of {', '.join(filter(None, known))}.")
        return known[split]

    def task(self, task_id: str) -> TaskFacts:
        """Return what is known of a task; ValueError for an unknown one."""
        return self._task(task_id).facts

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> ToolEpisode:
        """Start an episode of a task or, with params["turns"], of its first turns."""
        return ToolEpisode(self.scene(task_id, params), guard)

    def scene(self, task_id: str, params: Mapping[str, Any]) -> Scene:
        """The task as an episode with these parameters plays it."""
        task, settings = self._task(task_id), read_settings(params, self.formats, Settings)
        return ToolScene(self, task if settings.turns is None else task.prefix(settings.turns), settings)

    def documents(self, task_id: str) -> Sequence[Document]:
        """Return the documents of the task's tools."""
        return self.tools(self._task(task_id))

    def reference(self, task_id: str) -> Sequence[Sequence[Call]]:
        """Return the reference's calls by user turn."""
        return self._task(task_id).reference

    def secrets(self, task_id: str) -> Secrets:
        """Return what the reference knows: its calls and their results."""
        task = self._task(task_id)
        world, calls = self.world(task), [call for turn in task.reference for call in turn]
        return reference_secrets(calls, [world.call(*call).text for call in calls])

    def render(self, name: str, call: Call) -> str:
        """Return a call as a format writes it."""
        return self.form(name).render_call(*call)

    def closing(self, name: str) -> str:
        """Return what ends a user turn: the stop tool's call, or an answer without a call."""
        return self.form(name).render_call(self.stop_tool, {}) if self.stop_tool else "Done."

    def prepare(self) -> Iterator[None]:
        """Load the tasks."""
        yield
        len(self._tasks)

    def version(self) -> Json:
        """Return the data's hash and the versions of packages."""
        return {"data_hash": self.data_hash(), **self.packages()}

    def _task(self, task_id: str) -> ToolTask:
        task = self._tasks.get(task_id)
        if task is None:
            raise ValueError(f"task_id {task_id!r} is unknown; ids of {self.name} look like {next(iter(self._tasks))}.")
        return task


class ToolScene(Scene):
    """A task of such an environment as one episode plays it."""

    def __init__(self, environment: ToolEnvironment, task: ToolTask, settings: Settings) -> None:
        self.task_id, self.turns, self.settings = task.id, len(task.users), settings
        self.category = qualified(environment.name, task.category)
        self.format = get_format(settings.tool_prompt_mode)
        self.writes, self.max_steps = environment.writes, environment.max_steps
        self.error_limit, self.stop_tool = environment.error_limit, environment.stop_tool
        self._environment, self._task = environment, task
        self._tools = tuple(environment.tools(task))
        self._documents = {tool["name"]: tool for tool in self._tools}

    def info(self) -> Mapping[str, Any]:
        environment = self._environment
        return {"environment": environment.name, "group": self._task.group, "data_hash": environment.data_hash()}

    def tools(self, turn: int) -> Sequence[Document]:
        return self._tools

    def system(self) -> str:
        instructions = self._environment.instructions(self._task, self.format.cue_wording.compact)
        return self.format.system(self._tools, instructions)

    def user(self, turn: int) -> str:
        return self._task.users[turn]

    def parse(self, content: str) -> Parsed:
        return self.format.parse(content, self._documents)

    def world(self) -> World:
        return self._environment.world(self._task)

    def violations(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Violation, ...]:
        return violations(arguments, self._documents[tool]) if tool in self._documents else ()

    def refused(self, name: str, available: bool, violations: Sequence[Violation]) -> Outcome | None:
        if not available:
            return Outcome(self.error(f"there is no tool {name.strip()[:64]!r}."), "unavailable")
        if violations and self._environment.strict:
            return Outcome(self.error(f"{violations[0].message}."), "signature")
        return None

    def reference(self, turn: int) -> Sequence[Call]:
        return self._task.reference[turn]

    def needed(self, turn: int) -> Needed:
        tools = tuple(name for name, _ in self._task.reference[turn])
        tools += (self.stop_tool,) if tools and self.stop_tool else ()
        return Needed(tools, tuple(name for name in tools if name in self.writes))

    def secrets(self) -> Secrets:
        return self._environment.secrets(self.task_id)

    def check(self, world: World, turn: int, history: History) -> Check:
        return world.check(turn, history[turn]) if self._task.reference[turn] else Check()

    def assessment(self, turns: Sequence[TurnEvidence], taxonomy: str, valid: bool, ended: bool) -> Evaluation:
        return assessment(turns, taxonomy, tuple(self._environment.ungrounded), valid, ended)
