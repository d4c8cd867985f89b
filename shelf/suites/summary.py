"""Rates of a suite's results by category, with intervals, and paired comparisons of models on them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from seal.records.source import WHOLE
from seal.statistics.comparison import Comparison
from seal.statistics.intervals import Estimate, Observation, estimate, paired_difference, pass_hat_k
from seal.statistics.summary import AVERAGE
from shelf.suites.records import ItemRecord

SIMULATOR = "simulator_"
"""How causes begin that are the simulated user's."""


class Row(NamedTuple):
    """The rates of one category, or their average.

    items: those with a verdict; planned: all of them. samples: attempts with a verdict at each
    item (the fewest). pass_hat: the chance that k attempts at an item all pass, for k = 1, 2, ...
    simulator and infra: attempts without a verdict, by the simulated user's fault and by another
    technical failure. out_of_scope: attempts that the simulated user ended for want of an
    instruction; they keep their official verdict. causes: of all attempts without a verdict.
    """

    suite: str
    category: str
    planned: int
    items: int
    samples: int
    passed: int
    scored: int
    rate: Estimate | None
    pass_hat: tuple[float, ...]
    simulator: int
    infra: int
    out_of_scope: int
    causes: tuple[tuple[str, int], ...]

    @property
    def is_average(self) -> bool:
        """True for the row over all categories of a suite."""
        return self.category == AVERAGE

    @property
    def complete(self) -> bool:
        """Whether every attempt has a verdict."""
        return self.scored > 0 and not self.simulator and not self.infra


def summarise(records: Iterable[ItemRecord]) -> list[Row]:
    """A row for each category of each suite, in the order of the records, and for several their average."""
    suites: dict[str, dict[str, list[ItemRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        suites[record.suite][record.category].append(record)
    rows = []
    for suite, categories in suites.items():
        rows += [row_of(suite, category, [found]) for category, found in categories.items()]
        if len(categories) > 1:
            rows.append(row_of(suite, AVERAGE, list(categories.values())))
    return rows


def row_of(suite: str, name: str, strata: Sequence[Sequence[ItemRecord]]) -> Row:
    """The row of some categories, each of which weighs the same."""
    records = [record for stratum in strata for record in stratum]
    scored = [[record for record in stratum if record.infra is None] for stratum in strata]
    flat = [record for stratum in scored for record in stratum]
    attempts = [_attempts(stratum) for stratum in scored if stratum]
    samples = min((len(each) for tasks in attempts for each in tasks.values()), default=0)
    causes = Counter(record.infra for record in records if record.infra)
    simulator = sum(count for cause, count in causes.items() if cause.startswith(SIMULATOR))
    return Row(
        suite=suite,
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
    """The differences b - a on the items that both have, by category and averaged over the categories of each suite.

    Each side is its name and its records, of one evaluation or several (seeds). ValueError if
    they share no item.
    """
    sides = [[record for record in records if record.infra is None] for _name, records in (a, b)]
    places = [{(record.suite, record.category) for record in side} for side in sides]
    order = dict.fromkeys((record.suite, record.category) for record in sides[0])
    shared = [place for place in order if place in places[1]]
    rows = []
    for suite in dict.fromkeys(suite for suite, _category in shared):
        categories = [category for found, category in shared if found == suite]
        groups = {category: (category,) for category in categories}
        if len(categories) > 1:
            groups[AVERAGE] = tuple(categories)
        for name, chosen in groups.items():
            kept = [[each for each in side if each.suite == suite and each.category in chosen] for side in sides]
            rows.append(_compare(a[0], b[0], f"{suite}: {name}", name == AVERAGE, kept))
    if not rows:
        raise ValueError(f"{a[0]} and {b[0]} have no item in common: compare evaluations of the same suite.")
    return rows


def _compare(a: str, b: str, name: str, average: bool, sides: Sequence[Sequence[ItemRecord]]) -> Comparison:
    records = [record for side in sides for record in side]
    scores = [_means(side) for side in sides]
    clusters = {(record.category, record.item): record.group for record in records}
    strata = {key: key[0] for key in clusters}
    return Comparison(
        a=a,
        b=b,
        name=f"{AVERAGE} of {name.partition(':')[0]}" if average else name,
        prefix=WHOLE,
        pass_rate=paired_difference(*scores, clusters, strata),
        turn_rate=None,
        unpaired=len(set(scores[0]) ^ set(scores[1])),
    )


def _means(records: Iterable[ItemRecord]) -> dict[tuple[str, str], float]:
    """The share of passed attempts at each item, over samples and seeds."""
    values = [((record.category, record.item), float(record.passed)) for record in records]
    frame = pd.DataFrame({"key": [key for key, _ in values], "value": [value for _, value in values]})
    return frame.groupby("key")["value"].mean().to_dict()


def _attempts(records: Iterable[ItemRecord]) -> dict[tuple[str, str], list[bool]]:
    found: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for record in records:
        found[record.category, record.item].append(record.passed)
    return found


def _pass_hat(strata: Sequence[dict[tuple[str, str], list[bool]]], k: int) -> float:
    means = [sum(pass_hat_k(len(each), sum(each), k) for each in tasks.values()) / len(tasks) for tasks in strata]
    return sum(means) / len(means)
