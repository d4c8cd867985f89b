"""Blocks of the public release's /create that ask for hints, read as an Omega.

The release's clients send ``observation_lite`` (what the tools imply) and
``tool_feedback_evolution`` (recovery hints and guidelines by failure type). Both are
mapped onto the cues that do the same here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seal.interface.cues import Omega, catalogue
from seal.labels import SYNONYMS

_OBSERVATION = ("schema_required", "schema_types", "schema_values", "schema_format")
_FEEDBACK = ("feedback_error", "feedback_tools", "feedback_answer")
_SWITCHES = {
    "required": ("schema_required",),
    "types": ("schema_types",),
    "enum": ("schema_values",),
    "format": ("schema_format",),
}
_LABEL_LISTS = ("labels", "failure_tags", "active_labels")


def omega_of_release(params: Mapping[str, Any]) -> Omega | None:
    """The Omega that a release client's /create params ask for; None when they ask for none.

    Each block is true, false, null or an object with ``enabled`` (true when left out).
    In ``observation_lite``, a false switch whose name holds required, types, enum or
    format turns that cue off. In ``tool_feedback_evolution``, a list under labels,
    failure_tags or active_labels turns on the guidelines of those labels. Other keys
    have no counterpart and are ignored. Raises ValueError for a block of another shape.
    """
    observation = _block(params, "observation_lite")
    feedback = _block(params, "tool_feedback_evolution")
    if observation is None and feedback is None:
        return None
    cues: set[str] = set()
    if observation is not None:
        cues.update(_OBSERVATION)
        for key, value in observation.items():
            cues -= {cue for part, own in _SWITCHES.items() if part in key and value is False for cue in own}
    if feedback is not None:
        cues.update(_FEEDBACK)
        labels = {SYNONYMS.get(label, label) for key in _LABEL_LISTS for label in feedback.get(key) or ()}
        cues.update(cue.name for cue in catalogue().values() if cue.kind == "guideline" and cue.label in labels)
    return Omega.of(cues)


def _block(params: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    block = params.get(name)
    if block is None or block is False:
        return None
    if block is True:
        return {}
    if not isinstance(block, Mapping):
        raise ValueError(f"{name}: expected true, false or an object, got {block!r}")
    return block if block.get("enabled", True) else None
