"""Which version of the method a run was trained by and its certificate made by, and whether this checkout is that."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seal import __version__
from seal.launch.method import method_digest
from seal.system.paths import HOME

OWN = ("shelf/lab/certificate", "shelf/statistics", "shelf/view/again.py")
"""What a verification computes with beside the method."""

LAST_WITHOUT_VERSION = "dba7bcd"
"""The last commit whose certificates name no version; it verifies all of them."""


def version() -> dict[str, str]:
    """What the head of a certificate says of the version that makes it.

    commit: of the checkout, "" in a copy without history. method: sha256 of what a verification computes with.
    """
    return {"seal": __version__, "commit": _commit(), "method": method_digest(*OWN)}


def require_own(path: Path | str, head: Mapping[str, Any]) -> None:
    """ValueError, which names the commit to get, for a certificate of another version of the method."""
    if head.get("method") != method_digest(*OWN):
        commit = head.get("commit") or ("" if "method" in head else LAST_WITHOUT_VERSION)
        raise ValueError(_other(f"{path} was made", head, commit, "verify"))


def require_trained_by_own(run: Path, launch: Mapping[str, Any]) -> None:
    """ValueError, which names the commit to get, for a launch of another version of the method."""
    if launch.get("method") != method_digest():
        raise ValueError(_other(f"{run} was trained", launch, launch.get("commit"), "certify"))


def _other(what: str, facts: Mapping[str, Any], commit: str | None, verb: str) -> str:
    if not commit:
        return (
            f"{what} by SEAL {facts.get('seal')} without a commit, and this is another version: {verb} it with the "
            "copy that made it."
        )
    short = commit[:12]
    return (
        f"{what} by commit {short}, whose method differs from this version's: run `git worktree add ../seal-{short} "
        f"{short}`, install SEAL there, and {verb} it there."
    )


def _commit() -> str:
    """The commit of the checkout; "" without one."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
