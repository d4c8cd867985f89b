"""The parameters of one BFCL episode: `params` of /create, checked."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.release import omega_of_release
from env_service.environments.interface import ParseErrors, parse_errors, permitted
from seal.diagnosis.rules import rules
from seal.interface.cues import Omega


class Settings(BaseModel):
    """`params` of /create. Keys of other clients that are not listed here are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    split: str = ""
    omega: dict[str, Any] | None = None
    tool_prompt_mode: str = "bfcl_qwen_fc"
    turns: int | None = None
    enforce_available_tools: bool | None = None
    max_steps: int = Field(default=20, ge=1, le=1000)
    taxonomy: str = "paper"
    parse_errors: ParseErrors | None = None
    terminate_on_parse_error: bool = False
    leak_guard: bool = False
    observation_lite: bool | dict[str, Any] | None = None
    tool_feedback_evolution: bool | dict[str, Any] | None = None

    @property
    def training(self) -> bool:
        """True when a learning interface travels with the episode, an empty one included."""
        return self.interface() is not None

    @property
    def official(self) -> bool:
        """True when the episode must treat every message as the official pipeline does."""
        return not self.training and self.split != "train"

    @property
    def enforces_availability(self) -> bool:
        """Whether calls of tools that are not visible are refused: by default in training only."""
        return self.training if self.enforce_available_tools is None else self.enforce_available_tools

    def on_parse_error(self, category: str) -> ParseErrors:
        """By default feedback while a cue gives feedback to tasks of this category, else the official end of turn."""
        if self.terminate_on_parse_error:
            return "end_episode"
        return self.parse_errors or parse_errors(self.interface(), category)

    def interface(self) -> Omega | None:
        """Omega as sent, or as a release client's blocks ask for it.

        ValueError names the key at fault, or the split that must run without one.
        """
        blocks = {"observation_lite": self.observation_lite, "tool_feedback_evolution": self.tool_feedback_evolution}
        asked = omega_of_release(blocks)
        return permitted(asked if self.omega is None else self.omega, self.split)


def read_settings(params: dict[str, Any]) -> Settings:
    """Check `params`; ValueError says which key is wrong and why."""
    try:
        settings = Settings.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"params.{where}: {first['msg']}.") from None
    get_format(settings.tool_prompt_mode)
    rules(settings.taxonomy)
    return settings
