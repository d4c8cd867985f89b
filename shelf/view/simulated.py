"""The benchmark with a further answer, for the viewer's service: the state that each call of a logged turn left.

The simulators are exact and deterministic, so a log needs to hold no state.
"""

from collections.abc import Mapping
from typing import Any

from env_service.answers import Evaluation
from env_service.environments.base import EnvironmentEpisode, Guard
from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.bfcl.verifier import reference
from shelf.view.state import compare, leaves

NOT_RUN = ("unavailable", "deadline")
"""Errors of calls that never reached a simulator."""


class SimulatedBenchmark(BfclEnvironment):
    """Evaluates with `params.evidence`, that of the turns, to their states (`states`)."""

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> EnvironmentEpisode:
        """Start an episode, as the benchmark does."""
        task = self._task(task_id)
        turns = params.get("turns")
        return _Simulated(super().open(task_id, params, guard), task if turns is None else task.prefix(turns))


class _Simulated:
    def __init__(self, episode: EnvironmentEpisode, task: Task) -> None:
        self._episode, self._task = episode, task
        self.start, self.step, self.describe = episode.start, episode.step, episode.describe

    def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float | dict[str, Any]:
        evaluation = self._episode.evaluate(params)
        if "evidence" in params:
            evaluation = {**evaluation, "states": states(self._task, params["evidence"])}
        return evaluation


def states(task: Task, evidence: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By user turn the reference's calls, the results that differ from the log (pairs of position and result), and
    the rows of `state.compare`."""
    toolbox, expected, turns = Toolbox(task), reference(task), []
    after = leaves(toolbox.instances)
    for turn, wanted, calls in zip(evidence, expected, task.reference, strict=False):
        if turn["stop"] == "not_reached":
            break
        before, other = after, []
        made = [call for action in turn["actions"] for call in action["calls"]]
        for position, call in enumerate(made):
            if call["error"] in NOT_RUN:
                continue
            result = toolbox.call(call["name"], call["arguments"]).text
            if result != call["result"]:
                other.append([position, result])
        after = leaves(toolbox.instances)
        state = compare(before, after, leaves(wanted.instances))
        turns.append({"turn": turn["turn"], "reference": list(calls), "other_results": other, "state": state})
    return turns
