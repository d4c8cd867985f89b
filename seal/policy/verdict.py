"""Whether calls solve a task: the service's verdict, for tasks of the benchmark and their variants."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.bfcl.verifier import verify

Calls = Sequence[Sequence[tuple[str, Mapping[str, Any]]]]
"""Calls by turn, as (name, arguments)."""


def passes(task: Task, calls: Calls) -> bool:
    """Whether the calls, turn by turn, are a valid answer to the task; too few turns never are."""
    # Two tools change the list that they receive: each call gets its own copy.
    own = [[[(name, copy.deepcopy(dict(arguments))) for name, arguments in made]] for made in calls]
    return verify(task, own).valid


def reference_passes(task: Task) -> bool:
    """Whether a task's reference is a valid answer to the task itself."""
    return passes(task, [[parse_reference(call) for call in turn] for turn in task.reference])
