"""The diagnosis function Psi: deterministic rules from evidence to labels (paper, Table 5).

A rule reads one turn and returns the reason why it fires, or None. A taxonomy is a tuple of rules in order of priority:
the first that fires gives the dominant label, all that fire are the signals. ``docs/how-it-works.md`` records the
decisions for cases that the paper leaves open, ``docs/extend.md`` shows how to add a rule.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from seal.method import labels
from seal.method.diagnosis import recovery
from seal.method.diagnosis.evidence import Blame, CallEvidence, TurnEvidence
from seal.method.diagnosis.extension import Extension, Rule, installed, load


@dataclass(frozen=True)
class Diagnosis:
    """z_i of one turn: the dominant label, all signals, the rule that decided, and whose fault it is."""

    turn: int
    label: str
    signals: tuple[str, ...]
    rule: str
    reason: str
    blame: Blame | None = None


def took_place(turn: TurnEvidence) -> bool:
    """Return whether the turn is part of tau: it took place and is over. One cut before the policy spoke did not."""
    cut = turn.stop in ("length", "step_limit")
    return turn.stop not in ("not_reached", "open") and not (cut and not turn.actions)


def _wanted(turn: TurnEvidence) -> bool:
    return turn.expected_calls > 0 or turn.judged == "dialogue"


def _unwanted(turn: TurnEvidence) -> bool:
    return turn.expected_calls == 0 and turn.judged == "turn"


def _compared(turn: TurnEvidence) -> tuple[CallEvidence, ...]:
    """The calls that led to what the verifier compared."""
    return (*turn.earlier, *turn.calls)


def _met(turn: TurnEvidence) -> bool:
    comparisons = (turn.state_match, turn.response_match)
    return _wanted(turn) and True in comparisons and False not in (*comparisons, turn.instances_match)


def _reference_failed(turn: TurnEvidence) -> str | None:
    return f"the reference failed: {turn.reference_error}" if turn.reference_error else None


def _verifier_met(turn: TurnEvidence) -> str | None:
    return "state and response meet the verifier" if _met(turn) else None


def _invalid_call(turn: TurnEvidence) -> str | None:
    if turn.judged == "passed":
        return None
    for action in turn.actions:
        if action.refusals and not action.truncated:  # no parser can read a message that a budget cut
            return f"the parser refused: {action.refusals[0]}"
    for call in turn.calls:
        if call.unavailable:
            return f"{call.name} is not an available tool"
    return None


def _invalid_arguments(turn: TurnEvidence) -> str | None:
    if _unwanted(turn) or turn.judged == "passed":  # no tool is the right one when nothing should be called
        return None
    for call in turn.calls:
        if call.unavailable:
            continue
        if call.violations:
            return f"{call.name}: {call.violations[0].message}"
        if call.error == "signature":
            return f"{call.name} refused its arguments"
    return None


def _budget_cut(turn: TurnEvidence) -> str | None:
    if not turn.cut or _met(turn) or _not_recovered(turn):
        return None
    if _unwanted(turn) and (turn.calls or _invalid_call(turn)):
        return None  # a call cannot be taken back, however the turn would have continued
    return f"a budget cut the turn ({turn.stop})"


def _other_state(turn: TurnEvidence) -> str | None:
    if not _wanted(turn) or turn.state_match is not False:
        return None
    succeeded = [call for call in _compared(turn) if not call.failed]
    if turn.needed_writes:  # reads cannot reach a state: without a write that worked, a needed call is missing
        succeeded = [call for call in succeeded if call.writes]
    return "calls executed, the state differs from the expected one" if succeeded else None


def _not_recovered(turn: TurnEvidence) -> str | None:
    if not _wanted(turn):
        return None
    errors = (recovery.ANY,) if turn.feedback_before else ()
    answered = False  # the policy acted after it had seen an error, and the error stayed open
    for action in turn.actions:
        if action.truncated and not action.calls:
            continue  # a budget cut the answer
        errors = recovery.still_open(errors, action)
        answered = bool(errors)
        errors += recovery.opened(action)
    return "error feedback was shown and the policy did not recover from it" if answered else None


def _missing_call(turn: TurnEvidence) -> str | None:
    if not _wanted(turn) or _met(turn):
        return None
    calls = _compared(turn)
    if not calls and turn.expected_calls:
        return "calls were needed and none was made"
    skipped: Counter[str] = Counter()
    if turn.response_match is False:
        skipped |= Counter(turn.absent) & (Counter(turn.needed) - Counter(call.name for call in calls))
    if turn.state_match is False:
        skipped |= Counter(turn.needed_writes) - Counter(call.name for call in calls if not call.failed)
    return f"needed and not called: {', '.join(sorted(skipped))}" if skipped else None


def _other_response(turn: TurnEvidence) -> str | None:
    calls = turn.calls or turn.judged == "dialogue"  # an answer without a call can lack what the user must be told
    if _wanted(turn) and calls and turn.response_match is False:
        if turn.judged == "dialogue" and not turn.absent:
            return "the user was not told what the task requires"
        return "the required result is not among the results obtained"
    return None


def _spurious_call(turn: TurnEvidence) -> str | None:
    return f"nothing should be called, {turn.calls[0].name} was" if _unwanted(turn) and turn.calls else None


def _abstained(turn: TurnEvidence) -> str | None:
    if _unwanted(turn) and not turn.calls and not any(a.refusals or a.truncated for a in turn.actions):
        return "nothing should be called and nothing was"
    return None


# Only the release's taxonomy has this rule and those that begin with _released.
def _other_instances(turn: TurnEvidence) -> str | None:
    differ = _wanted(turn) and turn.calls and turn.instances_match is False
    return "another set of simulator instances than the reference" if differ else None


def _released_abstention(turn: TurnEvidence) -> str | None:
    return "no call was made where none was needed" if _unwanted(turn) and not turn.calls else None


def _released_empty(turn: TurnEvidence) -> str | None:
    return "no call was made where calls were needed" if turn.expected_calls and not _compared(turn) else None


def _released_state(turn: TurnEvidence) -> str | None:
    return "the state differs from the expected one" if _wanted(turn) and turn.state_match is False else None


_GT = Rule("reference_failed", labels.GT_ERROR, _reference_failed)
_PASS = Rule("verifier_met", labels.PASS, _verifier_met)
_RESPONSE = Rule("other_response", labels.RESPONSE_MISMATCH, _other_response)
_SPURIOUS = Rule("spurious_call", labels.SPURIOUS_TOOL_CALL, _spurious_call)

PAPER = Extension(
    (
        _GT,
        _PASS,
        Rule("invalid_call", labels.INVALID_TOOL_CALL, _invalid_call),
        Rule("invalid_arguments", labels.ARGUMENT_MISMATCH, _invalid_arguments),
        Rule("budget_cut", labels.BUDGET_CUT, _budget_cut),
        Rule("other_state", labels.STATE_MISMATCH, _other_state),
        Rule("not_recovered", labels.RECOVERY_FAILURE, _not_recovered),
        Rule("missing_call", labels.MISSING_TOOL_CALL, _missing_call),
        _RESPONSE,
        _SPURIOUS,
        Rule("abstained", labels.CORRECT_ABSTENTION, _abstained),
    ),
    name="paper",
)
_RELEASE = Extension(
    (
        _GT,
        _SPURIOUS,
        Rule("released_abstention", labels.CORRECT_ABSTENTION, _released_abstention),
        Rule("released_empty", labels.EMPTY_TURN, _released_empty),
        Rule("other_instances", labels.INSTANCE_MISMATCH, _other_instances),
        Rule("released_state", labels.STATE_MISMATCH, _released_state),
        _RESPONSE,
        _PASS,
    ),
    name="release",
)
_BUILT_IN = {"paper": PAPER, "release": _RELEASE}


@cache
def taxonomy_of(name: str) -> Extension:
    """The taxonomy of that name; ValueError when it is unknown, or its package cannot be loaded or used."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name not in installed():
        known = ", ".join(sorted({*_BUILT_IN, *installed()}))
        raise ValueError(f"unknown diagnosis taxonomy {name!r}; choose one of: {known}")
    return load(name)


