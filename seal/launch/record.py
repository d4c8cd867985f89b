"""`launcher_record/<name>/<time>/`: what a launch ran, so that `--replay` can run it again beside the old run."""

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
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal import __version__
from seal.data.parquet import read_rows
from seal.interface.artefact import read_artefact
from seal.launch.method import method_digest
from seal.launch.recipe import Recipe
from seal.settings import SealSettings, SettingsError
from seal.system.errors import LaunchError
from seal.system.files import file_sha256, write_json
from seal.system.paths import HOME

logger = logging.getLogger(__name__)

WHOLE_HASH = 1 << 30
HEAD = 1 << 20
"""Bytes: a file of weights up to WHOLE_HASH is hashed whole; of a larger one, its size and first HEAD bytes are."""

TRAINER_CONFIG = "trainer.yaml"
HIDDEN = "(left out)"
_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")  # environment variables
_USER_INFO = re.compile(r"(\w://)[^/@\s]+@")
FACTS = ("commit", "python", "platform")
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
    folder.mkdir(parents=True)
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
    """sha256 of the training and validation rows, the model's small files, its weights or their heads, and
    the interface that is started with."""
    model = HOME / Path(config.actor_rollout_ref.model.path).expanduser()
    found = {
        f"data/{Path(name).name}": file_sha256(HOME / name) for name in (config.data.train_files, config.data.val_files)
    }
    for path in sorted(model.glob("*")):
        if path.suffix in (".json", ".jinja"):
            found[f"model/{path.name}"] = file_sha256(path)
        elif path.suffix == ".safetensors":
            found[f"model/{path.name}"] = file_sha256(path) if path.stat().st_size < WHOLE_HASH else _head(path)
    # A replayed record of an earlier version lacks the key.
    if (initial := OmegaConf.select(config, "seal.interface.initial")) is not None:
        found["seal.interface.initial"] = file_sha256(HOME / initial)
    return found


def _head(path: Path) -> str:
    """sha256 of a large file's size and first bytes; a safetensors file starts with its table of tensors."""
    with path.open("rb") as file:
        return hashlib.sha256(str(path.stat().st_size).encode() + file.read(HEAD)).hexdigest()


def launch_facts(folder: Path, service: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says that a certificate of the run needs (shelf/lab); service: its version.

    Values of environment variables that look secret, and what an address holds before
    its host, are left out.
    """
    facts = _read(folder / "launch.json")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    initial = config["seal"]["interface"].get("initial")
    return {
        "seal": __version__,
        **{name: facts[name] for name in RECORDED},
        "diff": file_sha256(folder / "diff.patch"),
        "service": dict(service),
        "rows": {
            "training": _rows(HOME / config["data"]["train_files"]),
            "validation": _rows(HOME / config["data"]["val_files"]),
        },
        **({"interface": read_artefact(HOME / initial).to_json()} if initial else {}),
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
    return _USER_INFO.sub(r"\1", value) if isinstance(value, str) else value


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


class Replay:
    """A recorded launch; LaunchError if the folder does not hold one."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.source = folder / "recipe.yaml"
        self._facts = _read(folder / "launch.json")
        self._service = _read(folder / "service.json") if (folder / "service.json").is_file() else {}
        for name in ("config.yaml", "recipe.yaml", "diff.patch"):
            if not (folder / name).is_file():
                raise LaunchError(f"{folder} holds no {name}: name the record of a launch, launcher_record/NAME/TIME.")

    @property
    def with_bfcl(self) -> bool:
        """Whether the recorded launch started the environment service itself."""
        return "--with-bfcl" in self._facts["command"].split()

    def recorded(self, overrides: Sequence[str]) -> Recipe:
        """The recorded recipe, in an experiment folder of its own so that nothing is overwritten."""
        config = OmegaConf.load(self._folder / "config.yaml")
        OmegaConf.set_struct(config, True)
        name, run_dir = config.trainer.experiment_name, config.seal.run_dir
        given = dict(override.split("=", 1) for override in overrides if "=" in override)
        again = given.get("trainer.experiment_name", f"{name}-replay-{time.strftime('%Y%m%d-%H%M%S')}")
        config = OmegaConf.create(_moved(OmegaConf.to_container(config), run_dir, f"{Path(run_dir).parent}/{again}"))
        config.trainer.experiment_name = again
        OmegaConf.set_struct(config, True)
        try:
            config.merge_with_dotlist(list(overrides))
            return Recipe.of(config)
        except OmegaConfBaseException as error:
            raise LaunchError(f"The overrides do not fit {self._folder / 'config.yaml'}: {error}") from error
        except SettingsError as error:
            raise LaunchError(f"{self._folder / 'config.yaml'}: {error}") from error

    def differences(self, record: Path) -> Iterator[str]:
        """One sentence per difference from the record; `record` is the new launch's folder."""
        facts = _read(record / "launch.json")
        for name in FACTS:
            if facts[name] != self._facts[name]:
                yield f"{name} was {self._facts[name] or 'unknown'} and is {facts[name] or 'unknown'}"
        if (record / "diff.patch").read_bytes() != (self._folder / "diff.patch").read_bytes():
            yield f"the uncommitted changes differ from {self._folder / 'diff.patch'}"
        yield from _unequal("package", self._facts["packages"], facts["packages"])
        yield from _unequal("file", self._facts.get("hashes", {}), facts["hashes"])
        yield from _unequal("service", self._service, _read(record / "service.json"))


def _unequal(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            was, now = (str(facts.get(name, "absent"))[:16] for facts in (old, new))
            yield f"{kind} {name} was {was} and is {now}"


def _moved(value: Any, old: str, new: str) -> Any:
    """The same tree, with every path below the old experiment folder moved to the new one."""
    if isinstance(value, dict):
        return {key: _moved(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, old, new) for item in value]
    if isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
        return new + value[len(old) :]
    return value


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LaunchError(f"{path} cannot be read ({error}): name launcher_record/NAME/TIME.") from error
