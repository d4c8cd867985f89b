"""Held-out scores of finished runs as arrays: seeds x tasks for one outcome."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd

from seal.records.source import categories_to_average, data_source, parse_data_source, scenario_of
from seal.system.grouping import grouped
from shelf.lab.experiment.design import OutcomeMeasure
from shelf.lab.experiment.records import RunResult, TaskScore
from shelf.statistics.summary import AVERAGE


class Panel(NamedTuple):
    """One outcome of some runs. values: (S, n), one row per run and one column per task that all of them scored.

    scenarios, sources, weights: (n,), those of each task. left_out: the number of tasks that some run lacks.
    """

    values: np.ndarray
    scenarios: np.ndarray
    sources: np.ndarray
    weights: np.ndarray
    left_out: int

    @property
    def means(self) -> np.ndarray:
        """(S,): the mean of each run, weighted as in the interval."""
        kinds = np.unique(self.sources)
        parts = [
            np.average(self.values[:, self.sources == kind], axis=1, weights=self.weights[self.sources == kind])
            for kind in kinds
        ]
        return np.mean(parts, axis=0)


def common_steps(results: Sequence[RunResult], outcome: OutcomeMeasure) -> list[int]:
    """The steps, ascending, at which every run validated the outcome's set; ValueError if there are none."""
    found = [set(_steps(result, outcome)) for result in results]
    steps = sorted(set.intersection(*found)) if found else []
    if not steps:
        raise ValueError(f"the runs validated {outcome.set} at no common step")
    return steps


def panel(results: Sequence[RunResult], outcome: OutcomeMeasure) -> Panel:
    """The outcome of some runs, each at its own last validation unless the outcome names a step.

    An area is taken over the steps that the runs have in common. ValueError if a run lacks a validation that counts.
    """
    if outcome.step is None and not outcome.area:
        ends = [_steps(result, outcome)[-1:] for result in results]
        if not all(ends):
            raise ValueError(f"a run was never validated on {outcome.set}")
        return _panel(results, outcome, ends)
    steps = common_steps(results, outcome)
    last = steps[-1] if outcome.step is None else outcome.step
    if last not in steps:
        raise ValueError(
            f"not every run validated {outcome.set} at step {last}; common steps are {', '.join(map(str, steps))}"
        )
    chosen = [step for step in steps if step <= last] if outcome.area else [last]
    if outcome.area and len(chosen) == 1:
        raise ValueError(f"the runs have one validation of {outcome.set} in common, and one has no area under a curve")
    return _panel(results, outcome, [chosen] * len(results))


def panels_by_step(results: Sequence[RunResult], outcome: OutcomeMeasure) -> dict[int, Panel]:
    """The outcome of some runs at each of their common steps."""
    return {step: _panel(results, outcome, [[step]] * len(results)) for step in common_steps(results, outcome)}


def _panel(results: Sequence[RunResult], outcome: OutcomeMeasure, steps: Sequence[Sequence[int]]) -> Panel:
    """steps: for each run, the steps over which its scores are taken."""
    rate, only = _RATES[outcome.metric], outcome.only
    columns = {
        (run, step): {
            (each.source, task): score
            for each in _validations(result, outcome)
            if each.step == step
            for task, score in each.tasks.items()
            if only is None or task in only
        }
        for run, result in enumerate(results)
        for step in steps[run]
    }
    every = pd.DataFrame({at: {key: rate(score) for key, score in own.items()} for at, own in columns.items()})
    whole = every.dropna()
    if whole.empty:
        raise ValueError(f"the runs have no task of {outcome.set} in common")
    values = np.stack([_over_steps(whole[run].to_numpy(), steps[run]) for run in range(len(results))])
    sources = np.array([source for source, _task in whole.index])
    scores = grouped(pair for own in columns.values() for pair in own.items())
    scenarios = [scenario_of(parse_data_source(key[0])[0], key[1], scores[key][0].cluster) for key in whole.index]
    weights = np.ones(len(whole))
    if outcome.metric == "turns":  # a simulated user may need another number of turns in each run
        weights = np.array([fmean(score.turns / score.samples for score in scores[key]) for key in whole.index])
    return Panel(values, np.array(scenarios).astype(str), sources, weights, len(every) - len(whole))


def _over_steps(values: np.ndarray, steps: Sequence[int]) -> np.ndarray:
    """(n,): the mean height of the curve through values (n, steps); for a single step, its value."""
    if len(steps) == 1:
        return values[:, 0]
    return np.trapezoid(values, steps, axis=1) / (steps[-1] - steps[0])


def _steps(result: RunResult, outcome: OutcomeMeasure) -> list[int]:
    return sorted({each.step for each in _validations(result, outcome)})


def _validations(result: RunResult, outcome: OutcomeMeasure):
    name, _, turns = outcome.set.partition("@")
    chosen = {outcome.set}
    if name == AVERAGE:
        prefix = int(turns) if turns else -1
        sources = [parse_data_source(each.source) for each in result.validations]
        categories = categories_to_average(category for category, found in sources if found == prefix)
        chosen = {data_source(category, prefix) for category in categories}
    return [each for each in result.validations if each.source in chosen]


_RATES: dict[str, Callable[[TaskScore], float]] = {
    "pass": lambda score: score.passed / score.samples,
    "turns": lambda score: score.turns_met / score.turns if score.turns else np.nan,
}
