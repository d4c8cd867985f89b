"""Data sources: the names under which whole tasks and prefixes of a category are counted."""

from collections.abc import Iterable
from zlib import crc32

from seal.method.diagnosis.categories import BENCHMARK, environment_of
from seal.records.benchmark import CATEGORIES, MADE_CATEGORIES, parse_task_id

ALL_CATEGORIES = CATEGORIES + MADE_CATEGORIES
"""The categories of the benchmark and of synthesised tasks, in the order of every table."""

WHOLE = -1
"""Stands for the whole task where a number of turns is expected."""

UNSCORED = "unscored"
"""Stands for the environment of rollouts without a reward: their turns have labels, they have no verdict."""


def categories_to_average(categories: Iterable[str]) -> tuple[str, ...]:
    """The categories over which a table averages: the benchmark's if there are any, else all that have verdicts."""
    present = order_categories(categories)
    present = tuple(category for category in present if environment_of(category) != UNSCORED) or present
    return tuple(category for category in present if category in CATEGORIES) or present


def order_categories(categories: Iterable[str]) -> tuple[str, ...]:
    """Each category once, in the order of every table: the benchmark's, synthesised tasks', other environments'."""
    found = set(categories)
    known = [category for category in ALL_CATEGORIES if category in found]
    return (*known, *sorted(found - set(known)))


def data_source(category: str, turns: int = WHOLE) -> str:
    """The category for whole tasks, ``category@k`` for prefixes of k turns."""
    return category if turns == WHOLE else f"{category}@{turns}"


def parse_data_source(source: str) -> tuple[str, int]:
    """Category and turns of a data source; ValueError with one sentence for an unknown category."""
    category, _, turns = source.partition("@")
    known = category in ALL_CATEGORIES or environment_of(category) != BENCHMARK
    if not known or (turns and not turns.isdigit()):
        raise ValueError(
            f"Unknown category {source!r}: expected one of {', '.join(CATEGORIES)}, CATEGORY@TURNS, or that of another "
            "environment as ENVIRONMENT/CATEGORY."
        )
    return category, int(turns) if turns else WHOLE


def scenario_of(category: str, task_id: str, cluster: int | None = None) -> int:
    """The scenario of a task; its variants in the benchmark's four categories share it.

    In another environment, the tasks of a cluster share it. ValueError for an id that is not one of the benchmark's.
    """
    environment = environment_of(category)
    if environment != BENCHMARK:
        return crc32(f"{environment}/{task_id if cluster is None else cluster}".encode())
    return parse_task_id(task_id)[1]
