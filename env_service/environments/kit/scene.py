"""The dialogue's view of an environment for one task: its texts, tools, world and verdict.

This one is for tasks that an author writes; the benchmark's scene follows the official pipeline where that differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from env_service.answers import Evaluation
from env_service.environments.base import Call, Document, Refusal, Result
from env_service.environments.kit.calls import Parsed
from env_service.environments.kit.report import assessment
from env_service.environments.kit.settings import EpisodeParams
from env_service.environments.kit.tasks import Check, Needed, Outcome, TaskSource, ToolTask, UserPart, World, own
from seal.method.diagnosis.categories import qualify
from seal.method.diagnosis.evidence import CallEvidence, Stop, TurnEvidence, Violation
from seal.method.diagnosis.schema import violations
from seal.method.interface.secrets import Secrets, clauses

History = Sequence[Sequence[CallEvidence]]
"""The calls of an episode by user turn."""


@contextmanager
def author_code() -> Iterator[None]:
    """Run an author's code in the block: its ValueError does not say that the caller's request is wrong."""
    try:
        yield
    except Refusal:
        raise
    except ValueError as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def returned(by: object, method: str, value: Any, kind: type[Result]) -> Result:
    """The value that a method of an author's object returned; TypeError if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"`{method}` of {type(by).__name__} returns {value!r:.80}, not {kind.__name__}.")
    return value


