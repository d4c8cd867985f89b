"""The synthesised task of a logged trajectory, from the files that its run names."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from env_service.environments.bfcl.task_file import MadeTask
from seal.settings.data import names_environment
from seal.system.jsonl import Line, read_jsonl
from seal.system.paths import HOME


def task_line(task_id: str, launches: Path | None) -> dict[str, Any]:
    """The line of a task file that holds this task; launches: the log that says which task files its run used.

    ValueError if no file holds it any more.
    """
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


def task_files(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of synthesised tasks that a run's configuration names, also one of an earlier version.

    Relative ones are below the checkout, where the launcher works.
    """
    named = list(config["env_service"].get("task_files") or ())
    data = config["seal"]["data"]
    for selection in (data["train"], *data["val"], data.get("withdrawal")):
        mixture = (selection or {}).get("mixture") or ()
        sources = [mixture] if isinstance(mixture, Mapping) else mixture
        named += [source["tasks"] for source in sources if not names_environment(source["tasks"])]
    return tuple(dict.fromkeys(named))


@lru_cache(maxsize=16)
def _files(launches: Path, _changed: int) -> tuple[Path, ...]:
    """The task files of a run, those of its last launch first."""
    configs = [line.value["config"] for line in read_jsonl(launches) if isinstance(line, Line)]
    return tuple(dict.fromkeys(HOME / file for config in reversed(configs) for file in task_files(config)))


@lru_cache(maxsize=256)
def _made(path: Path, _changed: int, task_id: str) -> dict[str, Any] | None:
    """The line of one task of a file; None if it is not in there."""
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
                return made.model_dump(mode="json")
    return None
