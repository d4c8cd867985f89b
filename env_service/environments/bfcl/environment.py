"""BFCL as an environment of the service."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.base import Guard, Json
from env_service.environments.bfcl.catalog import CATEGORIES, data_hash, load_tasks, package_version
from env_service.environments.bfcl.dialogue import BfclEpisode
from env_service.environments.bfcl.settings import read_settings
from env_service.environments.bfcl.verifier import reference


class BfclEnvironment:
    """The 800 multi-turn tasks of the Berkeley function-calling benchmark."""

    name = "bfcl"

    def task_ids(self, split: str) -> Sequence[str]:
        """Every id, or those of one category when `split` names one.

        Which tasks train and which evaluate is the business of the data's own split files.
        """
        tasks = load_tasks()
        if split in CATEGORIES:
            return [task.id for task in tasks.values() if task.category == split]
        return list(tasks)

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> BfclEpisode:
        """Start an episode of a task or, with params["turns"], of its first turns."""
        tasks = load_tasks()
        if task_id not in tasks:
            raise ValueError(f"task_id {task_id!r} is unknown; ids look like multi_turn_base_0.")
        settings = read_settings(dict(params))
        task = tasks[task_id]
        if settings.turns is not None:
            task = task.prefix(settings.turns)
        return BfclEpisode(task, settings, guard)

    def prepare(self) -> None:
        """Run every reference, so that no episode waits for it and memory stays where it starts."""
        for task in load_tasks().values():
            reference(task)
        gc.collect()
        gc.freeze()

    def version(self) -> Json:
        """The data's hash and the package's version."""
        return {"data_hash": data_hash(), "bfcl_eval": package_version()}
