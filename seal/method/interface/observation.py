"""phi_schema(F) and phi_cap(C_t): what Omega adds to the system text and to revealed tools.

The paper's section 3.3: ``o~ = o + phi_schema(F) + phi_err(o, H) + phi_cap(C)``. Nothing here or in ``feedback.py``
sees a task's reference, only the observation, the public documents of the tools and the policy's own actions.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from seal.method.interface.cues import Cue, Omega
from seal.method.interface.schema_cue import compact_schema, full_schema, required
from seal.method.interface.wording import PromptWording, fill

Tools = Sequence[Mapping[str, Any]]
"""Documents of the tools that the policy can see now."""

SCHEMA_TITLE, ADVICE_TITLE = "# Notes on the tools", "# Advice"


def observe_start(content: str, tools: Tools, omega: Omega, category: str, mode: PromptWording) -> str:
    """The system text with phi_schema(F) and phi_cap(C) added at its end; unchanged without an active cue."""
    schema, guidelines = omega.of_kind("schema", category), omega.of_kind("guideline", category)
    names, tools = {cue.name for cue in schema}, documents_of(omega, tools)
    notes, advice = _texts(schema, mode), _texts(guidelines, mode)
    if mode.compact:
        return "\n".join((content, *filter(None, (compact_schema(tools, names), *notes, *advice))))
    parts = ["\n".join((SCHEMA_TITLE, *notes, *full_schema(tools, names)))] if schema else []
    parts += ["\n".join((ADVICE_TITLE, *(f"- {text}" for text in advice)))] if guidelines else []
    return "\n\n".join((content, *parts))


def documents_of(omega: Omega, tools: Tools) -> Tools:
    """The documents that Omega's schema cues show. A control's draw depends only on the names.

    For each named tool that this list lacks, a control shows one other tool fewer, so that it shows as many in the
    start and in a reveal as the Omega that it controls.
    """
    if omega.tools is None:
        return tools
    named = [each for each in tools if each["name"] in omega.tools]
    if not omega.others:
        return named
    rest = [each for each in tools if each["name"] not in omega.tools and required(each)]
    rng = random.Random("/".join(("others", *(each["name"] for each in tools), *omega.tools)))
    count = omega.others - (len(omega.tools) - len(named))
    return rng.sample(rest, min(max(count, 0), len(rest)))


def _texts(cues: Sequence[Cue], mode: PromptWording) -> list[str]:
    return [fill(text, mode.values()) for cue in cues if (text := cue.wording(mode.compact))]


def observe_reveal(content: str, tools: Tools, omega: Omega, category: str, mode: PromptWording) -> str:
    """The message that announces new tools with phi_schema of these ``tools`` added at its end."""
    names, tools = {cue.name for cue in omega.of_kind("schema", category)}, documents_of(omega, tools)
    lines = [compact_schema(tools, names)] if mode.compact else full_schema(tools, names)
    return "\n".join((content, *filter(None, lines)))
