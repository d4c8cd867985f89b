"""The file of an experiment: its question, its arms and seeds, and the outcome chosen before the first run."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator, model_validator
from yaml import MarkedYAMLError, YAMLError

from seal.records.source import ALL_CATEGORIES
from seal.settings.base import Settings
from seal.settings.sentences import SettingsError, nearest
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.system.text import first_line
from shelf.statistics.summary import AVERAGE

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
SEED_RANGE = re.compile(r"(\d+)-(\d+)")
OWN_KEYS = ("seal.seed", "seal.run_dir", "trainer.experiment_name", "trainer.resume_mode", "trainer.default_local_dir")
"""Keys that the experiment sets for each run, and the folder of checkpoints, which follows its `seal.run_dir`."""

Metric = Literal["pass", "turns"]


class Arm(Settings):
    """One condition: the base recipe, or another one, with these overrides."""

    recipe: str | None = None
    """A recipe in place of the experiment's."""
    overrides: tuple[str, ...] = ()
    """Overrides of the arm, as `key=value`; they follow the experiment's own overrides."""
    seeds: tuple[NonNegativeInt, ...] | None = None
    """Seeds in place of the experiment's, as a list or as `0-4`."""
    about: str = ""
    """Description of the arm for the report."""

    @field_validator("seeds", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return _seeds(value)


class OutcomeMeasure(Settings):
    """A measure to compare: a metric of a validation set at a step, or over the steps up to it."""

    set: str
    """A data source of the validation log (`base@1`, `tau2_retail/retail`), `average`: whole tasks, or `average@K`."""
    metric: Metric = "pass"
    """`pass`: share of tasks that passed; `turns`: share of user turns that met the verifier."""
    step: NonNegativeInt | None = None
    """The validation at this step; `null` is the last one."""
    tasks: str | None = None
    """A file with a JSON list of task ids: only these of the set count. A relative path starts from the repository."""
    area: bool = False
    """`true` is the area under the curve from the first validation to `step`, divided by the steps between them."""

    @field_validator("set")
    @classmethod
    def _known(cls, value: str) -> str:
        name, at, turns = value.partition("@")
        if ("/" not in name and name not in (*ALL_CATEGORIES, AVERAGE)) or (at and not turns.isdigit()):
            otherwise = f"name a category or {AVERAGE}, with @K for prefixes of K turns"
            hint = nearest(name, (*ALL_CATEGORIES, AVERAGE), otherwise).removeprefix("; ")
            raise ValueError(f"{value!r} is not a data source ({hint})")
        return value

    @property
    def title(self) -> str:
        """The outcome in words: ``base@1, tasks passed, last validation``."""
        what = {"pass": "tasks passed", "turns": "turns met"}[self.metric]
        what += f" of {Path(self.tasks).stem}" if self.tasks else ""
        until = "last validation" if self.step is None else f"step {self.step}"
        return f"{self.set}, {what}, {f'area under the curve to the {until}' if self.area else until}"

    @property
    def only(self) -> frozenset[str] | None:
        """The ids of the tasks that count; None for all."""
        return frozenset(json.loads((HOME / self.tasks).read_text(encoding="utf-8"))) if self.tasks else None


class Contrast(Settings):
    """One comparison: an arm against another."""

    arm: str
    """The arm whose effect is measured."""
    against: str
    """The arm with which it is compared."""


class Cost(Settings):
    """The cost of a run, used for the plan until finished runs of the experiment supply measurements."""

    seconds_per_step: PositiveFloat
    """Seconds per training step."""
    start_s: NonNegativeFloat = 60
    """Seconds until the first step begins: service, Ray, engine, weights."""
    validation_s: NonNegativeFloat = 0
    """Seconds per validation."""
    checkpoint_gb: PositiveFloat | None = None
    """GiB per checkpoint; without it, the plan takes the free space that the recipe requires (seal.min_free_gb)."""
    kept_mb: PositiveFloat = 20
    """MiB that remain of a finished run."""
    source: str = "estimated"
    """The source of the figures: a measurement, or an estimate."""


class Keep(Settings):
    """Files that remain of a finished run; results, the logs of its steps and train.log always remain."""

    checkpoints: Literal["none", "last", "all"] = "none"
    """The checkpoints to keep."""
    trajectories: bool = False
    """Keep training trajectories (seal_log/trajectories)."""
    validations: bool = True
    """Keep validation logs with their messages; the results hold the scores anyway."""
    tensorboard: bool = False
    """Keep TensorBoard's files."""

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, value: Any) -> Any:
        # Experiments registered with an earlier version may keep a `certificate`, which SEAL no longer makes.
        return {k: v for k, v in value.items() if k != "certificate"} if isinstance(value, dict) else value


