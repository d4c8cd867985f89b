"""The parameters of one BFCL episode: `params` of /create, checked.

Clients of the public release ask for hints with two other blocks, which are mapped onto the cues that do the same.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

from pydantic import ConfigDict

from env_service.environments.kit.settings import EpisodeParams, ParseErrors
from seal.method.interface.cues import Omega, catalogue
from seal.method.labels import SYNONYMS

_OBSERVATION = ("schema_required", "schema_types", "schema_values", "schema_format")
_FEEDBACK = ("feedback_error", "feedback_tools", "feedback_answer")
_SWITCHES = {"required": "schema_required", "types": "schema_types", "enum": "schema_values", "format": "schema_format"}
_LABEL_LISTS = ("labels", "failure_tags", "active_labels")

Block = bool | dict[str, Any] | None
"""true, false, null or an object with `enabled` (true when left out)."""


class BfclSettings(EpisodeParams):
    """`params` of /create. Keys that are not listed here, from other clients, are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    terminate_on_parse_error: bool = False
    """An unreadable call ends the episode."""
    day: date | None = None
    """The date that the simulators see, for a replay; today's by default."""
    observation_lite: Block = None
    """The release's cues on the tools; a switch that is false (for required, types, enum or format) omits that cue."""
    tool_feedback_evolution: Block = None
    """The release's feedback; labels, failure_tags or active_labels list the labels whose guidelines are on."""

    def on_parse_error(self, category: str) -> ParseErrors:
        return "end_episode" if self.terminate_on_parse_error else super().on_parse_error(category)

    def requested(self) -> Mapping[str, Any] | Omega | None:
        """Omega as sent, or as a release client's blocks ask for it; None when they ask for none."""
        observation, feedback = _block(self.observation_lite), _block(self.tool_feedback_evolution)
        if self.omega is not None or (observation is None and feedback is None):
            return self.omega
        cues: set[str] = set()
        if observation is not None:
            off = [key for key, value in observation.items() if value is False]
            cues |= {*_OBSERVATION} - {cue for part, cue in _SWITCHES.items() if any(part in key for key in off)}
        if feedback is not None:
            labels = {SYNONYMS.get(label, label) for key in _LABEL_LISTS for label in feedback.get(key) or ()}
            cues |= {*_FEEDBACK}
            cues |= {cue.name for cue in catalogue().values() if cue.kind == "guideline" and cue.label in labels}
        return Omega.of(cues)


def _block(block: Block) -> Mapping[str, Any] | None:
    if isinstance(block, dict):
        return block if block.get("enabled", True) else None
    return {} if block else None
