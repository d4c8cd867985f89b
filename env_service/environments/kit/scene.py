"""What the dialogue asks of an environment for one task: its texts, tools, world and verdict.

`environment.ToolScene` answers for tasks that an author writes, `bfcl.scene.BfclScene` as the
official benchmark does. The hooks with a body here are those in which the official pipeline
differs from what an environment needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.answers import Evaluation
from env_service.environments.base import Call, Document
from env_service.environments.kit.calls import Parsed
from env_service.environments.kit.formats import Format
from env_service.environments.kit.report import assessment
from env_service.environments.kit.settings import Settings
from env_service.environments.kit.tasks import Check, Needed, Outcome, World
from seal.diagnosis.evidence import CallEvidence, Stop, TurnEvidence, Violation
from seal.interface.secrets import Secrets

History = Sequence[Sequence[CallEvidence]]
"""The calls of an episode by user turn."""


class Scene(ABC):
    """One task as one episode plays it. Holds no state of the episode: that is in the world and the dialogue."""

    task_id: str
    category: str
    """As profiles, cues and logs name it (`seal.diagnosis.categories.qualified`)."""
    turns: int
    """User turns."""
    settings: Settings
    format: Format
    writes: frozenset[str]
    """The tools that may change the state that the verifier compares."""
    max_steps: int = 20
    """Messages with calls per user turn, unless the settings say."""
    error_limit: int | None = None
    """Failed calls after which the episode ends; None for no limit."""
    stop_tool: str | None = None
    """A tool whose call ends the user turn; a turn that ends without it fails."""

    # --- what is shown --------------------------------------------------------------

    @abstractmethod
    def info(self) -> Mapping[str, Any]:
        """What identifies the episode: data_hash and keys of the environment's own."""

    @abstractmethod
    def tools(self, turn: int) -> Sequence[Document]:
        """The documents that are visible in a user turn."""

    def revealed(self, turn: int) -> Sequence[Document]:
        """The documents that the message of a user turn announces."""
        return ()

    @abstractmethod
    def system(self) -> str:
        """The system text."""

    @abstractmethod
    def user(self, turn: int) -> str:
        """The message that opens a user turn."""

    # --- how a message counts -------------------------------------------------------

    @abstractmethod
    def parse(self, content: str) -> Parsed:
        """Read an assistant message."""

    def cut_ends(self, content: str) -> bool:
        """Whether a message that a length limit cut ends the episode; else it is read as far as it goes."""
        return True

    def fatal(self, content: str) -> str | None:
        """Why the episode cannot go on after this message, should a further one be asked for; None if it can."""
        return None

    # --- calls ----------------------------------------------------------------------

    @abstractmethod
    def world(self) -> World:
        """A new world in the task's initial state."""

    @abstractmethod
    def violations(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Violation, ...]:
        """How the arguments break the tool's document; () for a tool that has none."""

    @abstractmethod
    def refused(self, name: str, available: bool, violations: Sequence[Violation]) -> Outcome | None:
        """The answer to a call that is not run; None for one that is."""

    def error(self, reason: str) -> str:
        """The result of a call that failed for this reason."""
        return f"Error: {reason}"

    # --- the reference and the verdict ----------------------------------------------

    @abstractmethod
    def reference(self, turn: int) -> Sequence[Call]:
        """The reference's calls in a user turn."""

    @abstractmethod
    def needed(self, turn: int) -> Needed:
        """The tools of these calls."""

    @abstractmethod
    def secrets(self) -> Secrets:
        """What only the reference knows."""

    def judges(self, stop: Stop, last: bool) -> bool:
        """Whether a turn that ended so is compared with the reference. last: it is the task's last turn."""
        return stop == "answered"

    @abstractmethod
    def check(self, world: World, turn: int, history: History) -> Check:
        """Judge a user turn that is over; history: the calls of all turns up to it. Changes nothing."""

    def verdict(self, history: History, passed: bool) -> bool:
        """Whether the whole task is valid. passed: whether every turn with a reference passed its check."""
        return passed

    def assessment(self, turns: Sequence[TurnEvidence], taxonomy: str, valid: bool, ended: bool) -> Evaluation:
        """The answer to /evaluate."""
        return assessment(turns, taxonomy, (), valid, ended)
