"""The launches of a run: the settings of each, and to which launch a step or a validation belongs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self

from pydantic import ValidationError

from seal.records.changes import Change, compare, same_model, training_launches, without_moves
from seal.records.folder import RunFolder
from seal.settings import BLOCKS, SealSettings
from seal.settings.base import plain
from seal.settings.sentences import refusal
from seal.system.jsonl import read_records

MOST_STEPS = 1_000_000


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that a run recorded, without settings that only other versions know; not for launching a run."""
    known = {}
    for name, block in BLOCKS.items():
        try:
            settings = block.model_validate(plain(config[name]), extra="ignore")
        except ValidationError as error:
            raise refusal(block, name, error.errors(include_url=False)) from None
        known[name] = settings.model_dump(exclude_unset=True)
    return {**config, **known}


@dataclass(frozen=True)
class Launch:
    """One launch: its facts as logged, the settings in them, and the step after which it continues."""

    step: int
    facts: Mapping[str, Any]
    settings: SealSettings

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Read a line of launches.jsonl; ValueError if it is not one."""
        try:
            config = read_config(facts["config"])
            launch = cls(int(facts["step"]), facts, SealSettings.of(config))
            counts = (launch.samples, launch.prompts, launch.validation_samples)
            if not all(isinstance(count, int) and count > 0 for count in counts):
                raise ValueError(f"a launch has {counts} samples, prompts and validation samples")
            if not 0 <= launch.steps <= MOST_STEPS:
                raise ValueError(f"a launch has {launch.steps} steps")
            launch.rows("validation"), launch.prompt_mode, validation_steps(launch.config["trainer"], launch.steps)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a launch cannot be read ({type(error).__name__}: {error})") from None
        return launch

    @property
    def config(self) -> Mapping[str, Any]:
        return self.facts["config"]

    @property
    def prompt_mode(self) -> str:
        """The format in which the policy writes calls."""
        return self.config["env_service"]["prompt_mode"]

    def mode(self, environment: str) -> str:
        """The format in which the policy writes calls in an environment."""
        return (self.config["env_service"].get("prompt_modes") or {}).get(environment, self.prompt_mode)

    @property
    def samples(self) -> int:
        """Trajectories per training prompt."""
        return self.config["actor_rollout_ref"]["rollout"]["n"]

    @property
    def prompts(self) -> int:
        """Prompts per training step."""
        return self.config["data"]["train_batch_size"]

    @property
    def validation_samples(self) -> int:
        """Trajectories per validated row."""
        return self.config["actor_rollout_ref"]["rollout"]["val_kwargs"]["n"]

    def rows(self, kind: str) -> list[tuple[str, str, str]]:
        """Data source, task and side of each row of `training` or `validation`."""
        return [(source, task, side) for source, task, side in self.facts["rows"][kind]]

    @property
    def steps(self) -> int:
        """The step after which the configuration ends a run."""
        trainer, batch = self.config["trainer"], self.prompts
        if trainer.get("val_only"):
            return 0
        return trainer["total_training_steps"] or len(self.rows("training")) // batch * trainer["total_epochs"]


def read_launches(folder: RunFolder) -> tuple[Launch, ...]:
    """The launches of a run, empty for a run of an earlier version; ValueError for an unusable line."""
    if not folder.launches.is_file():
        return ()
    launches, bad = read_records(folder.launches, Launch.of)
    if bad:
        raise ValueError(str(bad[0]))
    return launches


def logged_changes(folder: RunFolder, last: int) -> list[Change]:
    """The configuration changes at the resumes of a run, up to the step `last`, ignoring folders that have moved."""
    return [
        each
        for (_, before), (step, after) in pairwise(training_launches(folder, last).items())
        for each in without_moves(compare(before["config"], after["config"], step), partial(same_model, before, after))
    ]


def validation_steps(trainer: Mapping[str, Any], steps: int) -> tuple[int, ...]:
    """The steps after which a run of `steps` steps validates, 0 before training. trainer: that block of the recipe."""
    every = trainer["test_freq"]
    after = {*range(every, steps + 1, every), steps} if every > 0 else set()
    return (*([0] if trainer["val_before_train"] else []), *sorted(after - {0}))


def due_validations(launches: Sequence[Launch], last: int) -> list[int]:
    """The steps up to `last`, the last trained step, after which the configurations ask for a validation."""
    ends = [*(launch.step for launch in launches[1:]), last]
    due = {launches[0].step} if launches[0].config["trainer"]["val_before_train"] else set()
    for launch, end in zip(launches, ends, strict=True):
        asked = validation_steps(launch.config["trainer"], launch.steps)
        due.update(step for step in asked if launch.step < step <= end)
    return sorted(due)


def launch_of_step(launches: Sequence[Launch], step: int) -> int:
    """The number of the launch that ran a step: the last that began before it, else the first (where it validated)."""
    return max((number for number, launch in enumerate(launches) if launch.step < step), default=0)
