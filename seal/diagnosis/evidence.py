"""What was observed in one user turn: the input of the diagnosis function Psi.

The environment service fills these values from the running episode and from
the verifier; Psi reads them and nothing else (paper, section 3.2). Everything
here is plain data: it round-trips through JSON, so that a diagnosis can be
redone offline from a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from seal.diagnosis.results import reports_failure

CallError = Literal["unavailable", "signature", "execution", "deadline"]
"""Why a call gave an error: the tool is not in F, the method refused its
arguments, the method ran and reported an error, or it ran out of time."""

Stop = Literal["answered", "step_limit", "length", "parse_error", "not_reached", "open"]
"""How a turn ended: a message without a call, the interaction limit, a message
cut by a length limit, a parse refusal that ends episodes, an episode that
ended before this turn, or not yet."""


@dataclass(frozen=True)
class Violation:
    """One way in which a call breaks its tool's schema.

    kind is one of missing, unknown, type, enum, structure; path is the argument
    ("" for the call as a whole, "a.b[0]" inside structures).
    """

    kind: str
    path: str
    message: str


@dataclass(frozen=True)
class CallEvidence:
    """One tool call as parsed, checked and executed.

    ``error`` classes what went wrong as far as the tools tell it; ``result`` is the
    text that the policy was shown (before clipping).
    """

    name: str
    arguments: Mapping[str, Any]
    available: bool
    violations: tuple[Violation, ...] = ()
    error: CallError | None = None
    result: str = ""

    @property
    def failed(self) -> bool:
        """True when the call gave an error, one that only the text of its result tells included."""
        return self.error is not None or reports_failure(self.name, self.result)


@dataclass(frozen=True)
class ActionEvidence:
    """One assistant message: its calls and what the parser refused in it."""

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

    turn counts from 0. expected_calls is the number of reference calls (0 where
    nothing should be called). The three comparisons are the verifier's own on
    clean simulators; None where it made none. feedback_before is true when
    error feedback had been shown in an earlier turn and no call has succeeded since.
    checker_error, reference_error and infra_error name failures that are not
    the policy's.
    """

    turn: int
    expected_calls: int
    actions: tuple[ActionEvidence, ...] = ()
    stop: Stop = "answered"
    instances_match: bool | None = None
    state_match: bool | None = None
    response_match: bool | None = None
    feedback_before: bool = False
    checker_error: str | None = None
    reference_error: str | None = None
    infra_error: str | None = None

    @property
    def calls(self) -> tuple[CallEvidence, ...]:
        """Every parsed call of the turn, in order."""
        return tuple(call for action in self.actions for call in action.calls)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TurnEvidence:
        """Rebuild evidence from a log line; raises TypeError on unknown fields."""
        actions = tuple(
            ActionEvidence(
                calls=tuple(
                    CallEvidence(**{**call, "violations": tuple(Violation(**v) for v in call.get("violations", ()))})
                    for call in action.get("calls", ())
                ),
                refusals=tuple(action.get("refusals", ())),
                truncated=action.get("truncated", False),
            )
            for action in data.get("actions", ())
        )
        return cls(**{**data, "actions": actions})
