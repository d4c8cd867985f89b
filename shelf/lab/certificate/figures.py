"""The figures of one validation: rates with their intervals, by category, with and without the suspected items."""

import json
from collections.abc import Sequence
from typing import Any

from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.summary import summarise_step, suspected_tasks
from shelf.statistics.suspected import SuspectedItem
from shelf.statistics.tables import summary_record


def figures(records: Sequence[TrajectoryRecord], items: Sequence[SuspectedItem]) -> list[dict[str, Any]]:
    """The rows that `seal stats` gives for these trajectories of one validation, as JSON values."""
    suspected = suspected_tasks(records, items)
    rows = [summary_record(row, "with") for row in summarise_step(records)]
    if suspected:
        rows += [summary_record(row, "without") for row in summarise_step(records, suspected)]
    return json.loads(json.dumps(rows))