def extensions() -> Mapping[str, Extension]:
    """The usable extensions of installed packages; an unusable one is refused when a recipe names it."""
    loaded = {}
    for name in installed():
        with suppress(ValueError):
            loaded[name] = taxonomy_of(name)
    return loaded


def with_rule(rule: Rule, before: str | None = None, taxonomy: str | Sequence[Rule] = "paper") -> tuple[Rule, ...]:
    """The rules of a taxonomy (or these rules) and one more, before the first rule of the label ``before``, or last.

    To add several, give the result as ``taxonomy`` of the next call. ValueError for a label that is not declared
    (:func:`seal.method.labels.declare`) or, as ``before``, has no rule, an unknown taxonomy, and a name that is taken.
    """
    labels.get(rule.label)
    current = taxonomy_of(taxonomy).rules if isinstance(taxonomy, str) else tuple(taxonomy)
    if any(other.name == rule.name for other in current):
        raise ValueError(f"there is already a rule named {rule.name!r}: choose another name")
    order = [other.label for other in current]
    if before is not None and before not in order:
        raise ValueError(f"there is no rule for {before!r} to put {rule.name!r} before")
    at = order.index(before) if before is not None else len(order)
    return (*current[:at], rule, *current[at:])


def _diagnose(turn: TurnEvidence, order: tuple[Rule, ...]) -> Diagnosis:
    fired = [(rule, reason) for rule in order if (reason := rule.test(turn)) is not None]
    if not fired:
        reason = "the verifier compared nothing in this turn"
        return Diagnosis(turn.turn, labels.CHECKER_ERROR, (), "unjudged", reason, turn.blame)
    rule, reason = fired[0]
    signals = tuple(dict.fromkeys(other.label for other, _ in fired))
    return Diagnosis(turn.turn, rule.label, signals, rule.name, reason, turn.blame)


def diagnose(
    turns: Sequence[TurnEvidence], taxonomy: str = "paper", off: Collection[str] = ()
) -> tuple[Diagnosis, ...]:
    """Apply Psi to an episode: Z(tau), in the order of its turns.

    The paper's taxonomy labels only turns that took place: a turn that the policy was never shown, or has not finished,
    is not part of tau, so the result may be shorter than ``turns`` (always at its end). The release's taxonomy labels
    every turn, as the release did. off: labels that the environment cannot ground; their rules do not fire. Raises
    ValueError for an unknown taxonomy.
    """
    order = tuple(rule for rule in taxonomy_of(taxonomy).rules if rule.label not in off)
    every = taxonomy == "release"
    return tuple(_diagnose(turn, order) for turn in turns if every or took_place(turn))
