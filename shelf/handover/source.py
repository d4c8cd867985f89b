"""The checkpoint that is handed over, and what its run recorded about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.method.diagnosis.categories import environment_of
from seal.records.changes import Change
from seal.records.folder import RunFolder
from seal.records.source import parse_data_source
from seal.settings.run import CheckpointSettings
from seal.system.paths import HOME
from seal.system.text import enumeration
from seal.training.checkpoints import CheckpointError, Checkpoints, load_state, step_of, verify, whole_steps
from shelf.statistics.launches import Launch, launch_of_step, logged_changes, read_launches


@dataclass(frozen=True)
class Source:
    """A checkpoint of a run. why: how its step was chosen. launch: the launch that ran it, None if not recorded."""

    run: RunFolder
    checkpoint: Path
    step: int
    why: str
    launch: Launch | None
    state: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.run.path.resolve().name

    @property
    def prompt_mode(self) -> str | None:
        """The formats of the environments of the training tasks, joined by a comma; None if they are not recorded."""
        rows = self.launch.rows("training") if self.launch else ()
        played = {environment_of(parse_data_source(source)[0]) for source, _, _ in rows}
        return ", ".join(sorted({self.launch.mode(each) for each in played})) or None

    @property
    def changes(self) -> Sequence[Change]:
        """The settings that a resume changed before this step."""
        return logged_changes(self.run, self.step)

    def setting(self, *keys: str) -> Any:
        """A value of the run's configuration; None if it is missing."""
        value: Any = self.launch.config if self.launch else None
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def find_source(named: Path, step: int | None = None) -> Source:
    """The checkpoint that RUN, RUN/STEP or RUN/checkpoints/global_step_STEP names, read in full.

    Without a step, it is the best validated one, else the last. ValueError if there is none or it is damaged.
    """
    run, in_path = _run_of(named)
    if step is not None and in_path is not None and step != in_path:
        raise ValueError(f"{named} names step {in_path} and --step {step}: name one of the two.")
    wanted = in_path if step is None else step
    if not run.path.is_dir():
        raise ValueError(f"{run.path} is not a folder: name a run (experiments/NAME).")
    launches = read_launches(run)
    moved = bool(launches) and not run.checkpoints.is_dir()  # to where the recipe says
    folder = HOME / launches[-1].config["trainer"]["default_local_dir"] if moved else run.checkpoints
    steps = whole_steps(folder)
    if not steps:
        raise ValueError(f"{folder} holds no whole checkpoint: has the run saved one (trainer.save_freq)?")
    best = Checkpoints(folder, CheckpointSettings()).best
    if wanted is not None:
        chosen, why = wanted, "the step that was asked for"
    elif best is not None and best.step in steps:
        chosen, why = best.step, "the best validated step"
    else:
        chosen, why = steps[-1], "the last saved step; no checkpoint is named the best"
    if chosen not in steps:
        raise ValueError(f"{folder} holds no whole checkpoint of step {chosen}: it has {enumeration(steps)}.")
    checkpoint = folder / f"global_step_{chosen}"
    try:
        verify(checkpoint)
        state = load_state(checkpoint)
    except CheckpointError as error:
        raise ValueError(str(error).replace("resumed from: resume from", "exported: export")) from error
    launch = launches[launch_of_step(launches, chosen)] if launches else None
    return Source(run, checkpoint, chosen, why, launch, state)


def _run_of(named: Path) -> tuple[RunFolder, int | None]:
    """The run that a path names, and the step if it names one."""
    if (step := step_of(named)) is not None:
        return RunFolder(named.parent.parent), step
    if named.name.isdigit() and RunFolder(named.parent).checkpoints.is_dir():
        return RunFolder(named.parent), int(named.name)
    return RunFolder(named), None
