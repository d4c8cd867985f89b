"""The task of a logged trajectory: the benchmark's, or a synthesised one from the files that its run names."""

from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.task_file import MadeTask
from seal.settings import task_files
from seal.system.jsonl import Line, read_jsonl
from seal.system.paths import HOME


def task_of(task_id: str, launches: Path | None) -> Task:
    """The task of this id; launches: the log that says which task files its run used.

    ValueError for one that is not the benchmark's and that no file holds any more.
    """
    task = load_tasks().get(task_id)
    if task is not None:
        return task
    if not task_id.startswith("synth_"):
        raise ValueError(f"{task_id} is not a task of the benchmark.")
    if launches is None or not launches.is_file():
        raise ValueError(f"{task_id} is synthesised, and the run has no launches.jsonl that names its task file.")
    files = _files(launches, launches.stat().st_mtime_ns)
    found = (_made(path, path.stat().st_mtime_ns, task_id) for path in files if path.is_file())
    task = next((each for each in found if each is not None), None)
    if task is None:
        gone = [path for path in files if not path.is_file()]
        if gone:
            raise ValueError(f"the task file {gone[0]} is gone: put it back to play {task_id} again.")
        named = ", ".join(map(str, files)) or "none"
        raise ValueError(f"{task_id} is in none of the run's task files ({named}): they have changed since.")
    return task


@lru_cache(maxsize=16)
def _files(launches: Path, _changed: int) -> tuple[Path, ...]:
    """The task files of a run, those of its last launch first."""
    configs = [line.value["config"] for line in read_jsonl(launches) if isinstance(line, Line)]
    return tuple(dict.fromkeys(HOME / file for config in reversed(configs) for file in task_files(config)))


@lru_cache(maxsize=256)
def _made(path: Path, _changed: int, task_id: str) -> Task | None:
    """One task of a file, the same object each time, so that its reference runs once; None if it is not in there."""
    wanted = task_id.encode()
    with path.open("rb") as file:
        for raw in file:
            if wanted not in raw:
                continue
            try:
                made = MadeTask.model_validate_json(raw)
            except ValidationError:
                continue  # another line may be whole
            if made.id == task_id == made.content_id():
                return made.task
    return None
