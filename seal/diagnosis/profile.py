"""C_t, the policy's failure profile: how often each label was seen, and with what reward.

Aggregates Z(tau) over trajectories (paper, section 3.2): totals of the run and a
window of recent steps. Values are immutable. Rewards are summed as whole
millionths and weights are whole parts of 1/1024, which floats add exactly, so that
sums do not depend on the order of trajectories and merging is associative to the
last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seal.labels import BROKEN, EXCLUDED

_MILLION = 1_000_000
_PARTS = 1024
_DEPTH = {"label": 1, "category": 1, "category_label": 2, "position_label": 2, "task": 1, "excluded": 1}


@dataclass(frozen=True)
class Trajectory:
    """What the profile needs to know of one rollout: its labels by turn and its terminal reward.

    weight: for how many rollouts it counts, 1 unless the step played others with a smaller
    probability (`seal.pilot`).
    """

    task_id: str
    category: str
    labels: tuple[str, ...]
    reward: float
    weight: float = 1.0


@dataclass(frozen=True)
class Cell:
    """Counts of one thing: how often it was seen, how often in rewarded trajectories, and the reward in millionths.

    ``successes`` counts those in trajectories with reward 1 or more. Each is the sum of the
    trajectories' weights, a whole number where all weights are.
    """

    count: float = 0
    successes: float = 0
    millionths: float = 0

    @classmethod
    def of(cls, trajectory: Trajectory) -> Cell:
        """Count one trajectory, with its weight rounded to whole parts of 1/1024."""
        parts = round(trajectory.weight * _PARTS)
        weight = parts / _PARTS if parts % _PARTS else parts // _PARTS
        millionths = round(trajectory.reward * _MILLION) * weight
        return cls(weight, weight if trajectory.reward >= 1 else 0, millionths)

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.count + other.count, self.successes + other.successes, self.millionths + other.millionths)

    @property
    def reward(self) -> float:
        """The sum of terminal rewards."""
        return self.millionths / _MILLION

    @property
    def mean(self) -> float:
        """The mean terminal reward; 0 when nothing was seen."""
        return self.reward / self.count if self.count else 0.0


@dataclass(frozen=True)
class Tally:
    """Cells by dimension and key. Labels count turns; categories and tasks count trajectories.

    Excluded labels are tallied separately and enter nothing else. A trajectory with a
    checker or reference error stays out of the categories and tasks, because its reward
    says nothing about the policy; its other turns still count by label.
    """

    cells: Mapping[tuple[str, ...], Cell]

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> Tally:
        """Tally trajectories; the result does not depend on their order."""
        cells: dict[tuple[str, ...], Cell] = {}

        def see(key: tuple[str, ...], cell: Cell) -> None:
            cells[key] = cells.get(key, Cell()) + cell

        for trajectory in trajectories:
            one = Cell.of(trajectory)
            for position, label in enumerate(trajectory.labels):
                if label in EXCLUDED:
                    see(("excluded", label), one)
                    continue
                see(("label", label), one)
                see(("category_label", trajectory.category, label), one)
                see(("position_label", str(position), label), one)
            if not BROKEN & set(trajectory.labels):
                see(("category", trajectory.category), one)
                see(("task", trajectory.task_id), one)
        return cls(cells)

    def __add__(self, other: Tally) -> Tally:
        cells = dict(self.cells)
        for key, cell in other.cells.items():
            cells[key] = cells.get(key, Cell()) + cell
        return Tally(cells)

    def _select(self, *prefix: str) -> dict[str, Cell]:
        found = [(key, cell) for key, cell in self.cells.items() if key[:-1] == prefix]
        return {key[-1]: cell for key, cell in sorted(found)}

    def labels(self, category: str | None = None) -> dict[str, Cell]:
        """Return cells by label, over everything or in one category, without excluded labels."""
        return self._select("label") if category is None else self._select("category_label", category)

    def positions(self) -> dict[int, dict[str, Cell]]:
        """Return cells by turn position (from 0) and label."""
        positions = sorted({int(key[1]) for key in self.cells if key[0] == "position_label"})
        return {position: self._select("position_label", str(position)) for position in positions}

    def categories(self) -> dict[str, Cell]:
        """Return trajectories by category."""
        return self._select("category")

    def tasks(self) -> dict[str, Cell]:
        """Return trajectories by task id."""
        return self._select("task")

    def excluded(self) -> dict[str, Cell]:
        """Return turns whose label is excluded, by that label."""
        return self._select("excluded")

    def turns(self, category: str | None = None) -> float:
        """Return the number of labelled turns, without excluded labels; a sum of weights, as all counts."""
        return sum(cell.count for cell in self.labels(category).values())

    def shares(self, category: str | None = None) -> dict[str, float]:
        """Return the prevalence s_z = n_z / sum n of each label seen."""
        turns = self.turns(category)
        return {label: cell.count / turns for label, cell in self.labels(category).items()}

    def to_json(self) -> dict[str, Any]:
        """Return {dimension: {key: [count, successes, millionths]}}, with two levels of keys for crossed dimensions."""
        out: dict[str, Any] = {dimension: {} for dimension in _DEPTH}
        for key in sorted(self.cells):
            cell = self.cells[key]
            at = out[key[0]]
            for part in key[1:-1]:
                at = at.setdefault(part, {})
            at[key[-1]] = [cell.count, cell.successes, cell.millionths]
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        """Rebuild a tally; ValueError for a dimension that does not exist."""
        cells = {}
        for dimension, entries in data.items():
            if dimension not in _DEPTH:
                raise ValueError(f"profile: unknown dimension {dimension!r}; it has {', '.join(_DEPTH)}")
            if _DEPTH[dimension] == 1:
                flat = {(key,): figures for key, figures in entries.items()}
            else:
                flat = {(key, last): figures for key, inner in entries.items() for last, figures in inner.items()}
            cells.update({(dimension, *key): Cell(*figures) for key, figures in flat.items()})
        return cls(cells)


@dataclass(frozen=True)
class Profile:
    """C_t: a tally of the whole run and one for each of the last ``window`` steps."""

    window: int
    steps: tuple[tuple[int, Tally], ...]
    totals: Tally

    @classmethod
    def empty(cls, window: int = 5) -> Profile:
        """Return the profile before anything was seen; ``window`` is in training steps."""
        if window < 1:
            raise ValueError(f"profile: the window must be at least one step, got {window}")
        return cls(window, (), Tally({}))

    def updated(self, step: int, trajectories: Iterable[Trajectory]) -> Profile:
        """Return the profile after these trajectories of one step; what leaves the window stays in the totals."""
        seen = Tally.of(trajectories)
        return self.merge(Profile(self.window, ((step, seen),), seen))

    def merge(self, other: Profile) -> Profile:
        """Combine two profiles (associative and commutative); ValueError when the windows differ."""
        if other.window != self.window:
            raise ValueError(f"profile: cannot merge windows of {self.window} and {other.window} steps")
        steps = dict(self.steps)
        for step, tally in other.steps:
            steps[step] = steps[step] + tally if step in steps else tally
        every = tuple((step, steps[step]) for step in sorted(steps))
        return Profile(self.window, every, self.totals + other.totals).within(self.window)

    def within(self, window: int) -> Profile:
        """Return the profile with another window; steps that have left a smaller window cannot come back."""
        oldest = max((step for step, _ in self.steps), default=0) - window
        return Profile(window, tuple((step, tally) for step, tally in self.steps if step > oldest), self.totals)

    def recent(self) -> Tally:
        """Return the tally of the last ``window`` steps, counted back from the latest step seen."""
        tally = Tally({})
        for _, step in self.steps:
            tally = tally + step
        return tally

    def total(self) -> Tally:
        """Return the tally of the whole run."""
        return self.totals

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with sorted keys; the inverse of :meth:`from_json`."""
        steps = [{"step": step, **tally.to_json()} for step, tally in self.steps]
        return {"window": self.window, "steps": steps, "total": self.totals.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Profile:
        """Rebuild a profile; ValueError when a key is missing or unknown."""
        for key in ("window", "steps", "total"):
            if key not in data:
                raise ValueError(f"profile: the key {key!r} is missing")
        steps = []
        for entry in data["steps"]:
            tally = {key: value for key, value in entry.items() if key != "step"}
            steps.append((int(entry["step"]), Tally.from_json(tally)))
        return cls(int(data["window"]), tuple(steps), Tally.from_json(data["total"]))
