"""The launches of a run: what each was told, and which one a step or a validation belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from seal.data.selection import selected_rows
from seal.interface.artefact import InterfaceArtefact
from seal.records.folder import RunFolder
from seal.rollout.budgets import Budgets
from seal.settings import SealSettings
from seal.settings.data import Selection
from seal.system.jsonl import read_records


@dataclass(frozen=True)
class Launch:
    """One launch: its facts as logged, and the settings in them.

    step: it continues after this one. interface: the Omega of an earlier run that it was started with.
    """

    step: int
    facts: Mapping[str, Any]
    settings: SealSettings
    budgets: Budgets
    interface: InterfaceArtefact | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Read a line of launches.jsonl; ValueError if it is not one."""
        try:
            config = facts["config"]
            settings, initial = SealSettings.of(config), facts.get("interface")
            interface = InterfaceArtefact.from_json(initial) if initial else None
            if (interface is None) != (settings.interface.initial is None):
                raise ValueError("a launch does not hold the interface that seal.interface.initial names, or holds one")
            launch = cls(int(facts["step"]), facts, settings, Budgets.of(config), interface)
            counts = (launch.samples, launch.prompts, launch.validation_samples)
            if not all(isinstance(count, int) and count > 0 for count in counts):
                raise ValueError(f"a launch has {counts} samples, prompts and validation samples")
            launch.rows("training"), launch.rows("validation"), launch.prompt_mode
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a launch cannot be read ({type(error).__name__}: {error})") from None
        return launch

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration."""
        return self.facts["config"]

    @property
    def prompt_mode(self) -> str:
        """How the policy writes calls."""
        return self.config["env_service"]["prompt_mode"]

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

    def sides(self, kind: str) -> dict[tuple[str, str], str]:
        """The side of each row of `training` or `validation`, by data source and task."""
        return {(source, task): side for source, task, side in self.rows(kind)}

    def selected(self, kind: str) -> list[tuple[str, str, str]] | None:
        """The rows that the settings select; None if they name files, which a certificate does not hold."""
        data = self.settings.data
        selections = (data.train,) if kind == "training" else data.val
        if not all(map(_self_contained, selections)):
            return None
        return [(row.data_source, row.task_id, row.split) for each in selections for row in selected_rows(each)]


def read_launches(folder: RunFolder) -> tuple[Launch, ...]:
    """The launches of a run, empty for a run of an earlier version; ValueError for a line that cannot be used."""
    if not folder.launches.is_file():
        return ()
    launches, bad = read_records(folder.launches, Launch.of)
    if bad:
        raise ValueError(str(bad[0]))
    return launches


def _self_contained(selection: Selection) -> bool:
    return not (selection.task_file or selection.mixture)


def launch_of_step(launches: Sequence[Launch], step: int) -> int:
    """The number of the launch that ran a training step: the last that began before it; ValueError without one."""
    found = [number for number, launch in enumerate(launches) if launch.step < step]
    if not found:
        raise ValueError(f"no launch ran step {step}")
    return found[-1]
