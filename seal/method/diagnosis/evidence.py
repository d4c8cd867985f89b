"""The evidence from one user turn, which the service fills in: all that the diagnosis reads (paper, section 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

CallError = Literal["unavailable", "signature", "execution", "deadline"]
"""Why a call failed: the tool is not in F, the method refused its arguments, the
method ran and reported an error, or it ran out of time."""

Stop = Literal["answered", "step_limit", "length", "parse_error", "not_reached", "open"]
"""The end of a turn: a message without a call, the step limit, a length limit, or an unreadable message if such a
message ends the episode; or the episode ended before this turn (not_reached), or the turn is not over (open)."""

Judged = Literal["turn", "dialogue", "later", "passed"]
"""What the verifier compares when a turn ends. If a model plays the user, turns do not have references: the last turn
is judged with the whole dialogue, the others later; passed: judged later, and the dialogue passed."""

Blame = Literal["own", "inherited"]
"""Whose fault a failed turn is: its own calls' or an earlier turn's (docs/how-it-works.md#own-and-inherited-faults)."""


@dataclass(frozen=True)
class Violation:
    """One way in which a call breaks its tool's schema.

    kind: missing, unknown, type, enum or structure. path: the argument, "" for the whole call, "a.b[0]" inside one.
    """

    kind: str
    path: str
    message: str


@dataclass(frozen=True)
class CallEvidence:
    """One tool call as parsed, checked and executed.

    ``error`` classifies the failure as far as the tools report it; ``result`` is the text that the policy was shown
    (before clipping). ``writes`` is false for tools that only read; it is true in logs that do not say. ``reported`` is
    true when only the text of the result says that the call failed, as with some tools of the benchmark.
    """

    name: str
    arguments: Mapping[str, Any]
    available: bool
    violations: tuple[Violation, ...] = ()
    error: CallError | None = None
    result: str = ""
    writes: bool = True
    reported: bool = False

    @property
    def unavailable(self) -> bool:
        """True when the policy could not see the tool, or its environment has none of that name."""
        return not self.available or self.error == "unavailable"

    @property
    def failed(self) -> bool:
        """True when the call failed, also when only the text of its result says so."""
        return self.error is not None or self.reported


@dataclass(frozen=True)
class ActionEvidence:
    """One assistant message: its calls, what the parser refused in it, and whether a length limit cut it."""

    calls: tuple[CallEvidence, ...] = ()
    refusals: tuple[str, ...] = ()
    truncated: bool = False

    @property
    def failed(self) -> bool:
        """True when the observation that answered this message reported an error."""
        return bool(self.refusals) or any(call.failed for call in self.calls)


@dataclass(frozen=True)
class TurnEvidence:
    """All that is known about one user turn.

    turn counts from 0. expected_calls is the number of reference calls (0 when nothing should be called). needed names
    their tools, needed_writes the tools of the calls that change the state, absent the tools of the calls whose result
    has not been obtained so far; each has one entry per reference call. The three comparisons are the verifier's
    own on clean simulators; None when it made none. feedback_before is true when error feedback had been shown in an
    earlier turn and no call has succeeded since. reference_error names a failure that is not the policy's. blame is
    None unless the turn failed and could be judged. earlier: if the whole dialogue is judged, the calls of the turns
    before this one, without arguments and results.
    """

    turn: int
    expected_calls: int
    actions: tuple[ActionEvidence, ...] = ()
    stop: Stop = "answered"
    instances_match: bool | None = None
    state_match: bool | None = None
    response_match: bool | None = None
    feedback_before: bool = False
    reference_error: str | None = None
    needed: tuple[str, ...] = ()
    needed_writes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    blame: Blame | None = None
    judged: Judged = "turn"
    earlier: tuple[CallEvidence, ...] = ()

    @property
    def cut(self) -> bool:
        """True when a budget, not the policy, ended the turn."""
        last_cut = bool(self.actions) and self.actions[-1].truncated
        return self.stop in ("length", "step_limit") or last_cut

    @property
    def calls(self) -> tuple[CallEvidence, ...]:
        """All parsed calls of the turn, in order."""
        return tuple(call for action in self.actions for call in action.calls)


class TurnCounts(TypedDict):
    """User turns that met the verifier, of those that need calls and of those that need none."""

    passed_turns: int
    scorable_turns: int
    passed_irrelevance_turns: int
    irrelevance_turns: int
