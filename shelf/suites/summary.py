"""Rates of a suite's results by category, with intervals, and paired comparisons of models on them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seal.records.source import WHOLE
from seal.statistics.comparison import Comparison
from seal.statistics.intervals import Estimate, Observation, estimate, paired_difference, pass_hat_k
from seal.statistics.summary import AVERAGE
from shelf.suites.records import ItemRecord

SIMULATOR = "simulator_"
"""How causes begin that are the simulated user's."""


class Row(NamedTuple):
    """The rates of one category, or their average."""

    category: str
    planned: int
    """All items."""
    items: int
    """Those with a verdict."""
    samples: int
    """Attempts with a verdict at each item (the fewest)."""
    passed: int
    scored: int
    """Attempts with a verdict."""
    rate: Estimate | None
    pass_hat: tuple[float, ...]
    """The chance that k attempts at an item all pass, for k = 1, 2, ..."""
    simulator: int
    """Attempts without a verdict by the simulated user's fault."""
    infra: int
    """Attempts without a verdict by another technical failure."""
    out_of_scope: int
    """Attempts that the simulated user ended for want of an instruction; they keep their official verdict."""
    causes: tuple[tuple[str, int], ...]
    """Of all attempts without a verdict."""

    @property
    def is_average(self) -> bool:
        """True for the row over all categories of a suite."""
        return self.category == AVERAGE


def summarise(records: Iterable[ItemRecord]) -> list[Row]:
    """A row for each category of a suite, in the order of the records, and for several their average."""
    categories: dict[str, list[ItemRecord]] = defaultdict(list)
    for record in records:
        categories[record.category].append(record)
    rows = [_row(category, [stratum]) for category, stratum in categories.items()]
    return rows if len(rows) < 2 else [*rows, _row(AVERAGE, list(categories.values()))]


def _row(name: str, strata: Sequence[Sequence[ItemRecord]]) -> Row:
    """The row of some categories, each of which weighs the same."""
    records = [record for stratum in strata for record in stratum]
    scored = [[record for record in stratum if record.infra is None] for stratum in strata]
    flat = [record for stratum in scored for record in stratum]
    attempts = [_attempts(stratum) for stratum in scored if stratum]
    samples = min((len(each) for tasks in attempts for each in tasks.values()), default=0)
    causes = Counter(record.infra for record in records if record.infra)
    simulator = sum(count for cause, count in causes.items() if cause.startswith(SIMULATOR))
    return Row(
        category=name,
        planned=len({(record.category, record.item) for record in records}),
        items=sum(map(len, attempts)),
        samples=samples,
        passed=sum(record.passed for record in flat),
        scored=len(flat),
        rate=estimate([[Observation(record.group, float(record.passed)) for record in each] for each in scored]),
        pass_hat=tuple(_pass_hat(attempts, k) for k in range(1, samples + 1)),
        simulator=simulator,
        infra=len(records) - len(flat) - simulator,
        out_of_scope=sum(record.stop == "user_out_of_scope" for record in flat),
        causes=tuple(causes.most_common()),
    )


def compare(a: tuple[str, Sequence[ItemRecord]], b: tuple[str, Sequence[ItemRecord]]) -> list[Comparison]:
    """The differences b - a on the items that both have, by category and averaged over the categories.

    Each side is its name and its records, of one evaluation or several (seeds). ValueError if
    they share no item.
    """
    sides = [[record for record in records if record.infra is None] for _name, records in (a, b)]
    first, second = (dict.fromkeys(record.category for record in side) for side in sides)
    shared = [name for name in first if name in second]
    if not shared:
        raise ValueError(f"{a[0]} and {b[0]} have no item in common: compare evaluations of the same suite.")
    groups = {name: (name,) for name in shared} | ({AVERAGE: tuple(shared)} if len(shared) > 1 else {})
    rows = []
    for name, chosen in groups.items():
        kept = [[record for record in side if record.category in chosen] for side in sides]
        scores = [_means(side) for side in kept]
        clusters = {(record.category, record.item): record.group for side in kept for record in side}
        difference = paired_difference(*scores, clusters, {key: key[0] for key in clusters})
        unpaired = len(set(scores[0]) ^ set(scores[1]))
        rows.append(Comparison(a[0], b[0], name, WHOLE, difference, turn_rate=None, unpaired=unpaired))
    return rows


def _means(records: Iterable[ItemRecord]) -> dict[tuple[str, str], float]:
    """The share of passed attempts at each item, over samples and seeds."""
    return {item: sum(passed) / len(passed) for item, passed in _attempts(records).items()}


def _attempts(records: Iterable[ItemRecord]) -> dict[tuple[str, str], list[bool]]:
    found: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for record in records:
        found[record.category, record.item].append(record.passed)
    return found


def _pass_hat(strata: Sequence[dict[tuple[str, str], list[bool]]], k: int) -> float:
    means = [sum(pass_hat_k(len(each), sum(each), k) for each in tasks.values()) / len(tasks) for tasks in strata]
    return sum(means) / len(means)
