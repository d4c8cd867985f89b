"""Which later success shows that the policy recovered from an error.

An error stays open until the same tool succeeds, or a tool that the error asked for. A refused message and a call of an
unavailable tool ask only for a call that works, so any success closes them.
"""

import re
from collections.abc import Iterable

from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence

ANY: frozenset[str] = frozenset()
"""Stands for all tools: any successful call closes the error."""

_LOGINS = frozenset({"authenticate_travel", "authenticate_twitter", "message_login", "ticket_login", "trading_login"})
_ASKED_FOR: tuple[tuple[str, frozenset[str]], ...] = (
    (r"log ?in|logged in|authenticat|token", _LOGINS),
    (r"doors must be locked", frozenset({"lockDoors"})),
    (r"brake", frozenset({"pressBrakePedal", "activateParkingBrake"})),
    (r"fuel tank is empty", frozenset({"fillFuelTank"})),
    (r"start the engine", frozenset({"startEngine"})),
    (r"card not registered|credit card not", frozenset({"register_credit_card", "get_all_credit_cards"})),
    (r"insufficient funds|balance is less|budget limit", frozenset({"fund_account", "set_budget_limit"})),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), tools) for pattern, tools in _ASKED_FOR)


def closed_by(call: CallEvidence) -> frozenset[str]:
    """Return the tools whose success closes this call's error; :data:`ANY` when every tool's does."""
    if call.unavailable:
        return ANY
    asked = (tools for pattern, tools in _PATTERNS if pattern.search(call.result))
    return frozenset({call.name}).union(*asked)


def still_open(before: Iterable[frozenset[str]], action: ActionEvidence) -> tuple[frozenset[str], ...]:
    """Return the errors from before an action that it left open."""
    succeeded = [call.name for call in action.calls if not call.failed]
    return tuple(tools for tools in before if not _closes(tools, succeeded))


def opened(action: ActionEvidence) -> tuple[frozenset[str], ...]:
    """Return the errors that an action made and that none of its later calls closed."""
    errors: list[frozenset[str]] = [ANY] if action.refusals else []
    for index, call in enumerate(action.calls):
        if call.failed:
            later = [other.name for other in action.calls[index + 1 :] if not other.failed]
            errors += [tools for tools in [closed_by(call)] if not _closes(tools, later)]
    return tuple(errors)


def _closes(tools: frozenset[str], succeeded: Iterable[str]) -> bool:
    return any(not tools or name in tools for name in succeeded)
