"""Simulators and official verdict for tasks that are not in the benchmark's files: variants of its tasks.

The service keeps the configuration and the reference run of each task by its
id; a variant shares the id but neither of these. So here simulators get the
task's own configuration, and the reference runs beside the calls. The
comparisons are the verifier's own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.tools import STATELESS_CLASSES, Toolbox, parse_reference
from env_service.environments.bfcl.verifier import Comparison, ReferenceTurn, compare, verdict

Calls = Sequence[Sequence[tuple[str, Mapping[str, Any]]]]
"""Calls by turn, as (name, arguments)."""


def load_config(toolbox: Toolbox, task: Task) -> None:
    """Put a variant's own configuration into simulators that were opened under its task's id."""
    for name, instance in toolbox.instances.items():
        config = task.initial_config.get(name, {})
        if name in STATELESS_CLASSES or config == load_tasks()[task.id].initial_config.get(name, {}):
            continue
        instance._load_scenario(copy.deepcopy(config), long_context=task.long_context)
        if task.long_context and name == "TravelAPI":
            # Its inflated scenario puts the module's own dictionaries in; variants must not share them.
            vars(instance).update(copy.deepcopy(vars(instance)))


def simulators(task: Task, label: str = "model") -> Toolbox:
    """The clean simulators of a task or of a variant."""
    toolbox = Toolbox(task, label)
    load_config(toolbox, task)
    return toolbox


def passes(task: Task, calls: Calls) -> bool:
    """Whether the calls, turn by turn, are a valid answer to the task; fewer turns than the task has never are."""
    model, expected = simulators(task), simulators(task, label="ground_truth")
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
