"""The prompts of a step, when `seal.sampling` draws them: candidates from verl's data set, state in the checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

from seal.records.trajectory import TrajectoryRecord
from seal.sampling import Candidate, Draw, History, Outcome, draw
from seal.settings.sampling import SamplingSettings
from seal.training.group import Group


class PromptChoice:
    """Draws the rows of each step and learns from their outcomes.

    rows: the columns `data_source` and `extra_info` of the training data set, in its order.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], settings: SamplingSettings, seed: int):
        self._candidates = [_candidate(row) for row in rows]
        self._settings = settings
        self._seed = seed
        self._history = History.empty()

    def draw(self, step: int, count: int) -> list[Draw]:
        """The rows of a step; ValueError if there are too few."""
        return draw(self._candidates, self._history, step, count, self._seed, self._settings)

    def line(self, step: int, drawn: Sequence[Draw]) -> dict[str, Any]:
        """A step's line of `sampling.jsonl`: what was drawn, and why."""
        return {"step": step, "drawn": [self._drawn(each) for each in drawn]}

    def learn(self, step: int, records: Sequence[TrajectoryRecord], groups: Sequence[Group]) -> None:
        """Take in the outcomes of a step; trajectories that do not count say nothing."""
        counted = (record for record, group in zip(records, groups, strict=True) if group.counts)
        outcomes = [Outcome(record.task, record.data_source, record.score, record.inclusion) for record in counted]
        self._history = self._history.updated(step, outcomes, self._settings.half_life)

    @property
    def state(self) -> dict[str, Any]:
        """The history as JSON values, for the checkpoint."""
        return self._history.to_json()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        self._history = History.from_json(state)

    def _drawn(self, each: Draw) -> dict[str, Any]:
        (task_id, turns), source = self._candidates[each.index]
        figures = {"mean": each.mean, "variance": each.variance, "share": each.share}
        return {"task_id": task_id, "turns": turns, "data_source": source} | {
            k: round(v, 5) for k, v in figures.items()
        }


def _candidate(row: Mapping[str, Any]) -> Candidate:
    extra = row["extra_info"]
    return Candidate((extra["task_id"], int(extra["turns"])), row["data_source"])
