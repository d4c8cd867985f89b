"""The colours of labels, the same in the report's picture and in the viewer's light theme (web/src/style.css)."""

COLOURS = {
    "pass": "#2f9e78",
    "correct_abstention": "#86cbb3",
    "state_mismatch": "#2f7fc1",
    "missing_tool_call": "#d9822b",
    "empty_turn_model_response": "#d9822b",
    "invalid_tool_call": "#b3569b",
    "recovery_failure": "#c44536",
    "argument_mismatch": "#6c5fc7",
    "response_mismatch": "#55a9d6",
    "spurious_tool_call": "#8a6d3b",
    "instance_mismatch": "#3f4b4a",
}
OTHER = "#8b9695"
"""The colour of every other label."""


def colour(label: str) -> str:
    """The colour of a label, as #rrggbb."""
    return COLOURS.get(label, OTHER)
