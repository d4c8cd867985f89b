"""Stored rollouts, played and judged again: where they are, on which terms, and why a judgement differs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from env_service.environments.bfcl.task_file import read_task_file
from seal.method.interface.cues import Omega
from seal.records.folder import RunFolder
from seal.records.format import READABLE
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.play import Terms
from seal.settings.reward import RewardSettings
from seal.system.jsonl import read_records, step_files
from seal.system.paths import HOME
from seal.system.text import enumeration
from seal.training.closed_loop import ClosedLoop
from shelf.replay.differences import as_text, difference
from shelf.replay.player import Again, play_again
from shelf.statistics.launches import Launch, launch_of_step, read_launches
from shelf.statistics.log import SETTINGS, values

PARTS = {
    "tools": "the simulators answer a call differently",
    "checker": "the checker compares a turn differently",
    "episode": "the episode takes another course",
    "labels": "the diagnosis names the same evidence differently",
    "reward": "the reward grades the same verdict differently",
}
UNPLAYABLE = frozenset({"environment_refused", "environment_failed", "environment_broken"})
"""Faults of a replay that mean that the record does not fit the environment; other faults are this machine's."""

Omegas = Mapping[int, Mapping[str, Any]]
"""Omega as JSON values, by version."""


class Reason(NamedTuple):
    """Why a rollout is judged differently: the part that changed (a key of PARTS), and its place as text."""

    part: str
    text: str


class Rescored(NamedTuple):
    """A rollout as stored and as judged now, both without messages and evidence.

    now is None if infrastructure lost it or it cannot be played; `problem` then says why.
    reason is None if verdict, labels and reward are the same.
    """

    stored: TrajectoryRecord
    now: TrajectoryRecord | None
    reason: Reason | None = None
    problem: str = ""


@dataclass(frozen=True)
class StoredLog:
    """One `<step>.jsonl`, with its run and its launch (None if no launch was recorded)."""

    path: Path
    step: int
    training: bool
    run: RunFolder
    launch: Launch | None

    @property
    def records(self) -> tuple[TrajectoryRecord, ...]:
        """The rollouts, read again each time; ValueError, in one sentence, for a line that cannot be played again."""
        records, bad = read_records(self.path, _record)
        if bad:
            raise ValueError(str(bad[0]))
        return records

    def terms(self, taxonomy: str | None, reward: Mapping[str, Any]) -> Terms:
        """The terms for judging the rollouts: the run's taxonomy and reward with these changes."""
        settings = self.launch.settings if self.launch else None
        judged = (settings.reward if settings else RewardSettings()).model_dump() | dict(reward)
        labels = taxonomy or (settings.diagnosis.taxonomy if settings else "paper")
        return Terms(self.training, RewardSettings.read(judged, "reward"), labels)

    def again(self, record: TrajectoryRecord, terms: Terms, omegas: Omegas) -> Again:
        """Return the replay of a rollout as the agent loop played it (the leak guard does not change answers)."""
        mode = self.launch.mode(record.environment) if self.launch else record.prompt_mode
        params: dict[str, Any] = {"split": record.split if self.training else "eval", "tool_prompt_mode": mode}
        if record.prefix > 0:
            params["turns"] = record.prefix
        if record.user:
            params["user"] = True
        if self.training:
            params["enforce_available_tools"] = True
            if record.cues:  # with a teacher, only part of the step's cues
                params["omega"] = Omega.of(record.cues, record.omega_version).to_json() | (record.documents or {})
            elif record.omega_version is not None:
                params["omega"] = omegas[record.omega_version]
        if (limit := self._max_steps()) is not None:
            params["max_steps"] = limit
        return Again(record, params, terms)

    def tasks(self, files: Iterable[str]) -> list[dict[str, Any]]:
        """The synthesised tasks of the rollouts, from these files and those of the run."""
        wanted = {record.task_id for record in self.records if record.task_id.startswith("synth_")}
        if not wanted:
            return []
        own = [HOME / file for file in self.launch.settings.data.task_files()] if self.launch else []
        named = (*files, *(path for path in own if path.is_file()))
        known = {task.id: task for file in named for task in read_task_file(file)}
        if missing := sorted(wanted - set(known)):
            raise ValueError(f"{missing[0]} of {self.path} is a synthesised task: name its file with --tasks.")
        return [known[task].model_dump(mode="json") for task in sorted(wanted)]

    def omegas(self) -> Omegas:
        """Every Omega that the run sent: the first one, and those after its steps."""
        if not self.training:
            return {}
        sent = [ClosedLoop(self.launch.settings).omega_to_send()]
        sent += [line.get("omega") for line in values(self.run.log("omega"))]
        return {omega["version"]: omega for omega in sent if omega}

    def _max_steps(self) -> int | None:
        """An evaluation's limit on the messages with calls per turn, from its settings."""
        path = self.run.path / SETTINGS
        if self.launch or not path.is_file():
            return None
        return json.loads(path.read_text(encoding="utf-8")).get("max_steps")


