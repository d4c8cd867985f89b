"""The version of the method that a checkout holds: one hash over the files that decide what a run computes."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from seal.system.paths import HOME

METHOD = (
    "env_service",
    "seal/data",
    "seal/diagnosis",
    "seal/interface",
    "seal/records",
    "seal/reweighting.py",
    "seal/rollout",
    "seal/settings",
    "seal/training/closed_loop.py",
    "seal/training/group.py",
    "seal/training/round.py",
)
"""Files and folders of the method."""


def method_digest() -> str:
    """sha256 over the names and the bytes of the method's files."""
    digest = sha256()
    for path in sorted(_files()):
        digest.update(f"{path.relative_to(HOME).as_posix()}\0".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for name in METHOD:
        path = HOME / name
        inside = path.rglob("*") if path.is_dir() else (path,)
        yield from (file for file in inside if file.suffix in (".py", ".json", ".toml", ".yaml") and file.is_file())
