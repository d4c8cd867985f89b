"""The configurations to which an experiment's arms compose, and whether they still match those of the first runs."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seal.data.selection import RunRows, selected_rows
from seal.launch.checks.numbers import require_sense
from seal.launch.checks.plan import device_parts, require_plan
from seal.launch.recipe import read_recipe, total_steps
from seal.records.changes import flatten
from seal.records.source import data_source
from seal.settings import BLOCKS, EnvServiceSettings, SealSettings
from seal.settings.base import recipe_defaults
from seal.system.errors import LaunchError
from seal.system.files import json_hash, write_text
from seal.system.paths import HOME
from shelf.lab.experiment.design import OutcomeMeasure
from shelf.lab.experiment.matrix import Experiment
from shelf.statistics.launches import validation_steps
from shelf.statistics.summary import AVERAGE

ELSEWHERE = re.compile(
    r"(seal\.(run_dir|process_env|seed)|env_service\.env_url|ray_kwargs|trainer\.(logger|experiment_name))(\.|$)"
)
"""Keys that say where a run works, its name and how it logs, not what it computes."""
NAMED_CHANGES = 3


@dataclass(frozen=True)
class ComposedArm:
    """An arm as the launcher will see it, without its seed."""

    name: str
    config: DictConfig
    steps: int

    @property
    def settings(self) -> SealSettings:
        return SealSettings.of(self.config)

    @property
    def validation_steps(self) -> tuple[int, ...]:
        """The steps after which a run validates, 0 before training."""
        return validation_steps(self.config.trainer, self.steps)

    @property
    def sources(self) -> dict[str, set[str]]:
        """The ids of its validated tasks, by data source and by average over categories."""
        environment, found = EnvServiceSettings.of(self.config).env_type, defaultdict(set)
        for row in (row for each in self.settings.data.val for row in selected_rows(each, environment)):
            for name in (row.data_source, data_source(AVERAGE, row.turns)):
                found[name].add(row.task_id)
        return dict(sorted(found.items(), key=lambda pair: (pair[0].partition("@")[0] == AVERAGE, pair[0])))

    @property
    def devices(self) -> int:
        """GPUs of a run, 0 on a CPU."""
        return 0 if self.config.trainer.device == "cpu" else device_parts(self.config)[0]

    @property
    def facts(self) -> dict[str, Any]:
        """The configuration that determines the results: flat, without seed, places and loggers."""
        return _facts(self.config)

    @property
    def hash(self) -> str:
        """sha256 of the facts."""
        return json_hash(self.facts)


def composed_arms(experiment: Experiment) -> dict[str, ComposedArm]:
    """Every arm, composed; LaunchError for the first that cannot be composed or does not measure an outcome."""
    arms = {arm: _composed(experiment, arm) for arm in experiment.design.arms}
    for arm in arms.values():
        for outcome in experiment.design.outcomes:
            _require_validated(experiment, arm, outcome)
    return arms


def _require_validated(experiment: Experiment, arm: ComposedArm, outcome: OutcomeMeasure) -> None:
    place = f"{experiment.source}: the outcome {outcome.title}"
    try:
        sources = arm.sources
    except (ValueError, FileNotFoundError) as error:
        raise LaunchError(f"The arm {arm.name} of {experiment.source}: seal.data.val: {error}") from error
    lacks = f"{place} is not measured by the arm {arm.name}, which validates"
    if outcome.set not in sources:
        raise LaunchError(f"{lacks} {', '.join(sources)}: add the set to seal.data.val, or name another.")
    if outcome.step is not None and outcome.step not in arm.validation_steps:
        steps = ", ".join(map(str, arm.validation_steps))
        raise LaunchError(f"{lacks} at steps {steps}: name one of them, or change trainer.test_freq.")
    try:
        only = outcome.only
    except (OSError, ValueError, TypeError) as error:
        raise LaunchError(f"{place}: its tasks cannot be read ({error}): name a JSON list of task ids.") from error
    if only is not None and not only & sources[outcome.set]:
        raise LaunchError(f"{place}: the arm {arm.name} validates none of {outcome.tasks}: name tasks of the set.")
    if unknown := sorted(map(str, (only or frozenset()).difference(*sources.values()))):
        some = f"{len(unknown)} of the {len(only)} tasks of {outcome.tasks} ({unknown[0]})"
        raise LaunchError(f"{place}: the arm {arm.name} does not validate {some}: correct the list, or validate them.")
    if not any(arm.validation_steps):
        raise LaunchError(f"{place}: the arm {arm.name} validates nothing that it trained; set trainer.test_freq.")


def require_unchanged(experiment: Experiment, arms: Mapping[str, ComposedArm]) -> None:
    """LaunchError if an arm with started runs now composes to something else.

    If a later version of SEAL added a setting, earlier runs count as having its default. A published experiment
    without missing runs is not checked.
    """
    if not experiment.has_runs and len([*experiment.finished()]) == len(experiment.cells):
        return
    added = {name: recipe_defaults(block) for name, block in BLOCKS.items()}
    defaults = _flat(OmegaConf.to_container(OmegaConf.create(added), resolve=False), "RUN")
    for arm in arms.values():
        path = experiment.configuration(arm.name)
        if not path.is_file():
            continue
        was, now = _facts(OmegaConf.load(path)), arm.facts
        was = {key: defaults[key] for key in now.keys() & defaults.keys()} | was
        changed = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
        if changed:
            shown = "; ".join(f"{key} was {was.get(key)} and is {now.get(key)}" for key in changed[:NAMED_CHANGES])
            more = f"; and {len(changed) - NAMED_CHANGES} more" if len(changed) > NAMED_CHANGES else ""
            raise LaunchError(
                f"The arm {arm.name} of {experiment.source} has runs with another configuration ({shown}{more}): undo "
                f"the change, give the arm another name, or remove {experiment.folder} to start over."
            )


def record_configuration(experiment: Experiment, arm: ComposedArm) -> None:
    """Record the composed configuration of an arm, once; paths start from the repository, so that it can be moved."""
    path = experiment.configuration(arm.name)
    if not path.is_file():
        write_text(OmegaConf.to_yaml(movable(OmegaConf.to_container(arm.config, resolve=True))), path)


def recorded_arm(experiment: Experiment, name: str) -> ComposedArm | None:
    """An arm as it was when its first run started; None before that."""
    path = experiment.configuration(name)
    if not path.is_file():
        return None
    config = OmegaConf.load(path)
    return ComposedArm(name, config, _steps(config))


def _composed(experiment: Experiment, name: str) -> ComposedArm:
    own = (f"trainer.experiment_name={experiment.design.name}-{name}", f"seal.run_dir={experiment.folder / name}")
    path = experiment.design.recipe_of(name)
    try:
        recipe = read_recipe(path, (*experiment.overrides(name), "seal.seed=0", *own))
        require_sense(recipe)
        require_plan(recipe.config)
        return ComposedArm(name, recipe.config, _steps(recipe.config))
    except LaunchError as error:
        raise LaunchError(f"The arm {name} of {experiment.source}: {error}") from error


def _steps(config: DictConfig) -> int:
    if config.trainer.total_training_steps:
        return config.trainer.total_training_steps
    rows = RunRows.of(SealSettings.of(config).data, EnvServiceSettings.of(config).env_type)
    return total_steps(config, len(rows.train))


def _facts(config: DictConfig) -> dict[str, Any]:
    """The configuration by full key, with paths from the repository on and without what names the run."""
    found = movable(OmegaConf.to_container(config, resolve=True))
    return _flat(found, str(found["seal"]["run_dir"]))


def _flat(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
    return {
        key: value.replace(run_dir, "RUN") if isinstance(value, str) else value
        for key, value in flatten(config)
        if not (isinstance(value, dict) and value) and not ELSEWHERE.match(key)
    }


def movable(value: Any) -> Any:
    """A configuration, or a part of it, with paths in the checkout made relative to the checkout.

    It then does not depend on the machine, and is the same in every clone.
    """
    if isinstance(value, Mapping):
        return {key: movable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [movable(item) for item in value]
    # The lookbehind prevents a match inside another path.
    return re.sub(rf"(?<![\w./-]){re.escape(str(HOME))}/", "", value) if isinstance(value, str) else value
