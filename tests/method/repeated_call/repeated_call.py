"""The paper's labels and repeated_call: the same failed call was made again in one turn."""

from collections.abc import Mapping, Sequence

from seal.method import labels
from seal.method.diagnosis.evidence import TurnEvidence
from seal.method.diagnosis.rules import Extension, Rule, with_rule


def repeated(turn: TurnEvidence) -> str | None:
    """A reason when a failed call of this turn was made again unchanged."""
    failed = []
    for call in turn.calls:
        if (call.name, call.arguments) in failed:
            return f"{call.name} failed and was called again unchanged"
        if call.failed:
            failed.append((call.name, call.arguments))
    return None


def worst(turns: Sequence[str], rho: Mapping[str, float]) -> float:
    """The largest utility of a trajectory's labels, in place of their mean."""
    return max(rho[label] for label in turns)


LABEL = labels.declare("repeated_call", utility=1.4)
CUE = {
    "kind": "guideline",
    "label": LABEL.name,
    "text": "A call that failed fails again unchanged: change it or ask.",
    "compact": "Never repeat a failed call unchanged.",
}
EXTENSION = Extension(
    rules=with_rule(Rule("repeated", LABEL.name, repeated), before=labels.STATE_MISMATCH),
    cues={"vary_calls": CUE},
    weigh=worst,
)
