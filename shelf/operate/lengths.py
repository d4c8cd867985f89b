"""Lengths of the chosen tasks in tokens: their first prompts, and what their references add.

No tokenizer is loaded. Words, single digits and marks each count as a token, and each message adds MESSAGE tokens: on
the benchmark's 800 tasks in `bfcl_qwen_fc`, that is within 2 % of Qwen2.5's tokenizer (first prompts 5,197 to 5,266,
with every cue 6,023 to 6,026, after the prompt 3,266 to 3,294).
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from env_service.environments.base import Guard
from env_service.environments.registry import get_environment
from seal.data.rows import TaskRow
from seal.launch.recipe import Recipe
from seal.method.diagnosis.categories import BENCHMARK
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import cues_in_use
from shelf.patient_user import opened, said

PIECE = re.compile(r" ?[^\W\d_]+|\d| ?[^\s\w]+|_|\s+")
MESSAGE = 5
"""Tokens around a message."""


class Length(NamedTuple):
    """Tokens of a task: its first prompt, everything after it if the reference is played, and a user's part."""

    prompt: int
    rest: int
    part: int = 0


def tokens(text: str) -> int:
    """The approximate number of tokens in a message."""
    return len(PIECE.findall(text)) + MESSAGE


def lengths(recipe: Recipe, rows: Sequence[TaskRow], cues: bool) -> list[Length]:
    """The length of each row, with every cue that training may show in its prompt, or with none."""
    for file in recipe.task_files:
        get_environment(BENCHMARK).load_task_file(file)
    settings, evolve = recipe.settings, recipe.settings.interface.evolve

    def params(environment: str) -> dict[str, Any]:
        used = cues_in_use(evolve, taxonomy_of(settings.diagnosis.taxonomy), environment)
        shown = [cue.name for cue in used if settings.closed_loop or cue.kind not in evolve.adaptive]
        seen = {"split": "train", "omega": Omega.of(shown).to_json()} if cues else {"split": "eval"}
        user = {"user": True} if settings.user.base_url is not None else {}
        return {**seen, **user, "tool_prompt_mode": recipe.service.mode(environment)}

    return [_length(row, params(row.environment)) for row in rows]


def _length(row: TaskRow, params: dict[str, Any]) -> Length:
    if row.turns > 0:
        params["turns"] = row.turns
    environment = get_environment(row.environment)
    episode = opened(environment, row.task_id, params, Guard())
    opening = episode.start()
    prompt, rest = sum(tokens(message["content"]) for message in opening["state"]), 0
    for text in said(environment, environment.reference(row.task_id), params["tool_prompt_mode"]):
        answer = episode.step(text, False)
        rest += tokens(text) + sum(tokens(message["content"]) for message in answer["state"])
        if answer["is_terminated"]:
            break
    told = opening.get("user", {"messages": [], "tools": []})
    part = sum(tokens(message["content"]) for message in told["messages"]) + sum(tokens(str(t)) for t in told["tools"])
    return Length(prompt, rest, part)
