"""C_t, the policy's failure profile: count and reward of each label over a window of steps (paper, section 3.2).

Values are immutable. Rewards are summed as whole millionths, so that sums do not depend on the order of trajectories.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from seal.method.labels import BROKEN, EXCLUDED

_MILLION = 1_000_000


class Rollout(NamedTuple):
    """One rollout that counts: Z(tau) by turn, r(tau), and the step whose Omega it was played with.

    profiled: False leaves it out of C_t. A teacher leaves out rollouts that saw cues, because an evaluation sees none.
    """

    category: str
    labels: tuple[str, ...]
    reward: float
    drawn: int = 0
    profiled: bool = True


@dataclass(frozen=True)
class Cell:
    """The number of sightings, and the sum of their terminal rewards in millionths."""

    count: int = 0
    millionths: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(self.count + other.count, self.millionths + other.millionths)

    @property
    def mean(self) -> float:
        """The mean terminal reward; 0 when nothing was seen."""
        return self.millionths / _MILLION / self.count if self.count else 0.0


@dataclass(frozen=True)
class Tally:
    """Turns by category and label, and trajectories by category.

    Excluded labels are not counted. A trajectory with a checker or reference error is not counted by category,
    because its reward says nothing about the policy; its other turns still count by label.
    """

    by_label: Mapping[tuple[str, str], Cell] = field(default_factory=dict)
    by_category: Mapping[str, Cell] = field(default_factory=dict)

    @classmethod
    def of(cls, trajectories: Iterable[Rollout]) -> Self:
        """Tally trajectories; the result does not depend on their order."""
        seen = [(each, Cell(1, round(each.reward * _MILLION))) for each in trajectories]
        turns = (((each.category, z), one) for each, one in seen for z in each.labels if z not in EXCLUDED)
        whole = ((each.category, one) for each, one in seen if not BROKEN & set(each.labels))
        return cls(_sums(turns), _sums(whole))

    def __add__(self, other: Self) -> Self:
        turns = _sums((*self.by_label.items(), *other.by_label.items()))
        return type(self)(turns, _sums((*self.by_category.items(), *other.by_category.items())))

    def labels(self, category: str | None = None) -> dict[str, Cell]:
        """Return cells by label, sorted, over everything or in one category."""
        cells = ((label, cell) for (seen_in, label), cell in self.by_label.items() if category in (None, seen_in))
        return dict(sorted(_sums(cells).items()))

    def to_json(self) -> dict[str, Any]:
        """Return {"category": {name: [count, millionths]}, "category_label": {name: {label: [count, millionths]}}}."""
        rows: dict[str, dict[str, list[int]]] = {}
        for (category, label), cell in sorted(self.by_label.items()):
            rows.setdefault(category, {})[label] = [cell.count, cell.millionths]
        whole = {category: [cell.count, cell.millionths] for category, cell in sorted(self.by_category.items())}
        return {"category": whole, "category_label": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        rows = data["category_label"].items()
        turns = {(name, label): Cell(*cell) for name, cells in rows for label, cell in cells.items()}
        return cls(turns, {name: Cell(*cell) for name, cell in data["category"].items()})


@dataclass(frozen=True)
class Profile:
    """C_t: a tally for each of the last ``window`` training steps."""

    window: int = 5
    steps: tuple[tuple[int, Tally], ...] = ()

    def after(self, step: int, trajectories: Iterable[Rollout]) -> Self:
        """Return the profile after these trajectories of one step."""
        tallies = dict(self.steps)
        tallies[step] = tallies.get(step, Tally()) + Tally.of(trajectories)
        return type(self)(self.window, tuple((at, tallies[at]) for at in sorted(tallies))).within(self.window)

    def within(self, window: int) -> Self:
        """Return the profile with another window; steps that have left a smaller window cannot come back."""
        oldest = max((step for step, _ in self.steps), default=0) - window
        return type(self)(window, tuple((step, tally) for step, tally in self.steps if step > oldest))

    def recent(self) -> Tally:
        """Return the tally of the last ``window`` steps, counted back from the latest step seen."""
        return sum((tally for _, tally in self.steps), Tally())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary, steps, categories and labels sorted; the inverse of :meth:`from_json`."""
        return {"window": self.window, "steps": [{"step": step, **tally.to_json()} for step, tally in self.steps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["window"], tuple((entry["step"], Tally.from_json(entry)) for entry in data["steps"]))


def _sums(cells: Iterable[tuple[Any, Cell]]) -> dict[Any, Cell]:
    sums: dict[Any, Cell] = {}
    for key, cell in cells:
        sums[key] = sums.get(key, Cell()) + cell
    return sums
