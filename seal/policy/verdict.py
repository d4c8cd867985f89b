"""The official verdict on tasks that are not in the benchmark's files: variants of its tasks.

The service's verifier keeps the reference run of each task by its id; a variant
shares the id but not the reference, so here the reference runs beside the
calls. The comparisons are the verifier's own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from env_service.environments.bfcl.verifier import Comparison, ReferenceTurn, compare, verdict

Calls = Sequence[Sequence[tuple[str, Mapping[str, Any]]]]
"""Calls by turn, as (name, arguments)."""


def passes(task: Task, calls: Calls) -> bool:
    """Whether the calls, turn by turn, are a valid answer to the task; fewer turns than the task has never are."""
    model, expected = Toolbox(task), Toolbox(task, label="ground_truth")
    results: list[str] = []
    comparisons: list[Comparison] = []
    for made, reference in zip(calls, task.reference, strict=False):
        results += [_run(model, name, arguments) for name, arguments in made]
        wanted = tuple(_run(expected, *parse_reference(call)) for call in reference)
        turn = ReferenceTurn(wanted, expected.instances, error=None)
        comparisons.append(compare(turn, model.instances, bool(made), results))
    return verdict(task, comparisons, ended=True)


def reference_passes(task: Task) -> bool:
    """Whether a task's reference is a valid answer to the task itself."""
    return passes(task, [[parse_reference(call) for call in turn] for turn in task.reference])


def _run(toolbox: Toolbox, name: str, arguments: Mapping[str, Any]) -> str:
    # Two tools change a list that they are given: each call gets its own copy.
    return toolbox.call(name, copy.deepcopy(dict(arguments))).text
