"""BFCL as an environment of the service."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from env_service.environments.base import Call, Document, EnvironmentEpisode, Guard, Split
from env_service.environments.bfcl import clock, splits
from env_service.environments.bfcl.catalog import Task, available_tools, data_hash, load_tasks, package_version
from env_service.environments.bfcl.formats import FORMATS, format_names
from env_service.environments.bfcl.scene import BfclScene
from env_service.environments.bfcl.settings import BfclSettings
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.bfcl.tools import WRITES, Toolbox, parse_reference
from env_service.environments.bfcl.verifier import reference
from env_service.environments.kit.dialogue import ToolEpisode
from env_service.environments.kit.environment import ToolEnvironment
from seal.method.interface.secrets import Secrets, reference_secrets
from seal.records.benchmark import MADE_CATEGORIES

MADE = "synth"
"""The split with every task of the task files."""


class BfclEnvironment(ToolEnvironment):
    """The 800 multi-turn tasks of the Berkeley function-calling benchmark, and those of task files."""

    name = "bfcl"
    formats, forms = format_names(), FORMATS
    writes = WRITES
    rule = "All variants of a scenario are on one side."
    scene_type, settings_type = BfclScene, BfclSettings

    def __init__(self) -> None:
        self._made: dict[str, Task] = {}

    def load(self) -> Sequence[Task]:
        return tuple(load_tasks().values())

    def tools(self, task: Task) -> Sequence[Document]:
        return available_tools(task, 0)

    def world(self, task: Task) -> Toolbox:
        return Toolbox(task)

    def data_hash(self) -> str:
        return data_hash()

    def packages(self) -> Mapping[str, str]:
        return {"bfcl_eval": package_version()}

    def further_splits(self) -> Mapping[str, tuple[Split, Mapping[str, Sequence[str]]]]:
        rule = "The ids of the public release; variants of a scenario are on both sides."
        return {"released_ids": (Split(rule, held_out=False), splits.task_ids("released_ids"))}

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the ids of a category or of one side of a split; without a split, those of the benchmark.

        synth: the ids in task files; synth_<level>_<category>: one category of these. ValueError lists the known names.
        """
        if split == MADE or split in MADE_CATEGORIES:
            return [task.id for task in self._made.values() if split in (MADE, task.category)]
        return super().task_ids(split)

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> EnvironmentEpisode:
        """Start an episode of a task or, with params["turns"], of its first turns; params["day"] sets the date."""
        scene = self.scene(task_id, params)
        episode = ToolEpisode(scene, guard)
        return episode if scene.settings.day is None else clock.Dated(episode, scene.settings.day)

    def calls(self, task: Task) -> Sequence[Sequence[Call]]:
        return [[parse_reference(call) for call in calls] for calls in task.reference]

    def task_secrets(self, task: Task) -> Secrets:
        """Return what the reference knows: calls, results and states, and the tools that are withheld at first."""
        expected = reference(task)
        return reference_secrets(
            [call for calls in self.calls(task) for call in calls],
            [result for turn in expected for result in turn.results],
            [dict(task.initial_config), *(dict(turn.instances) for turn in expected)],
            [name for names in task.withheld.values() for name in names],
        )

    def prepare(self) -> Iterator[None]:
        """Run every reference once, so that episodes find the results ready and memory does not grow later."""
        for task in load_tasks().values():
            reference(task)
            yield

    def load_task_file(self, path: str) -> int:
        """Also serve the tasks of a file, and return their number; ValueError for a bad file."""
        tasks = read_task_file(path)
        # A known task keeps its object, because the verifier finds the cached reference by that object.
        self._made |= {task.id: task.task for task in tasks if task.id not in self._made}
        return len(tasks)

    def _task(self, task_id: str) -> Task:
        task = load_tasks().get(task_id) or self._made.get(task_id)
        if task is None and task_id.startswith(f"{MADE}_"):
            raise ValueError(
                f"task_id {task_id!r} is of no task file that this service has loaded: name its file in "
                "BFCL_TASK_FILES."
            )
        return task or super()._task(task_id)
