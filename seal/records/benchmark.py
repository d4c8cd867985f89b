"""The categories and task ids of BFCL's multi-turn benchmark, and of the tasks synthesised after it.

A task of the benchmark has the id ``multi_turn_<category>_<scenario>``, a synthesised one
``synth_<level>_<category>_<12 hex digits>``: the level is `train`, or says in what the task differs from training.
"""

import re
from typing import Literal, get_args

from seal.settings.data import Category

CATEGORIES: tuple[str, ...] = get_args(Category)
"""The four variants of a scenario of the benchmark, in the order of every table and file."""

SCENARIO_COUNT = 200

Level = Literal["train", "values", "phrases", "paths"]
LEVELS: tuple[str, ...] = get_args(Level)
"""The new parts of a synthesised task: none (training), values, some phrases too, or all phrases and call pairs."""

MADE_CATEGORIES: tuple[str, ...] = tuple(f"synth_{level}_{category}" for level in LEVELS for category in CATEGORIES)
"""The categories of synthesised tasks, which follow the benchmark's in every table."""

_MADE_ID = re.compile(rf"({'|'.join(MADE_CATEGORIES)})_([0-9a-f]{{12}})")
_TASK_ID = re.compile(rf"multi_turn_({'|'.join(CATEGORIES)})_(\d+)")


def task_id(category: str, scenario: int) -> str:
    """The benchmark's id of one variant of one scenario."""
    return f"multi_turn_{category}_{scenario}"


def parse_task_id(task: str) -> tuple[str, int]:
    """Category and scenario of a task id (past the benchmark's for a synthesised one); ValueError for anything else."""
    if made := _MADE_ID.fullmatch(task):
        return made[1], SCENARIO_COUNT + int(made[2], 16)
    match = _TASK_ID.fullmatch(task)
    if match is None or int(match[2]) >= SCENARIO_COUNT:
        raise ValueError(
            f"{task!r} is not a multi-turn task id: expected multi_turn_CATEGORY_N with CATEGORY one of "
            f"{', '.join(CATEGORIES)} and N below {SCENARIO_COUNT}, or the id of a synthesised task."
        )
    return match[1], int(match[2])


def variant(category: str) -> str:
    """The benchmark's variant to which a category, the benchmark's own or of synthesised tasks, belongs."""
    return category.split("_", 2)[2] if category in MADE_CATEGORIES else category
