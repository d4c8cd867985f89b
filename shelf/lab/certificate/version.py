"""Which version of the method a certificate was made by, and whether this checkout is that version."""

import subprocess
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from seal import __version__
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
    "seal/statistics",
    "seal/training/closed_loop.py",
    "seal/training/group.py",
    "shelf/lab/certificate",
)
"""Where everything stands that a verification computes with."""

LAST_WITHOUT_VERSION = "dba7bcd"
"""The last commit whose certificates name no version; it verifies all of them."""


def version() -> dict[str, str]:
    """What the head of a certificate says of the version that makes it.

    commit: of the checkout, "" in a copy without history. method: sha256 of the method's files.
    """
    return {"seal": __version__, "commit": _commit(), "method": method_digest()}


def method_digest() -> str:
    """sha256 over the names and the bytes of the method's files."""
    digest = sha256()
    for path in sorted(_files()):
        digest.update(f"{path.relative_to(HOME).as_posix()}\0".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def require_own(path: Path | str, head: Mapping[str, Any]) -> None:
    """ValueError, which names the commit to get, for a certificate of another version of the method."""
    if head.get("method") == method_digest():
        return
    commit = str(head.get("commit") or (LAST_WITHOUT_VERSION if "method" not in head else ""))
    if not commit:
        raise ValueError(
            f"{path} was made by SEAL {head.get('seal')} without a commit, and this is another version: verify it with "
            "the copy that made it."
        )
    short = commit[:12]
    raise ValueError(
        f"{path} was made by commit {short}, whose method differs from this version's: run "
        f"`git worktree add ../seal-{short} {short}`, install SEAL there, and verify it there."
    )


def _files() -> Iterator[Path]:
    for name in METHOD:
        path = HOME / name
        inside = path.rglob("*") if path.is_dir() else (path,)
        yield from (file for file in inside if file.suffix in (".py", ".json", ".toml", ".yaml") and file.is_file())


def _commit() -> str:
    """The commit of the checkout; "" without one."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
