"""The splits of the benchmark's 800 multi-turn tasks: 200 scenarios in four variants.

``scenario`` (the default) gives every variant of a scenario to the same side, so nothing of the evaluation side is ever
seen in training. ``released_ids`` regenerates the public release's list of ids exactly; it leaks (344 of its 400
evaluation tasks have a sibling variant in train). Needs no package of the benchmark.
"""

import random
from collections.abc import Iterable, Mapping

from env_service.environments.base import Side
from seal.records.benchmark import CATEGORIES, MADE_CATEGORIES, SCENARIO_COUNT, parse_task_id, task_id

SPLITS: tuple[str, ...] = ("scenario", "released_ids")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split())


_EVAL_FIRST: tuple[int, ...] = _numbers(
    """
    1 6 7 8 11 17 20 22 23 24 25 26 28 31 35 39 40 41 49 50 53 55 56 57 58 59 62 67 68 70 71 74 75 86 87 88 89 90
    91 92 93 94 96 97 107 108 114 116 117 119 129 137 139 141 143 147 150 151 152 154 157 163 166 168 173 180 181
    182 185 188 189 190 191 197 199
    """
)
"""The evaluation side as the release orders it: 75 scenarios, then 25 more."""

_EVAL_LAST = _numbers("4 9 21 29 34 48 77 81 82 98 99 120 124 127 131 132 134 138 149 164 169 174 178 183 198")

EVAL_SCENARIOS: tuple[int, ...] = tuple(sorted(_EVAL_FIRST + _EVAL_LAST))
"""The 100 scenarios of the evaluation side, ascending."""

TRAIN_SCENARIOS: tuple[int, ...] = tuple(sorted({*range(SCENARIO_COUNT)} - {*EVAL_SCENARIOS}))
"""The 100 scenarios of the training side, ascending."""


def side_of(task: str) -> Side:
    """Return a task's side of the default split; synthesised tasks of the level train are on the training side."""
    category, scenario = parse_task_id(task)
    if category in MADE_CATEGORIES:
        return "train" if category.startswith("synth_train_") else "eval"
    return "train" if scenario in TRAIN_SCENARIOS else "eval"


def task_ids(split: str = "scenario") -> Mapping[Side, tuple[str, ...]]:
    """Return the task ids of both sides of a split, in file order: category after category.

    ``scenario`` lists scenarios ascending. ``released_ids`` shuffles one copy of the release's order per category with
    one generator seeded with 0 and cuts it in the middle.
    """
    if split == "scenario":
        sides = {"train": TRAIN_SCENARIOS, "eval": EVAL_SCENARIOS}
        return {side: _ids((c, s) for c in CATEGORIES for s in numbers) for side, numbers in sides.items()}
    if split == "released_ids":
        generator, orders = random.Random(0), {c: [*TRAIN_SCENARIOS, *_EVAL_FIRST, *_EVAL_LAST] for c in CATEGORIES}
        for order in orders.values():
            generator.shuffle(order)
        halves = {"train": slice(100), "eval": slice(100, None)}
        return {side: _ids((c, s) for c in CATEGORIES for s in orders[c][half]) for side, half in halves.items()}
    raise ValueError(f"The split {split!r} does not exist: choose one of {', '.join(SPLITS)}.")


def _ids(pairs: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    return tuple(task_id(category, scenario) for category, scenario in pairs)
