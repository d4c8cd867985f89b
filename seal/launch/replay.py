"""`--replay launcher_record/NAME/TIME`: a recorded launch again, beside the old one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal.launch.errors import LaunchError

FACTS = ("commit", "python", "platform")


class Replay:
    """A record that `seal.launch.record` wrote; LaunchError when the folder is none."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.recipe = folder / "recipe.yaml"
        self._facts = _read(folder / "launch.json")
        self._service = _read(folder / "service.json") if (folder / "service.json").is_file() else {}
        for name in ("config.yaml", "recipe.yaml", "diff.patch"):
            if not (folder / name).is_file():
                raise LaunchError(f"{folder} holds no {name}: name a record of a launch, launcher_record/NAME/TIME.")

    @property
    def with_bfcl(self) -> bool:
        """Whether the recorded launch started the environment service itself."""
        return "--with-bfcl" in self._facts["command"].split()

    def configuration(self, overrides: Sequence[str]) -> DictConfig:
        """The recorded configuration in an experiment folder of its own, so that nothing is overwritten."""
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
        except OmegaConfBaseException as error:
            raise LaunchError(f"The overrides do not fit {self._folder}/config.yaml: {error}") from error
        return config

    def differences(self, record: Path) -> Iterator[str]:
        """One sentence for each thing that is not as recorded; `record` is the new launch's folder."""
        facts = _read(record / "launch.json")
        for name in FACTS:
            if facts[name] != self._facts[name]:
                yield f"{name} was {self._facts[name] or 'unknown'} and is {facts[name] or 'unknown'}"
        if _text(record / "diff.patch") != _text(self._folder / "diff.patch"):
            yield f"the uncommitted changes are others than in {self._folder / 'diff.patch'}"
        yield from _unequal("package", self._facts["packages"], facts["packages"])
        yield from _unequal("file", self._facts.get("hashes", {}), facts["hashes"])
        yield from _unequal("service", self._service, _read(record / "service.json"))


def _unequal(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{kind} {name} was {_short(old.get(name))} and is {_short(new.get(name))}"


def _short(value: Any) -> str:
    return "absent" if value is None else str(value)[:16]


def _moved(value: Any, old: str, new: str) -> Any:
    """The same tree with every path below the old experiment folder below the new one."""
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


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
