"""Stored rollouts, and what their run says about how they were played."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from env_service.environments.bfcl.task_file import read_task_file
from seal.records.folder import RunFolder
from seal.records.format import FORMAT
from seal.records.trajectory import TrajectoryRecord
from seal.settings.diagnosis import Taxonomy
from seal.settings.reward import RewardSettings
from seal.system.jsonl import BadLine, read_jsonl, step_files
from seal.training.closed_loop import ClosedLoop
from shelf.lab.certificate.launches import Launch, launch_of_step, read_launches
from shelf.lab.rescoring.score import Conditions
from shelf.suites.bfcl.journal import SETTINGS


class StoredLine(NamedTuple):
    """One rollout as its log has it."""

    number: int
    text: bytes


@dataclass(frozen=True)
class StoredLog:
    """One `<step>.jsonl`: its rollouts, the run that it is of, and what ran it (None if no launch was recorded)."""

    path: Path
    step: int
    training: bool
    run: RunFolder
    launch: Launch | None
    lines: tuple[StoredLine, ...]
    records: tuple[TrajectoryRecord, ...]

    def conditions(self, taxonomy: Taxonomy | None, reward: dict[str, Any]) -> Conditions:
        """How the rollouts were played, judged with these changes of the run's own taxonomy and reward."""
        settings = self.launch.settings if self.launch else None
        judged = (settings.reward if settings else RewardSettings()).model_dump() | reward
        return Conditions(
            training=self.training,
            taxonomy=taxonomy or (settings.diagnosis.taxonomy if settings else "paper"),
            reward=RewardSettings.read(judged, "reward"),
            prompt_mode=self.launch.prompt_mode if self.launch else None,
            enforce_available_tools=settings.rollout.enforce_available_tools if settings else None,
            omega=self._omega() if self.training else None,
            max_steps=self._max_steps(),
        )

    def tasks(self, files: Iterable[str]) -> list[str]:
        """The synthesised tasks of the rollouts, as lines of a task file, from these files and those of the run."""
        wanted = {record.task_id for record in self.records if record.task_id.startswith("synth_")}
        if not wanted:
            return []
        own: Sequence[str] = ()
        if self.launch:
            own = self.launch.settings.data.task_files()
        found = {task.id: task for file in (*files, *own) for task in read_task_file(file)}
        if missing := sorted(wanted - set(found)):
            raise ValueError(f"{missing[0]} of {self.path} is a synthesised task: name its file with --tasks.")
        return [json.dumps(found[task].model_dump(mode="json"), ensure_ascii=False) for task in sorted(wanted)]

    def _omega(self) -> dict[str, Any] | None:
        """Omega_t of a training step: the one that the step before left, or the run's first."""
        lines = read_jsonl(self.run.log("omega")) if self.run.log("omega").is_file() else ()
        for line in lines:
            if not isinstance(line, BadLine) and line.value.get("step") == self.step - 1:
                return line.value.get("omega")
        if self.step == 1 and self.launch:
            return ClosedLoop(self.launch.settings, self.launch.interface).omega_to_send()
        return None

    def _max_steps(self) -> int | None:
        """The limit of an evaluation on the calls of a turn, which its settings hold."""
        path = self.run.path / SETTINGS
        if self.launch or not path.is_file():
            return None
        return json.loads(path.read_text(encoding="utf-8")).get("max_steps")


def find_logs(named: Path, step: int | None, training: bool) -> tuple[StoredLog, ...]:
    """The logs of a run (its validations, or its training steps), or the one that is named.

    ValueError, in one sentence, if there are none, or for lines that lack what a replay needs.
    """
    if named.is_file():
        in_run = named.parent.name == "trajectories" and named.parent.parent.name == "seal_log"
        run = RunFolder(named.parents[2] if in_run else named.parent.parent)
        if not named.stem.isdigit():
            raise ValueError(f"{named} is not a log: name a run, or one <step>.jsonl.")
        files, training = [(int(named.stem), named)], in_run
    else:
        run = RunFolder(named)
        files = step_files(run.trajectories if training else run.validations)
        if not files:
            where = run.trajectories if training else run.validations
            raise ValueError(f"{where} holds no <step>.jsonl: name a run or one log.")
    wanted = [(each, path) for each, path in files if step is None or each == step]
    if not wanted:
        raise ValueError(f"{named} has no step {step}: it has {', '.join(str(each) for each, _ in files)}.")
    launches = read_launches(run)
    return tuple(_read(path, each, training, run, launches) for each, path in wanted)


def _read(path: Path, step: int, training: bool, run: RunFolder, launches: Sequence[Launch]) -> StoredLog:
    if training and not launches:
        raise ValueError(
            f"{run.launches} is missing, so how {path} was played is unknown: only validations can be read."
        )
    lines, records = [], []
    for number, line in enumerate(read_jsonl(path)):
        if isinstance(line, BadLine):
            raise ValueError(str(line))
        if line.value.get("format") != FORMAT:
            was = line.value.get("format", "unknown")
            raise ValueError(f"{path} has rollouts of format {was}, which lack what a replay needs: play them again.")
        lines.append(StoredLine(number, json.dumps(line.value, ensure_ascii=False).encode("utf-8", "surrogatepass")))
        records.append(TrajectoryRecord.from_line(line.value))
    launch = launches[launch_of_step(launches, max(step, 1))] if launches else None
    return StoredLog(path, step, training, run, launch, tuple(lines), tuple(records))
