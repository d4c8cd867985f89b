"""An environment with tool calls: a subclass supplies tasks, tools and worlds; everything else is here."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from env_service.environments.base import Call, Document, Guard, Json, Split, TaskFacts
from env_service.environments.kit.dialogue import ToolEpisode
from env_service.environments.kit.scene import Scene
from env_service.environments.kit.settings import EVALUATION_SPLITS, EpisodeParams, read_settings
from env_service.environments.kit.tasks import TaskSource, ToolTask
from seal.method.interface.secrets import Secrets


class ToolEnvironment(TaskSource):
    """An environment of tasks with tools: a subclass supplies what `TaskSource` asks for."""

    scene_type: ClassVar[type[Scene]] = Scene
    settings_type: ClassVar[type[EpisodeParams]] = EpisodeParams

    @cached_property
    def _tasks(self) -> Mapping[str, ToolTask]:
        tasks: dict[str, ToolTask] = {}
        for task in self.load():
            if task.id in tasks:
                raise ValueError(f"Two tasks of the environment {self.name} have the id {task.id!r}: rename one.")
            tasks[task.id] = task
        if not tasks:
            raise ValueError(f"The environment {self.name} has no tasks.")
        return tasks

    @cached_property
    def _facts(self) -> Sequence[TaskFacts]:
        return [task.facts for task in self._tasks.values()]

    def splits(self) -> Mapping[str, Split]:
        """Return the default split, whose sides share no group, and any further splits."""
        train, held_out = ({task.group for task in self._facts if task.side == side} for side in ("train", "eval"))
        default = Split(self.rule, held_out=train.isdisjoint(held_out))
        return {"default": default, **{name: split for name, (split, _) in self.further_splits().items()}}

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the ids of a category, of a side of a split, or of all tasks; ValueError lists the names."""
        known: dict[str, list[str]] = {}
        for task in self._facts:
            known.setdefault(task.category, []).append(task.id)
        known[""] = known["all"] = list(self._tasks)
        known["train"], held_out = ([t.id for t in self._facts if t.side == side] for side in ("train", "eval"))
        known |= {name: held_out for name in EVALUATION_SPLITS}
        for name, (_, sides) in self.further_splits().items():
            known |= {f"{name}_{side}": [self._task(task_id).id for task_id in ids] for side, ids in sides.items()}
        if split not in known:
            raise ValueError(f"split {split!r} is unknown; choose one of {', '.join(filter(None, known))}.")
        return known[split]

    def task(self, task_id: str) -> TaskFacts:
        return self._task(task_id).facts

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> ToolEpisode:
        """Start an episode of a task or, with params["turns"], of its first turns."""
        return ToolEpisode(self.scene(task_id, params), guard)

    def scene(self, task_id: str, params: Mapping[str, Any]) -> Scene:
        """The task as an episode with these parameters plays it; ValueError for bad parameters."""
        return self.task_scene(self._task(task_id), params)

    def task_scene(self, task: ToolTask, params: Mapping[str, Any]) -> Scene:
        """The same for a task that the environment does not have to know."""
        settings = read_settings(params, self.formats[0], self.settings_type)
        return self.scene_type(self, task if settings.turns is None else task.prefix(settings.turns), settings)

    def documents(self, task_id: str) -> Sequence[Document]:
        return self.described(self._task(task_id))

    def reference(self, task_id: str) -> Sequence[Sequence[Call]]:
        return self.calls(self._task(task_id))

    def secrets(self, task_id: str) -> Secrets:
        return self.task_secrets(self._task(task_id))

    def render(self, name: str, call: Call) -> str:
        return self.form(name).render_call(*call)

    def closing(self, name: str) -> str:
        """Return what ends a user turn: the stop tool's call, or an answer without a call."""
        return self.form(name).render_call(self.stop_tool, {}) if self.stop_tool else "Done."

    def prepare(self) -> Iterator[None]:
        yield
        len(self._tasks)

    def version(self) -> Json:
        return {"data_hash": self.data_hash(), **self.packages()}

    def _task(self, task_id: str) -> ToolTask:
        task = self._tasks.get(task_id)
        if task is None:
            raise ValueError(f"task_id {task_id!r} is unknown; ids of {self.name} look like {next(iter(self._tasks))}.")
        return task
