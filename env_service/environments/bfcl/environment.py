"""BFCL as an environment of the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from env_service.environments.base import Call, Document, Guard, Json, Split, TaskFacts
from env_service.environments.bfcl import splits
from env_service.environments.bfcl.catalog import Task, available_tools, data_hash, load_tasks, package_version
from env_service.environments.bfcl.dialogue import BfclEpisode
from env_service.environments.bfcl.formats import format_names, get_format
from env_service.environments.bfcl.leaks import task_secrets
from env_service.environments.bfcl.settings import read_settings
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.bfcl.tools import WRITES, parse_reference
from env_service.environments.bfcl.verifier import reference
from env_service.environments.interface import EVALUATION_SPLITS
from seal.diagnosis.categories import CATEGORIES, MADE_CATEGORIES
from seal.interface.secrets import Secrets

MADE = "synth"
"""The split with every task of the task files."""


class BfclEnvironment:
    """The 800 multi-turn tasks of the Berkeley function-calling benchmark, and those of task files."""

    name = "bfcl"
    formats = format_names()
    writes = WRITES
    ungrounded: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._made: dict[str, Task] = {}

    def splits(self) -> Mapping[str, Split]:
        """Return the split by scenario, and the release's, which is not held out."""
        return {
            splits.DEFAULT_SPLIT: Split("All variants of a scenario are on one side.", held_out=True),
            "released_ids": Split("The ids of the public release; variants of a scenario are on both sides.", False),
        }

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the ids of a category or of one side of a split; the benchmark's without a split.

        train and val (test, eval) are the sides of the leak-free default split; synth
        has the tasks of task files, synth_<level>_<category> those of one category.
        ValueError lists the names if `split` is unknown.
        """
        ids = list(load_tasks())
        if split == MADE or split in MADE_CATEGORIES:
            return [task.id for task in self._made.values() if split in (MADE, task.category)]
        if split in CATEGORIES:
            return [task.id for task in load_tasks().values() if task.category == split]
        sides = {"": ids, "all": ids, "train": splits.task_ids()["train"]}
        sides |= {name: splits.task_ids()["eval"] for name in EVALUATION_SPLITS}
        sides |= {f"released_ids_{side}": held for side, held in splits.task_ids("released_ids").items()}
        if split not in sides:
            raise ValueError(
                f"split {split!r} is unknown; choose one of {', '.join(filter(None, (*CATEGORIES, *sides)))}."
            )
        return sides[split]

    def task(self, task_id: str) -> TaskFacts:
        """Return category, side, scenario and turns; ValueError for an unknown task."""
        task = self._task(task_id)
        return TaskFacts(task.id, task.category, splits.side_of(task.id), str(task.scenario), len(task.users))

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> BfclEpisode:
        """Start an episode of a task or, with params["turns"], of its first turns."""
        task = self._task(task_id)
        settings = read_settings(dict(params))
        if settings.turns is not None:
            task = task.prefix(settings.turns)
        return BfclEpisode(task, settings, guard)

    def documents(self, task_id: str) -> Sequence[Document]:
        """Return the documents of the tools that the first turn shows."""
        return available_tools(self._task(task_id), 0)

    def reference(self, task_id: str) -> Sequence[Sequence[Call]]:
        """Return the calls of the possible answer, by user turn."""
        return [[parse_reference(call) for call in calls] for calls in self._task(task_id).reference]

    def secrets(self, task_id: str) -> Secrets:
        """Return what the task's reference knows: calls, results, states, and withheld tools."""
        return task_secrets(self._task(task_id))

    def render(self, name: str, call: Call) -> str:
        """Return a call as a prompt mode writes it."""
        return get_format(name).render_call(*call)

    def closing(self, name: str) -> str:
        """Return an answer without a call, which ends the user turn in every mode."""
        return "Done."

    def prepare(self) -> Iterator[None]:
        """Run every reference once, so that episodes find it done and memory does not grow later."""
        for task in load_tasks().values():
            reference(task)
            yield

    def load_task_file(self, path: str) -> int:
        """Serve the tasks of a file too and return their number; ValueError for a bad file."""
        tasks = read_task_file(path)
        # A task that is known keeps its object, by which the verifier knows its reference.
        self._made |= {task.id: task.task for task in tasks if task.id not in self._made}
        return len(tasks)

    def version(self) -> Json:
        """Return the data's hash and the package's version."""
        return {"data_hash": data_hash(), "bfcl_eval": package_version()}

    def _task(self, task_id: str) -> Task:
        task = load_tasks().get(task_id) or self._made.get(task_id)
        if task is None:
            raise ValueError(_unknown(task_id))
        return task


def _unknown(task_id: str) -> str:
    if task_id.startswith(f"{MADE}_"):
        return f"task_id {task_id!r} is of no task file that this service has loaded: name its file in BFCL_TASK_FILES."
    return f"task_id {task_id!r} is unknown; ids look like multi_turn_base_0."
