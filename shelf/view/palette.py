"""The colours of labels, the same in the report's picture and in the viewer's light theme (web/src/style.css)."""

from seal.labels import (
    ARGUMENT_MISMATCH,
    CORRECT_ABSTENTION,
    EMPTY_TURN,
    INSTANCE_MISMATCH,
    INVALID_TOOL_CALL,
    MISSING_TOOL_CALL,
    PASS,
    RECOVERY_FAILURE,
    RESPONSE_MISMATCH,
    SPURIOUS_TOOL_CALL,
    STATE_MISMATCH,
)

COLOURS = {
    PASS: "#2f9e78",
    CORRECT_ABSTENTION: "#86cbb3",
    STATE_MISMATCH: "#2f7fc1",
    MISSING_TOOL_CALL: "#d9822b",
    EMPTY_TURN: "#d9822b",
    INVALID_TOOL_CALL: "#b3569b",
    RECOVERY_FAILURE: "#c44536",
    ARGUMENT_MISMATCH: "#6c5fc7",
    RESPONSE_MISMATCH: "#55a9d6",
    SPURIOUS_TOOL_CALL: "#8a6d3b",
    INSTANCE_MISMATCH: "#3f4b4a",
}
OTHER = "#8b9695"
"""The colour of every other label."""


def colour(label: str) -> str:
    """The colour of a label, as #rrggbb."""
    return COLOURS.get(label, OTHER)
