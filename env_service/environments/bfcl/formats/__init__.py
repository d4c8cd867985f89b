"""Tool-prompt and parser modes, one file each, found by name."""

from __future__ import annotations

from collections.abc import Mapping

from env_service.environments.base import Call
from env_service.environments.bfcl.formats.base import Format
from env_service.environments.bfcl.formats.compact import CompactArgumentsFormat, CompactFormat
from env_service.environments.bfcl.formats.envtuning import EnvTuningFormat
from env_service.environments.bfcl.formats.llama import LlamaFormat
from env_service.environments.bfcl.formats.qwen import QwenFormat
from env_service.environments.bfcl.formats.toolace import ToolaceFormat

__all__ = ["ALIASES", "Call", "Format", "format_names", "get_format"]

_FORMATS: Mapping[str, Format] = {
    form.name: form
    for form in (
        QwenFormat(),
        CompactFormat(),
        CompactArgumentsFormat(),
        LlamaFormat(),
        ToolaceFormat(),
        EnvTuningFormat(),
    )
}
ALIASES = {"toolace_fc": "toolace_official_prompt"}


def format_names() -> tuple[str, ...]:
    """Return all modes, the default first."""
    return tuple(_FORMATS)


def get_format(name: str) -> Format:
    """Return the mode of that name; ValueError lists the known ones."""
    try:
        return _FORMATS[ALIASES.get(name, name)]
    except KeyError:
        known = ", ".join((*_FORMATS, *ALIASES))
        raise ValueError(f"tool_prompt_mode {name!r} is unknown; choose one of {known}.") from None
