"""`launcher_record/<name>/<time>/`: what a launch ran. Its recipe.yaml is a recipe."""

import hashlib
import json
import logging
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal import __version__
from seal.data.parquet import read_rows
from seal.diagnosis.rules import extension_file
from seal.launch.method import method_digest
from seal.settings import SealSettings
from seal.system.files import file_sha256, write_json
from seal.system.paths import HOME

logger = logging.getLogger(__name__)

WHOLE_HASH = 1 << 30
HEAD = 1 << 20
"""Bytes: a file of weights up to WHOLE_HASH is hashed whole; of a larger one, its size and first HEAD bytes are."""

TRAINER_CONFIG = "trainer.yaml"
HIDDEN = "(left out)"
_WORDS = r"(?i:API_?KEY|ACCESS_KEY|TOKEN|PAT|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
_SECRET = re.compile(rf"(^|_)({_WORDS}|KEY)$")  # a KEY alone in capitals only: data.prompt_key names a column
_ASSIGNED = re.compile(rf"\b(\w*(?:\b|_)(?:{_WORDS}|KEY)=)[^&\s]+")
_USER_INFO = re.compile(r"(\w://)[^/@\s]+@")
RECORDED = ("commit", "method", "untracked", "python", "platform", "hashes", "files", "packages")


def write_record(
    config: DictConfig, trainer: DictConfig, recipe: Path, overrides: Sequence[str], command: Sequence[str]
) -> Path:
    """Write the record of a launch and return its folder.

    config: as composed. trainer: the same with the keys of a resume, which the
    training process reads.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    parent = HOME / "launcher_record" / config.trainer.experiment_name
    folder, attempt = parent / stamp, 1
    while folder.exists():
        attempt += 1
        folder = parent / f"{stamp}-{attempt}"
    folder.mkdir(0o700, parents=True)  # command and configuration may hold a secret
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    OmegaConf.save(trainer, folder / TRAINER_CONFIG, resolve=True)
    shutil.copyfile(recipe, folder / "recipe.yaml")
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
        "method": method_digest(),
        "hashes": _hashes(config),
        "files": {name: file_sha256(HOME / name) for name in SealSettings.of(config).data.files()},
        "packages": {d.name: d.version for d in sorted(distributions(), key=lambda d: d.name.lower())},
    }
    write_json(facts, folder / "launch.json")
    return folder


def _hashes(config: DictConfig) -> dict[str, str]:
    """sha256 of the rows of tasks, of an extension's module, of the model's small files and of its weights."""
    model = HOME / Path(config.actor_rollout_ref.model.path).expanduser()
    found = {
        f"data/{Path(name).name}": file_sha256(HOME / name) for name in (config.data.train_files, config.data.val_files)
    }
    if extension := extension_file(SealSettings.of(config).diagnosis.taxonomy):
        found[f"extension/{extension.name}"] = file_sha256(extension)
    for path in sorted(model.glob("*")):
        if path.suffix in (".json", ".jinja"):
            found[f"model/{path.name}"] = file_sha256(path)
        elif path.suffix == ".safetensors":
            found[f"model/{path.name}"] = file_sha256(path) if path.stat().st_size < WHOLE_HASH else _head(path)
    return found


def _head(path: Path) -> str:
    """sha256 of a large file's size and first bytes; a safetensors file starts with its table of tensors."""
    with path.open("rb") as file:
        return hashlib.sha256(str(path.stat().st_size).encode() + file.read(HEAD)).hexdigest()


def launch_facts(folder: Path, service: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says that a certificate of the run needs (shelf/lab); service: its version.

    Values whose names look secret, and what an address holds before its host, are left out.
    """
    facts = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    return {
        "seal": __version__,
        **{name: facts[name] for name in RECORDED},
        "diff": file_sha256(folder / "diff.patch"),
        "service": dict(service),
        "rows": {
            "training": _rows(HOME / config["data"]["train_files"]),
            "validation": _rows(HOME / config["data"]["val_files"]),
        },
        "config": without_secrets(config),
    }


def _rows(path: Path) -> list[tuple[str, str, str]]:
    """Data source, task and side of each row of a file."""
    return [(row.data_source, row.task_id, row.split) for row in read_rows(path)]


def without_secrets(value: Any) -> Any:
    """A configuration without what nobody else may read."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if _SECRET.search(str(key)) else without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _USER_INFO.sub(r"\1", value)) if isinstance(value, str) else value


def add_service(folder: Path, version: dict) -> None:
    """Add the service's version and data hash to a record."""
    write_json(version, folder / "service.json")


def _git(*arguments: str) -> str:
    # A copy without its history can be trained too; its record then names no commit.
    try:
        done = subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("the record of this launch lacks the output of `git %s`: %s", shlex.join(arguments), error)
        return ""
    return done.stdout
