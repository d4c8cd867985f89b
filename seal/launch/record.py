"""`launcher_record/<name>/<time>/`: enough to know what ran, and to run it again."""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seal.launch.recipe import HOME


def write_record(config: DictConfig, recipe: Path, overrides: Sequence[str], command: Sequence[str]) -> Path:
    """Write the record of a launch and return its folder."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    parent = HOME / "launcher_record" / config.trainer.experiment_name
    folder = parent / stamp
    attempt = 1
    while folder.exists():
        attempt += 1
        folder = parent / f"{stamp}-{attempt}"
    folder.mkdir(parents=True)
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    (folder / "recipe.yaml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "diff.patch").write_text(_git("diff", "HEAD"), encoding="utf-8")
    facts = {
        "command": shlex.join(command),
        "overrides": list(overrides),
        "commit": _git("rev-parse", "HEAD").strip(),
        "python": sys.version.split()[0],
        "host": platform.node(),
        "platform": platform.platform(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "packages": {d.name: d.version for d in sorted(distributions(), key=lambda d: d.name.lower())},
    }
    (folder / "launch.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return folder


def add_service(folder: Path, version: dict) -> None:
    """Add the service's version and data hash to a record."""
    (folder / "service.json").write_text(json.dumps(version, indent=1), encoding="utf-8")


def _git(*arguments: str) -> str:
    # A copy without its history is no reason not to train; the record then says nothing of a commit.
    done = subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout
