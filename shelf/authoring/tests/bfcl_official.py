"""The package's own checker, run in clean surroundings.

The package keeps simulators in its module's globals and lets them share
dictionaries and default arguments. Here every check starts as in a fresh process.
The service does not use this slow path; what validates the service does.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import long_context

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import simulator_class

_RUNS = itertools.count()


@dataclass(frozen=True)
class OfficialVerdict:
    """The checker's verdict; of a failure also its turn, its error type and the results of that turn's calls."""

    valid: bool
    turn: int | None = None
    error: str = ""
    results: tuple[str, ...] = ()


@cache
def _shared() -> tuple[Mapping[str, dict[str, Any]], Mapping[str, dict[str, Any]]]:
    shared = {name: value for name, value in vars(long_context).items() if isinstance(value, dict) and name.isupper()}
    return shared, copy.deepcopy(shared)


def check(task: Task, decoded: Sequence[Sequence[Sequence[str]]]) -> OfficialVerdict:
    """Judge the decoded calls (source texts by turn and message) of a complete run."""
    shared, pristine = _shared()
    for name, value in pristine.items():
        shared[name].clear()
        shared[name].update(copy.deepcopy(value))
    for default in simulator_class("TwitterAPI").post_tweet.__defaults__:
        default.clear()
    model = f"seal_{next(_RUNS)}"
    entry = {
        "id": task.id,
        "initial_config": dict(task.initial_config),
        "involved_classes": list(task.involved_classes),
    }
    turns = [[list(message) for message in turn] for turn in decoded]
    reference = [list(calls) for calls in task.reference]
    try:
        found = multi_turn_checker.multi_turn_checker(turns, reference, entry, task.category, model)
    except RecursionError:  # a directory copied into itself cannot be compared
        return OfficialVerdict(False)
    finally:
        for key in [key for key in vars(multi_turn_utils) if key.startswith(model)]:
            del vars(multi_turn_utils)[key]
    if found["valid"]:
        return OfficialVerdict(True)
    played = found.get("execution_result") or found["details"].get("execution_result")
    if played is not None:
        results = tuple(text for message in played[-1]["model"] for text in message)
        return OfficialVerdict(False, len(played) - 1, found["error_type"], results)
    # A missing response names its turn only in its text.
    turn = int(found["error_message"].rstrip(".").rsplit(" ", 1)[1])
    results = found["details"]["model_response (including all previous turns)"]
    return OfficialVerdict(False, turn, found["error_type"], tuple(results[-sum(map(len, turns[turn])) :]))
