"""The benchmark with an additional answer for the viewer's service: the state after each logged turn.

The simulators are exact and deterministic, so a log does not have to hold states.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from env_service.answers import Evaluation
from env_service.environments.base import EnvironmentEpisode, Guard
from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.bfcl.verifier import NOT_RUN, reference

MAX_ROWS = 400
MAX_TEXT = 2000
MAX_DEPTH = 40
_LINKS = frozenset({"parent"})
"""Attributes that point back up a tree."""

Leaves = dict[str, Any]


class SimulatedBenchmark(BfclEnvironment):
    """If `params.evidence` holds the evidence of the turns, /evaluate also returns their states (`states`)."""

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> EnvironmentEpisode:
        """Start an episode as the benchmark does."""
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
    """By user turn: the reference's calls, the results that differ from the log (pairs of position and result), and
    the rows of `compare`."""
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


def leaves(instances: Mapping[str, Any]) -> Leaves:
    """Every public value of the simulators by its path: ``GorillaFileSystem.root.contents.file.txt``."""
    return {path: value for name in sorted(instances) for path, value in _walk(name, instances[name], MAX_DEPTH)}


def compare(before: Leaves, after: Leaves, expected: Leaves) -> dict[str, Any]:
    """The values that a turn changed, or that differ from the reference's after the turn.

    rows: path, the existing ones of the three values, whether it is as expected. left_out: rows beyond MAX_ROWS.
    """
    every = dict.fromkeys([*expected, *after, *before])
    paths = [path for path in every if _differ(before, after, path) or _differ(after, expected, path)]
    paths.sort(key=lambda path: not _differ(after, expected, path))
    states = {"before": before, "after": after, "expected": expected}
    rows = [
        {"path": path, "equal": not _differ(after, expected, path)}
        | {name: state[path] for name, state in states.items() if path in state}
        for path in paths[:MAX_ROWS]
    ]
    return {"rows": rows, "left_out": max(0, len(paths) - MAX_ROWS)}


_ABSENT = object()


def _differ(one: Leaves, other: Leaves, path: str) -> bool:
    a, b = one.get(path, _ABSENT), other.get(path, _ABSENT)
    return type(a) is not type(b) or a != b


def _walk(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if depth == 0:
        yield path, "..."
        return
    if isinstance(value, Mapping):
        children = {str(key): item for key, item in value.items()}
    elif isinstance(value, list | tuple):
        if all(_is_scalar(item) for item in value) and len(value) <= 50:
            yield path, [_scalar(item) for item in value]
            return
        children = {str(number): item for number, item in enumerate(value)}
    elif _is_scalar(value) or not hasattr(value, "__dict__"):
        yield path, _scalar(value)
        return
    else:
        children = {name: item for name, item in vars(value).items() if name[0] != "_" and name not in _LINKS}
    if not children:
        yield path, "(empty)"
    for name, item in children.items():
        yield from _walk(f"{path}.{name}", item, depth - 1)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value if abs(int(value or 0)) < 2**53 else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
