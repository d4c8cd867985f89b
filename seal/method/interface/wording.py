"""The wording of the interface: the texts of ``cues.toml`` and what a prompt mode adds to them."""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class PromptWording:
    """A prompt mode's rules for writing calls and answers, in words that cues can give to the policy.

    call_format: one or two sentences with an example in which TOOL, ARGUMENT and VALUE stand for the real ones.
    answer_format: how to answer without a call, to be read after "If no tool fits, ...". compact: cues are short.
    """

    call_format: str
    answer_format: str = "answer in plain text without a call"
    compact: bool = False

    @property
    def size(self) -> str:
        """The key of this mode's wording in ``cues.toml``."""
        return "compact" if self.compact else "text"

    def values(self) -> dict[str, str]:
        """The texts that the mode fills into a cue, by placeholder."""
        return {"call_format": self.call_format, "answer_format": self.answer_format}


def _source() -> bytes:
    return resources.files("seal.method.interface").joinpath("cues.toml").read_bytes()


@cache
def wording() -> Mapping[str, Any]:
    """The data file: cues, errors and history, each by name."""
    return tomllib.loads(_source().decode())


@cache
def wording_digest() -> str:
    return hashlib.sha256(_source()).hexdigest()


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its {placeholders} replaced; those without a value stay."""
    # Not str.format: values hold the policy's own text, braces included.
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)


def placeholders(template: str) -> tuple[str, ...]:
    """Names of the {placeholders} of a template."""
    return tuple(re.findall(r"\{(\w+)\}", template))


def templates() -> Iterator[str]:
    """Every text of the data file, in both sizes."""
    for section in wording().values():
        for entry in section.values():
            yield from (entry[size] for size in ("text", "compact") if size in entry)
