"""The domains of tau2-bench, as the package's data folder holds them."""

import json
from pathlib import Path

from seal.system.files import file_sha256, json_hash

SOLO = "telecom_solo"
"""Telecom without a user: the agent gets a ticket instead."""

WITH_USER = ("airline", "retail", "telecom")
DOMAINS = (*WITH_USER, SOLO)
SPLIT = "base"
"""The tool's own evaluation set: 50, 114 and 114 tasks."""


def folder_of(data: Path, domain: str) -> Path:
    """The domain's folder in the package."""
    return data / "tau2" / "domains" / domain.removesuffix("_solo")


def read_task_ids(data: Path, domain: str, limit: int | None = None) -> list[str]:
    """The ids of the domain's tasks in the tool's order, at most `limit`."""
    folder = folder_of(data, domain)
    split = set(json.loads((folder / "split_tasks.json").read_text(encoding="utf-8"))[SPLIT])
    tasks = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    return [task["id"] for task in tasks if task["id"] in split and (domain != SOLO or task.get("ticket"))][:limit]


def data_hash(data: Path) -> str:
    """sha256 over the tasks, databases and policies of all domains, and over the simulator's guidelines."""
    files = sorted(path for path in (data / "tau2").rglob("*") if path.suffix in _TEXTS)
    return json_hash({path.relative_to(data).as_posix(): file_sha256(path) for path in files})


_TEXTS = (".json", ".toml", ".md")
