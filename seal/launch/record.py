"""`launcher_record/<name>/<time>/`: enough to know what ran, and to run it again."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seal.files import file_sha256
from seal.paths import HOME

logger = logging.getLogger(__name__)

WHOLE_HASH = 1 << 30
HEAD = 1 << 20
"""Bytes: up to WHOLE_HASH a file of weights is hashed whole, else its size and its first HEAD bytes are."""


TRAINER_CONFIG = "trainer.yaml"


def write_record(
    config: DictConfig, trainer: DictConfig, recipe: Path, overrides: Sequence[str], command: Sequence[str]
) -> Path:
    """Write the record of a launch and return its folder.

    config: as composed. trainer: the same with the keys of a resume, as the
    training process reads it.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    parent = HOME / "launcher_record" / config.trainer.experiment_name
    folder = parent / stamp
    attempt = 1
    while folder.exists():
        attempt += 1
        folder = parent / f"{stamp}-{attempt}"
    folder.mkdir(parents=True)
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    OmegaConf.save(trainer, folder / TRAINER_CONFIG, resolve=True)
    (folder / "recipe.yaml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "diff.patch").write_text(_git("diff", "HEAD"), encoding="utf-8")
    facts = {
        "command": shlex.join(command),
        "overrides": list(overrides),
        "commit": _git("rev-parse", "HEAD").strip(),
        "untracked": _git("ls-files", "--others", "--exclude-standard").splitlines(),
        "python": sys.version.split()[0],
        "host": platform.node(),
        "platform": platform.platform(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "hashes": _hashes(config),
        "packages": {d.name: d.version for d in sorted(distributions(), key=lambda d: d.name.lower())},
    }
    (folder / "launch.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return folder


def _hashes(config: DictConfig) -> dict[str, str]:
    """sha256 of the rows that are trained and validated on, and of the model's small files and its weights' heads."""
    model = HOME / Path(config.actor_rollout_ref.model.path).expanduser()
    found = {
        f"data/{Path(name).name}": file_sha256(HOME / name) for name in (config.data.train_files, config.data.val_files)
    }
    for path in sorted(model.glob("*")):
        if path.suffix in (".json", ".jinja"):
            found[f"model/{path.name}"] = file_sha256(path)
        elif path.suffix == ".safetensors":
            found[f"model/{path.name}"] = file_sha256(path) if path.stat().st_size < WHOLE_HASH else _head(path)
    return found


def _head(path: Path) -> str:
    """sha256 of a large file's size and first bytes; a safetensors file begins with its table of tensors."""
    with path.open("rb") as file:
        return hashlib.sha256(str(path.stat().st_size).encode() + file.read(HEAD)).hexdigest()


def add_service(folder: Path, version: dict) -> None:
    """Add the service's version and data hash to a record."""
    (folder / "service.json").write_text(json.dumps(version, indent=1), encoding="utf-8")


def _git(*arguments: str) -> str:
    # A copy without its history is no reason not to train; the record then says nothing of a commit.
    try:
        done = subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("the record of this launch says nothing of `git %s`: %s", shlex.join(arguments), error)
        return ""
    return done.stdout
