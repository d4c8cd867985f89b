"""What SEAL adds to a checkpoint: one JSON file in the step's folder, with a checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATE_FILE = "seal_state.json"


class StateError(RuntimeError):
    """A checkpoint whose SEAL state is missing, damaged or of another version."""


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state atomically; the folder is made when it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps(state, sort_keys=True)
    temporary = folder / f"{STATE_FILE}.tmp"
    temporary.write_text(json.dumps({"sha256": _checksum(body), "state": body}), encoding="utf-8")
    os.replace(temporary, folder / STATE_FILE)


def load_state(folder: Path) -> dict[str, Any]:
    """Read a state; StateError names the file when it is missing or damaged."""
    path = folder / STATE_FILE
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
        body = envelope["state"]
        if envelope["sha256"] != _checksum(body):
            raise StateError(f"{path} does not match its checksum: resume from an earlier global_step folder.")
        return json.loads(body)
    except FileNotFoundError:
        raise StateError(
            f"{path} is missing: this checkpoint was not written by SEAL; start over in another experiment folder."
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError):
        raise StateError(f"{path} cannot be read: resume from an earlier global_step folder.") from None


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
