"""What an author writes of an environment with tool calls: its tasks, and the world that one task plays in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from env_service.environments.base import Call, Side, TaskFacts
from seal.diagnosis.evidence import CallError, CallEvidence


class Turns:
    """What every task is: user turns, of which a prefix can be played. users, reference: one entry per user turn."""

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

    category, side and group: as in `TaskFacts`. data: whatever the environment needs to set
    its world up.
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

    @property
    def facts(self) -> TaskFacts:
        """What is known of it without opening it."""
        return TaskFacts(self.id, self.category, self.side, self.group, len(self.users))


@dataclass(frozen=True)
class Outcome:
    """The result of a call as the policy sees it, and the class of its error if it failed."""

    text: str
    error: CallError | None = None


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

    @property
    def passed(self) -> bool:
        """Whether something was compared and every comparison holds."""
        comparisons = (self.state_match, self.response_match, self.instances_match)
        return False not in comparisons and True in comparisons


class World(Protocol):
    """The state of one episode. It shares nothing that a call can change with another world."""

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run one documented tool. Wrong arguments are an outcome with an error, never an exception."""

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        """Judge user turn `turn` (from 0) when it ends. calls: those of the turn. Changes nothing."""
