"""`launcher_record/<name>/<time>/`: what a launch ran. Its recipe.yaml is a recipe. Only that folder is written."""

import json
import logging
import platform
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
from seal.launch.checks.places import can_write
from seal.launch.recipe import Recipe
from seal.method.diagnosis.extension import extension_file
from seal.records.method import method_digest
from seal.system.files import file_sha256, quick_sha256, write_json
from seal.system.paths import HOME
from seal.system.text import without_secrets

logger = logging.getLogger(__name__)

MODEL_FILES = (".json", ".jinja", ".safetensors")
TRAINER_CONFIG = "trainer.yaml"


def record_folder(recipe: Recipe) -> Path:
    """Where the launches of a run are recorded: in the repository, or in the run's folder if that is read-only."""
    inside = HOME / "launcher_record"
    return (inside if can_write(inside) else recipe.run_dir / inside.name) / recipe.name


def write_record(
    recipe: Recipe,
    trainer: DictConfig,
    source: Path,
    overrides: Sequence[str],
    command: Sequence[str],
    service: Mapping[str, Any],
) -> tuple[Path, dict[str, Any]]:
    """Write the record of a launch; its folder, and the facts that `seal verify` needs (shelf/lab).

    trainer: the recipe's configuration with the keys of a resume, which the training process reads. source: the
    recipe's file. service: its version. The facts leave out values whose names look secret, and what precedes the host
    in an address.
    """
    config, stamp = recipe.config, time.strftime("%Y%m%d-%H%M%S")
    model = config.actor_rollout_ref.model.path.removeprefix(f"{HOME}/")  # a recipe elsewhere names it from there
    parent = record_folder(recipe)
    folder, attempt = parent / stamp, 1
    while folder.exists():
        attempt += 1
        folder = parent / f"{stamp}-{attempt}"
    folder.mkdir(0o700, parents=True)  # command and configuration may hold a secret
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    OmegaConf.save(trainer, folder / TRAINER_CONFIG, resolve=True)
    shutil.copyfile(source, folder / "recipe.yaml")
    (folder / "diff.patch").write_bytes(_git("diff", "HEAD"))  # of files in any encoding
    facts = {
        "seal": __version__,
        "commit": _git("rev-parse", "HEAD").decode().strip(),
        "method": method_digest(),
        "untracked": _git("ls-files", "--others", "--exclude-standard").decode(errors="replace").splitlines(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "hashes": _hashes(recipe),
        "files": {name: file_sha256(HOME / name) for name in recipe.settings.data.files()},
        "packages": {d.name: d.version for d in sorted(distributions(), key=lambda d: d.name.lower())},
        "service": dict(service),
    }
    launched = {
        "command": shlex.join(command),
        "overrides": [*overrides, f"actor_rollout_ref.model.path={model!r}"],
        "host": platform.node(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    write_json(launched | facts, folder / "launch.json")
    return folder, {**facts, "diff": file_sha256(folder / "diff.patch"), **recipe_facts(recipe)}


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """What a launch logs about its recipe, as JSON values: its tasks and its configuration without secrets."""
    tasks = {"training": recipe.rows.train, "validation": recipe.rows.val}
    names = {side: [(row.data_source, row.task_id, row.split) for row in rows] for side, rows in tasks.items()}
    return json.loads(json.dumps({"rows": names, "config": without_secrets(OmegaConf.to_container(recipe.config))}))


def _hashes(recipe: Recipe) -> dict[str, str]:
    """sha256 of the rows of tasks, of an extension's module, and of the model."""
    names = recipe.config.data.train_files, recipe.config.data.val_files
    found = {f"data/{Path(name).name}": file_sha256(HOME / name) for name in names}
    if extension := extension_file(recipe.settings.diagnosis.taxonomy):
        found[f"extension/{extension.name}"] = file_sha256(extension)
    return found | model_hashes(recipe)


def model_hashes(recipe: Recipe) -> dict[str, str]:
    """sha256 of the small files of a model's folder and of its weights; {} for a model of the hub."""
    files = (path for path in sorted(recipe.model_folder.glob("*")) if path.suffix in MODEL_FILES)
    return {f"model/{path.name}": quick_sha256(path) for path in files}


def _git(*arguments: str) -> bytes:
    # A copy without its history can be trained too; its record then names no commit.
    try:
        done = subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("the record of this launch lacks the output of `git %s`: %s", shlex.join(arguments), error)
        return b""
    return done.stdout
