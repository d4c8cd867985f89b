"""SEAL's part of a checkpoint: one JSON file in the step's folder, with a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seal.files import text_sha256, write_text

STATE_FILE = "seal_state.json"
STATE_VERSION = 1


class StateError(RuntimeError):
    """A checkpoint whose SEAL state is missing, damaged or of another version."""


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state atomically; creates the folder if needed."""
    body = json.dumps(state, sort_keys=True)
    envelope = {"version": STATE_VERSION, "sha256": text_sha256(body), "state": body}
    write_text(json.dumps(envelope), folder / STATE_FILE)


def load_state(folder: Path) -> dict[str, Any]:
    """Read a state; StateError names a file that is missing, damaged or of another version."""
    path = folder / STATE_FILE
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
        body, version = envelope["state"], envelope["version"]
        intact = envelope["sha256"] == text_sha256(body)
    except FileNotFoundError:
        raise StateError(
            f"{path} is missing: this checkpoint was not written by SEAL; start over in another experiment folder."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateError(f"{path} cannot be read: resume from an earlier global_step folder.") from None
    if not intact:
        raise StateError(f"{path} does not match its checksum: resume from an earlier global_step folder.")
    if version != STATE_VERSION:
        raise StateError(
            f"{path} has version {version} and this SEAL reads version {STATE_VERSION}: resume with the SEAL that "
            "wrote it (launcher_record has its commit)."
        )
    return json.loads(body)