def find_logs(named: Path, step: int | None, training: bool) -> tuple[StoredLog, ...]:
    """The logs of a run (its validations or its training steps), or the named log.

    ValueError, in one sentence, if there are none, or for lines that lack what a replay needs.
    """
    if named.is_file():
        in_run = named.parent.name == "trajectories" and named.parent.parent.name == "seal_log"
        run = RunFolder(named.parents[2] if in_run else named.parent.parent)
        if not named.stem.isdigit():
            raise ValueError(f"{named} is not a log: name a run, or one <step>.jsonl.")
        if named.parent.name == "withdrawal" and named.parent.parent.name == "seal_log":
            raise ValueError(f"{named} is of a withdrawal, which cannot be judged again: name a validation.")
        files, training = [(int(named.stem), named)], in_run
    else:
        run = RunFolder(named)
        where = run.trajectories if training else run.validations
        files = step_files(where)
        if not files:
            raise ValueError(f"{where} holds no <step>.jsonl: name a run or one log.")
    wanted = [(each, path) for each, path in files if step is None or each == step]
    if not wanted:
        raise ValueError(f"{named} has no step {step}: it has {enumeration([each for each, _ in files])}.")
    launches = read_launches(run)
    if training and not launches:
        how = f"how {wanted[0][1]} was played is unknown"
        raise ValueError(f"{run.launches} is missing, so {how}: only validations are read.")
    of = {each: launches[launch_of_step(launches, each)] if launches else None for each, _ in wanted}
    return tuple(StoredLog(path, each, training, run, of[each]) for each, path in wanted)


def _record(line: Mapping[str, Any]) -> TrajectoryRecord:
    if line.get("format") not in READABLE[1:]:
        was = line.get("format", "unknown")
        raise ValueError(f"a rollout of format {was} lacks what a replay needs: play it again")
    return TrajectoryRecord.from_line(line)


def judge(log: StoredLog, terms: Terms, omegas: Omegas, url: str) -> Iterator[Rescored]:
    """Every rollout of a log, judged again, in order; ValueError if this machine cannot play one."""
    records = log.records
    problems = {number: text for number, record in enumerate(records) if (text := _lost(record, omegas))}
    played = play_again((log.again(r, terms, omegas) for n, r in enumerate(records) if n not in problems), url)
    for number, record in enumerate(records):
        stored = _slim(record)
        if number in problems:
            yield Rescored(stored, None, problem=problems[number])
            continue
        now = next(played)
        if now.infra is not None and now.infra not in UNPLAYABLE:
            raise ValueError(f"Line {number + 1} of {log.path} cannot be played again here: {now.infra_message}")
        if now.infra is not None:
            yield Rescored(stored, None, problem=f"the environment does not play it ({now.infra_message})")
        else:
            yield Rescored(stored, _slim(now), _reason(record, now))


def _slim(record: TrajectoryRecord) -> TrajectoryRecord:
    return replace(record, messages=(), evidence=())


def _lost(record: TrajectoryRecord, omegas: Omegas) -> str:
    """Why a rollout is not played again; "" if it is."""
    if record.infra is not None:
        return f"lost to infrastructure ({record.infra})"
    missing = record.omega_version is not None and record.omega_version not in omegas and not record.cues
    return "the environment does not play it (its Omega is not in the run's log)" if missing else ""


def _reason(stored: TrajectoryRecord, now: TrajectoryRecord) -> Reason | None:
    """The first cause, in the order in which causes follow from each other; None if no judgement differs."""
    same_score = difference(stored.score, now.score) is None
    if stored.passed == now.passed and same_score and tuple(stored.labels) == tuple(now.labels):
        return None
    written, found = (json.loads(json.dumps(list(each.evidence))) for each in (stored, now))
    for turn, (was, is_now) in enumerate(zip(written, found, strict=False)):
        if text := _calls(was["actions"], is_now["actions"]):
            return Reason("tools", f"turn {turn}: {text}")
        for name in ("state_match", "response_match", "instances_match", "reference_error"):
            if was.get(name) != is_now.get(name):
                return Reason("checker", f"turn {turn}: {name} was {was.get(name)} and is {is_now.get(name)}")
        if was.get("stop") != is_now.get("stop"):
            return Reason("episode", f"turn {turn}: stop was {was.get('stop')} and is {is_now.get('stop')}")
    if len(written) != len(found):
        return Reason("episode", f"{len(written)} turns were played, and the task has {len(found)}")
    if now.stop == "open" or len(stored.messages) != len(now.messages):
        return Reason("episode", "the environment ends it after another message")
    if stored.passed != now.passed and not same_score and stored.turns_passed == now.turns_passed:
        return Reason("reward", f"reward was {stored.score:g} and is {now.score:g}")
    for turn, (was, is_now) in enumerate(zip(stored.labels, now.labels, strict=False)):
        if was != is_now:
            return Reason("labels", f"turn {turn}: {was} is {is_now} now")
    return Reason("reward", f"reward was {stored.score:g} and is {now.score:g}")


def _calls(written: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> str:
    """The first call with a different answer, as text; "" if there is none."""
    was, now = ([call for action in actions for call in action["calls"]] for actions in (written, found))
    for one, other in zip(was, now, strict=False):
        for name in ("name", "arguments", "available", "error", "result"):
            if one.get(name) != other.get(name):
                return f"{one['name']}: {name} was {as_text(one.get(name))} and is {as_text(other.get(name))}"
    return "" if len(was) == len(now) else f"{len(was)} calls were read, and {len(now)} are now"
