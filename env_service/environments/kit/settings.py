"""The parameters of an episode: `params` of /create, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from env_service.environments.interface import ParseErrors, parse_errors, permitted
from env_service.environments.kit.formats import get_format
from seal.diagnosis.rules import rules
from seal.interface.cues import Omega


class Settings(BaseModel):
    """`params` of /create. An unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: str = ""
    omega: dict[str, Any] | None = None
    tool_prompt_mode: str = ""
    turns: int | None = None
    enforce_available_tools: bool | None = None
    max_steps: int | None = Field(default=None, ge=1, le=1000)
    taxonomy: str = "paper"
    parse_errors: ParseErrors | None = None
    leak_guard: bool = False

    def interface(self) -> Omega | None:
        """Omega as sent; ValueError names the key at fault, or the split that must run without one."""
        return permitted(self.omega, self.split)

    def on_parse_error(self, omega: Omega | None, category: str) -> ParseErrors:
        """By default feedback while a cue gives feedback to tasks of this category, else the end of the turn."""
        return self.parse_errors or parse_errors(omega, category)


def read_settings(params: Mapping[str, Any], formats: tuple[str, ...]) -> Settings:
    """Check `params`; ValueError says which key is wrong and why. formats: those of the environment, default first."""
    try:
        settings = Settings.model_validate(dict(params))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ValueError(f"params.{where} is unknown; choose from {', '.join(Settings.model_fields)}.") from None
        raise ValueError(f"params.{where}: {first['msg']}.") from None
    if not settings.tool_prompt_mode:
        settings = settings.model_copy(update={"tool_prompt_mode": formats[0]})
    if settings.tool_prompt_mode not in formats:
        raise ValueError(
            f"tool_prompt_mode {settings.tool_prompt_mode!r} is unknown here; choose one of {', '.join(formats)}."
        )
    get_format(settings.tool_prompt_mode)
    rules(settings.taxonomy)
    return settings
