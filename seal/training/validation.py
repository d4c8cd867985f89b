"""The validation average, by which checkpoints are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from seal.records.source import WHOLE, parse_data_source
from seal.records.trajectory import TrajectoryRecord


def validation_averages(records: Sequence[TrajectoryRecord]) -> tuple[float, float] | None:
    """Pass shares averaged over categories: of whole tasks, and of prefixes of tasks; 0 if there are none.

    Trajectories that infrastructure failed are left out; None if nothing else is there.
    """
    shares: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        if record.infra is None:
            shares[record.data_source].append(record.passed)
    if not shares:
        return None
    whole = {source: passed for source, passed in shares.items() if parse_data_source(source)[1] == WHOLE}
    prefixes = {source: passed for source, passed in shares.items() if source not in whole}
    return _mean(whole), _mean(prefixes)


def _mean(shares: dict[str, list[bool]]) -> float:
    return sum(sum(passed) / len(passed) for passed in shares.values()) / len(shares) if shares else 0.0
