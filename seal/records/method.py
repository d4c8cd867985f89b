"""The code that decides what a run computes, as one hash: a launch records it, `seal verify` compares it."""

from collections.abc import Iterator
from pathlib import Path

from seal.system.files import file_sha256, json_hash
from seal.system.paths import HOME

METHOD = (
    "env_service",
    "seal/data",
    "seal/method",
    "seal/records",
    "seal/rollout",
    "seal/settings",
    "seal/training",
)
"""The folders that decide what a run computes."""


def method_digest() -> str:
    """One hash over the names and the bytes of the method's files."""
    return json_hash({path.relative_to(HOME).as_posix(): file_sha256(path) for path in _method_files()})


def _method_files() -> Iterator[Path]:
    for name in METHOD:
        path = HOME / name
        inside = path.rglob("*") if path.is_dir() else (path,)
        yield from (file for file in inside if file.suffix in (".py", ".json", ".toml", ".yaml") and file.is_file())
