"""The labels that a user turn can get (paper, Table 5), plain strings, with their base utilities rho(z) (Table 6)."""

from dataclasses import dataclass

INVALID_TOOL_CALL = "invalid_tool_call"
ARGUMENT_MISMATCH = "argument_mismatch"
STATE_MISMATCH = "state_mismatch"
RECOVERY_FAILURE = "recovery_failure"
MISSING_TOOL_CALL = "missing_tool_call"
RESPONSE_MISMATCH = "response_mismatch"
INSTANCE_MISMATCH = "instance_mismatch"
SPURIOUS_TOOL_CALL = "spurious_tool_call"
EMPTY_TURN = "empty_turn_model_response"
PASS = "pass"
CORRECT_ABSTENTION = "correct_abstention"
CHECKER_ERROR = "checker_error"
GT_ERROR = "gt_error"
BUDGET_CUT = "budget_cut"

BROKEN = frozenset({CHECKER_ERROR, GT_ERROR})
"""Labels that say that the verdict itself failed: the trajectory's reward means nothing."""

EXCLUDED = BROKEN | {BUDGET_CUT}
"""Labels that blame no one for the turn: never counted, never weighted."""

SYNONYMS = {EMPTY_TURN: MISSING_TOOL_CALL}
"""Labels of the release's taxonomy that name the same failure as a label of the paper's."""


@dataclass(frozen=True)
class Label:
    """One label: its name, its base utility rho(z) > 0 and whether it marks a success."""

    name: str
    utility: float
    success: bool = False


_REGISTER: dict[str, Label] = {}


def declare(name: str, utility: float, success: bool = False) -> Label:
    """Register a label before a rule uses it; ValueError for a utility not above 0, or another label's name."""
    if not utility > 0:
        raise ValueError(f"label {name!r}: utility must be positive, got {utility!r}")
    label = Label(name, float(utility), success)
    if _REGISTER.setdefault(name, label) != label:
        raise ValueError(f"label {name!r} is already declared as {_REGISTER[name]}; choose another name")
    return label


def get(name: str) -> Label:
    """Return the declared label of that name; ValueError when there is none."""
    try:
        return _REGISTER[name]
    except KeyError:
        raise ValueError(f"unknown label {name!r}; known labels: {', '.join(sorted(_REGISTER))}") from None


# Table 6 gives seven of these. For the first three it gives no number and says only that
# invalid calls and wrong arguments get a larger one: those three are our choice.
declare(INVALID_TOOL_CALL, 2.0)
declare(ARGUMENT_MISMATCH, 1.5)
declare(RECOVERY_FAILURE, 1.2)
declare(SPURIOUS_TOOL_CALL, 2.0)
declare(CORRECT_ABSTENTION, 1.8, success=True)
declare(MISSING_TOOL_CALL, 1.5)
declare(EMPTY_TURN, 1.5)
declare(STATE_MISMATCH, 1.0)
declare(RESPONSE_MISMATCH, 0.9)
declare(INSTANCE_MISMATCH, 0.6)
declare(PASS, 1.0, success=True)
declare(CHECKER_ERROR, 1.0)
declare(GT_ERROR, 1.0)
declare(BUDGET_CUT, 1.0)
