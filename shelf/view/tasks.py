"""The synthesised task of a logged trajectory, from the files that its run names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    configs = [line.value["config"] for line in read_jsonl(launches) if isinstance(line, Line)]
    files = dict.fromkeys(HOME / file for config in reversed(configs) for file in task_files(config))
    for path in filter(Path.is_file, files):
        for raw in path.read_bytes().splitlines():
            if task_id.encode() in raw:
                made = MadeTask.model_validate_json(raw)
                if made.id == task_id == made.content_id():
                    return made.model_dump(mode="json")
    if gone := [path for path in files if not path.is_file()]:
        raise ValueError(f"the task file {gone[0]} is gone: put it back to play {task_id} again.")
    named = ", ".join(map(str, files)) or "none"
    raise ValueError(f"{task_id} is in none of the run's task files ({named}): they have changed since.")


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