class Scene:
    """One task as one episode plays it. It holds no state of the episode: that is in the world and the dialogue.

    category: as profiles, cues and logs name it (`seal.method.diagnosis.categories.qualify`). turns: the number of user
    turns. part: that of the user if the caller sends the user's messages; None if the task has them. writes,
    max_steps, error_limit, stop_tool: as in `TaskSource`.
    """

    def __init__(self, environment: TaskSource, task: ToolTask, settings: EpisodeParams) -> None:
        self.task_id, self.turns, self.settings = task.id, len(task.users), settings
        self.category = qualify(environment.name, task.category)
        self.format = environment.form(settings.tool_prompt_mode)
        self.writes, self.max_steps = environment.writes, environment.max_steps
        self.error_limit, self.stop_tool = environment.error_limit, environment.stop_tool
        self._environment, self._task = environment, task
        with author_code():
            part = environment.user(task) if settings.user else None
            self.part = part if part is None else returned(environment, "user", part, UserPart)
        if self.part is None and not environment.own_users:
            raise ValueError(
                f"{environment.name} has no users of its own: name a model that plays them, with seal.user.base_url in "
                "a recipe or --user-base-url in an evaluation."
            )
        if self.part is not None and settings.turns is not None:
            raise ValueError(f"params.turns: the dialogue of {task.id} depends on its user, so leave it out.")

    # --- what is shown --------------------------------------------------------------

    def info(self) -> Mapping[str, Any]:
        """The identity of the episode: data_hash and the environment's own keys."""
        environment = self._environment
        return {"environment": environment.name, "group": self._task.group, "data_hash": environment.data_hash()}

    @cached_property
    def _documents(self) -> Mapping[str, Document]:
        return {tool["name"]: tool for tool in self._environment.described(self._task)}

    def tools(self, turn: int) -> Sequence[Document]:
        """The documents that are visible in a user turn."""
        return tuple(self._documents.values())

    def revealed(self, turn: int) -> Sequence[Document]:
        """The documents that the message of a user turn announces."""
        return ()

    def system(self) -> str:
        instructions = self._environment.instructions(self._task, self.format.cue_wording.compact)
        return self.format.system(self.tools(0), returned(self._environment, "instructions", instructions, str))

    def native(self) -> Mapping[str, Any]:
        """The system text as data: the tools that each user turn adds, and the instructions."""
        tools = [self.tools(0), *map(self.revealed, range(1, self.turns))]
        return {"tools": tools, "instructions": self._environment.instructions(self._task, False)}

    def user(self, turn: int) -> str:
        """The message that opens a user turn."""
        return self._task.users[turn]

    # --- how a message counts -------------------------------------------------------

    def parse(self, content: str) -> Parsed:
        return self.format.parse(content, self._documents)

    def cut_ends(self, content: str) -> bool:
        """Return whether a message that a length limit cut ends the episode; if not, its text is read as it is."""
        return True

    def fatal(self, content: str) -> str | None:
        """Why the episode cannot continue if another message has to follow this one; None if it can."""
        return None

    # --- calls ----------------------------------------------------------------------

    own = staticmethod(own)  # copies a call's arguments for the world

    def world(self) -> World:
        return self._environment.world(self._task)

    def violations(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Violation, ...]:
        """Return the arguments' violations of the tool's document; () for a tool that has no document."""
        return violations(arguments, self._documents[tool]) if tool in self._documents else ()

    def refused(self, name: str, available: bool, violations: Sequence[Violation]) -> Outcome | None:
        """The answer to a call that must not run; None for a call that runs."""
        if not available:
            return Outcome(self.error(f"there is no tool {name.strip()[:64]!r}."), "unavailable")
        if violations and self._environment.strict:
            return Outcome(self.error(f"{violations[0].message}."), "signature")
        return None

    def error(self, reason: str) -> str:
        """The result of a call that failed for this reason."""
        return f"Error: {reason}"

    def reports_failure(self, tool: str, result: str) -> bool:
        """Whether an outcome without an error still says in its text that the call failed."""
        return False

    # --- the reference and the verdict ----------------------------------------------

    @cached_property
    def _calls(self) -> Sequence[Sequence[Call]]:
        return self._environment.calls(self._task)

    def reference(self, turn: int) -> Sequence[Call]:
        return self._calls[turn]

    def needed(self, turn: int | None) -> Needed:
        """What the reference's calls of a turn need; of all turns for None."""
        calls = self.reference(turn) if turn is not None else [call for calls in self._calls for call in calls]
        tools = tuple(name for name, _ in calls)
        stop = (self.stop_tool,) if tools and self.stop_tool else ()
        return Needed((*tools, *stop), tuple(name for name in tools if name in self.writes))

    def secrets(self) -> Secrets:
        """What no cue may reveal: the reference's secrets, and the clauses in the instructions of a model's user."""
        secrets = self._environment.task_secrets(self._task)
        return replace(secrets, words=secrets.words | clauses(self.part.instructions if self.part else ""))

    def judges(self, stop: Stop, last: bool) -> bool:
        """Return whether a turn that stopped like this is compared with the reference. last: it is the task's last."""
        return stop == "answered"

    def check(self, world: World, turn: int, history: History) -> Check:
        """Judge a user turn that is over; history: the calls of all turns up to it. Changes nothing."""
        return returned(world, "check", world.check(turn, history[turn]), Check) if self.reference(turn) else Check()

    def judge(self, world: World, history: History, said: Sequence[str]) -> Check:
        """Judge the whole dialogue with a user that a model plays. said: the policy's texts, without its calls."""
        calls = [call for calls in history for call in calls]
        return returned(world, "check", world.check(self.turns - 1, calls), Check)

    def user_call(self, world: World, call: Call) -> Outcome:
        """Run a call that the user makes with one of its own tools; one that breaks its document does not run."""
        (name, arguments), documents = call, {tool["name"]: tool for tool in self.part.tools}
        refused = self.refused(name, True, violations(arguments, documents[name]))
        return refused or world.call(name, self.own(arguments))

    def verdict(self, history: History, passed: bool) -> bool:
        """Return whether the whole task is valid. passed: every turn with a reference passed its check."""
        return passed

    def assessment(self, turns: Sequence[TurnEvidence], taxonomy: str, valid: bool, ended: bool) -> Evaluation:
        return assessment(turns, taxonomy, tuple(self._environment.ungrounded), valid, ended)
