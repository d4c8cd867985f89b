"""The averages of a validation."""

from collections.abc import Mapping, Sequence

from seal.records.source import WHOLE, categories_to_average, parse_data_source
from seal.records.trajectory import TrajectoryRecord
from seal.system.grouping import grouped


def validation_averages(records: Sequence[TrajectoryRecord]) -> tuple[float | None, float | None] | None:
    """Pass shares averaged over categories: of whole tasks, and of prefixes of tasks; None for a kind without any.

    As in every table, the averages cover the benchmark's categories if there are any, else those of synthesised tasks.
    Trajectories that infrastructure failed are left out; None if nothing else is there.
    """
    shares = grouped((parse_data_source(each.data_source), each.passed) for each in records if each.infra is None)
    if not shares:
        return None
    whole = {source: passed for source, passed in shares.items() if source[1] == WHOLE}
    prefixes = {source: passed for source, passed in shares.items() if source not in whole}
    return _mean(whole), _mean(prefixes)


def environment_averages(records: Sequence[TrajectoryRecord]) -> dict[str, float | None]:
    """The pass share of whole tasks by environment, averaged over its categories; {} with a single environment."""
    whole = (record for record in records if record.infra is None and record.prefix == WHOLE)
    by_environment = grouped((record.environment, record) for record in whole)
    if len(by_environment) < 2:
        return {}
    return {name: validation_averages(found)[0] for name, found in sorted(by_environment.items())}


def _mean(shares: Mapping[tuple[str, int], list[bool]]) -> float | None:
    counted = categories_to_average(category for category, _ in shares)
    means = [sum(passed) / len(passed) for (category, _), passed in shares.items() if category in counted]
    return sum(means) / len(means) if means else None