class Design(Settings):
    """An experiment (shelf/lab/README.md)."""

    name: str
    """The name of the experiment and of its folder."""
    folder: str = "experiments"
    """The folder that contains its folder; a relative path starts from the repository."""
    question: str
    """The question that the experiment should answer."""
    stopping: str
    """When it ends: written before the first run, so that nobody stops when the figures look good."""
    recipe: str
    """The recipe of every arm that does not name another."""
    overrides: tuple[str, ...] = ()
    """Overrides of every run, as `key=value`."""
    seeds: tuple[NonNegativeInt, ...]
    """The seeds of every arm that does not name its own, as a list or as `0-4`. Arms are paired by seed."""
    arms: dict[str, Arm]
    """The conditions by name."""
    control: str
    """The arm with which the others are compared."""
    comparisons: tuple[Contrast, ...] = ()
    """The comparisons; every arm against the control if none is named."""
    primary: OutcomeMeasure
    """The outcome that answers the question."""
    also_primary: tuple[OutcomeMeasure, ...] = ()
    """Outcomes that also answer it, corrected together with the primary one."""
    secondary: tuple[OutcomeMeasure, ...] = ()
    """Further outcomes, corrected separately from the primary one."""
    cost: Cost | None = None
    """The cost of a run, until finished runs supply it."""
    keep: Keep = Keep()
    """Files that remain of a finished run."""

    @field_validator("seeds", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return _seeds(value)

    @field_validator("arms", mode="before")
    @classmethod
    def _bare_arms(cls, value: Any) -> Any:
        return {name: {} if arm is None else arm for name, arm in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for kind, name in (("name", self.name), *(("the arm", name) for name in self.arms)):
            if not NAME.fullmatch(name):
                raise ValueError(f"{kind} {name!r} must consist of letters, digits, '.', '_' and '-'")
        if not self.arms:
            raise ValueError("arms is empty; name at least one")
        for contrast in self.contrasts:
            for arm in (contrast.arm, contrast.against):
                self._require_arm(arm)
            if contrast.arm == contrast.against:
                raise ValueError(f"a comparison compares {contrast.arm} with itself")
            if not set(self.seeds_of(contrast.arm)) & set(self.seeds_of(contrast.against)):
                raise ValueError(f"{contrast.arm} and {contrast.against} have no seed in common, and arms are paired")
        self._require_arm(self.control)
        for name in self.arms:
            if not self.seeds_of(name):
                raise ValueError(f"the arm {name} has no seed")
            if len(set(self.seeds_of(name))) < len(self.seeds_of(name)):
                raise ValueError(f"the arm {name} has a seed twice")
            for override in (*self.overrides, *self.arms[name].overrides):
                key, given, _ = override.partition("=")
                if not given:
                    raise ValueError(f"{override!r} is not an override; write key=value")
                if key.lstrip("+~") in OWN_KEYS:
                    raise ValueError(f"{key} is set by the experiment for each run; remove the override {override!r}")
        return self

    def _require_arm(self, name: str) -> None:
        if name not in self.arms:
            hint = nearest(name, self.arms, f"they are {', '.join(self.arms)}").removeprefix("; ")
            raise ValueError(f"{name} is not an arm ({hint})")

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The comparisons, in order: those that the file names, else every arm against the control."""
        others = (name for name in self.arms if name != self.control)
        return self.comparisons or tuple(Contrast(arm=name, against=self.control) for name in others)

    @property
    def primaries(self) -> tuple[OutcomeMeasure, ...]:
        """The outcomes that are corrected together."""
        return self.primary, *self.also_primary

    @property
    def outcomes(self) -> tuple[OutcomeMeasure, ...]:
        """The primary outcomes, then the secondary ones."""
        return *self.primaries, *self.secondary

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The seeds of an arm."""
        own = self.arms[arm].seeds
        return self.seeds if own is None else own

    def recipe_of(self, arm: str) -> Path:
        """The recipe file of an arm."""
        return HOME / (self.arms[arm].recipe or self.recipe)


def parse_design(text: str, source: str) -> Design:
    """The experiment that a text describes; LaunchError names the source."""
    try:
        values = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (YAMLError, OmegaConfBaseException, ValueError) as error:
        raise LaunchError(f"{source} is not valid YAML: {_problem(error)}.") from error
    if not isinstance(values, Mapping):
        raise LaunchError(f"{source} holds a list; an experiment is a mapping with name, recipe, arms and seeds.")
    try:
        return Design.read(values)
    except SettingsError as error:
        raise LaunchError(f"{source}: {error}") from error


def _problem(error: Exception) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return f"{error.problem} (line {error.problem_mark.line + 1})"
    return first_line(str(error)).rstrip(".")


def _seeds(value: Any) -> Any:
    """Seeds as a list; a text like ``0-4`` is a range."""
    if isinstance(value, str):
        match = SEED_RANGE.fullmatch(value.strip())
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"{value!r} is not a range of seeds; write 0-4 or [0, 1, 2]")
        return tuple(range(int(match[1]), int(match[2]) + 1))
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value
