"""A run played again, and Algorithm 1 computed again from the replays."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import data_hash
from seal.records.folder import STEP_LOGS, RunFolder
from seal.records.method import method_digest
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import BadLine, read_jsonl, step_files
from seal.training.closed_loop import ClosedLoop, Group, mark_groups
from shelf.lab.advantages import agrees, follow_from_rewards, group_advantages
from shelf.replay.differences import Difference, as_text, difference
from shelf.replay.stored import Omegas, StoredLog, find_logs, judge
from shelf.statistics.launches import Launch, due_validations

VERDICT = ("score", "turns", "turns_passed", "progress", "stop", "excluded", "omega_version")
LABELS = ("labels", "diagnosis")
"""The fields of a trajectory that its replay determines (with VERDICT)."""
ROUND = (
    ("C_t", "profile", ("profile",)),
    ("rho", "steps", ("rho",)),
    ("Omega", "omega", ("omega",)),
    ("Omega", "steps", ("omega", "events")),
)
"""A step's values to compare: their name, the log, and the keys in the log's lines."""


class Place(NamedTuple):
    """A place in a run; None for fields that do not apply."""

    step: int
    training: bool
    task: str | None = None
    sample: int | None = None

    def __str__(self) -> str:
        """``step 3, multi_turn_base_5, sample 2``."""
        named = [f"{'step' if self.training else 'the validation at step'} {self.step}"]
        named += [self.task] if self.task else []
        return ", ".join([*named, *([f"sample {self.sample}"] if self.sample is not None else [])])


@dataclass
class Findings:
    """The results of a verification.

    compared, agree: counts by what was compared. differs: one sentence per difference, in the order of the run.
    unjudged: how often something could not be judged, by reason. notes: why differences may not be forgeries.
    steps, validations, rollouts: what was played again.
    """

    compared: Counter[str] = field(default_factory=Counter)
    agree: Counter[str] = field(default_factory=Counter)
    differs: list[str] = field(default_factory=list)
    unjudged: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    steps: int = 0
    validations: int = 0
    rollouts: int = 0

    def compare(self, what: str, place: Place, one: Difference | None) -> None:
        """Count a comparison, and note its difference if there is one."""
        self.compared[what] += 1
        self.agree[what] += one is None
        if one is not None:
            values = f"the log has {as_text(one.written)}, and {as_text(one.found)} follows"
            self.differs.append(f"{place}: {one.field}: {values}")

    def missing(self, what: str, place: Place, text: str) -> None:
        """Count a part of the run that is missing, or that should not be there."""
        self.compared[what] += 1
        self.differs.append(f"{place}: {text}")


def run_logs(run: Path) -> tuple[StoredLog, ...]:
    """The training steps and validations of a run, in order; ValueError, in one sentence, if this is not a run."""
    folder = RunFolder(run)
    if not folder.launches.is_file():
        raise ValueError(f"{folder.launches} is missing: name the folder of a run (experiments/NAME).")
    kinds = [kind for kind, files in ((True, folder.trajectories), (False, folder.validations)) if step_files(files)]
    logs = [log for training in kinds for log in find_logs(run, None, training)]
    if not logs:
        raise ValueError(f"{run} keeps neither training trajectories nor validations: nothing can be played again.")
    if logs[0].launch is None:
        raise ValueError(f"{folder.launches} is empty: the run has not started.")
    return tuple(sorted(logs, key=lambda log: (log.step, not log.training)))


def verify(run: Path, logs: Sequence[StoredLog], launches: Sequence[Launch], url: str) -> Findings:
    """Play the logs of a run again on the service at `url`, which serves its tasks, and compare the results.

    ValueError if this machine cannot play one, or if a log holds something that no run writes.
    """
    try:
        return _Verification(RunFolder(run), launches, url).run(logs)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{run} cannot be verified: a log holds what no run writes ({error!r:.80}).") from error


class _Verification:
    """The state of one verification: C_t, rho_t and Omega_t as they follow from the rounds so far."""

    def __init__(self, folder: RunFolder, launches: Sequence[Launch], url: str) -> None:
        self._folder, self._launches, self._url = folder, launches, url
        self._found = Findings()
        self._lines = {name: _lines(folder.log(name)) for name in STEP_LOGS}
        self._launch = launches[0]
        self._loop: ClosedLoop | None = None if launches[0].step else ClosedLoop(launches[0].settings)
        self._omegas: dict[int, Mapping[str, Any]] = {}
        self._step = launches[0].step

    def run(self, logs: Sequence[StoredLog]) -> Findings:
        """Play the logs in their order."""
        self._note()
        trains = any(log.training for log in logs)
        for log in logs:
            if log.training:
                self._enter(log)
            records = tuple(self._replayed(log))
            self._whole(log, records)
            self._found.rollouts += len(records)
            if log.training:
                self._round(log, records)
                self._found.steps += 1
            else:
                self._found.validations += 1
        last = max([self._step, *self._lines["steps"]])
        if trains:
            self._skipped(last + 1)
        elif last:
            self._found.unjudged["training steps, whose trajectories were not kept"] += last
        if (left := self._launches[-1].steps - last) > 0:
            self._found.unjudged["training steps that the configuration asks for and the run did not reach"] += left
        validated = {log.step for log in logs if not log.training}
        for step in due_validations(self._launches, last):
            if step not in validated:
                self._found.missing("tasks", Place(step, False), "it is missing")
        return self._found

    def _note(self) -> None:
        facts = self._launches[-1].facts
        if facts.get("method") != method_digest():
            commit = str(facts.get("commit") or "unknown")[:12]
            self._found.notes.append(f"Trained by commit {commit}, whose method differs from this version's.")
        if facts.get("service", {}).get("data_hash") != data_hash():
            self._found.notes.append("Played with other benchmark data than those of this machine.")

    # --- trajectories -------------------------------------------------------------------

    def _replayed(self, log: StoredLog) -> Iterator[TrajectoryRecord]:
        """The rollouts as the replay gives them; as written if there is no replay."""
        omegas: Omegas = self._omegas if self._loop else log.omegas()
        teaches = log.training and log.launch.settings.teaches
        for each in judge(log, log.terms(None, {}), omegas, self._url):
            if each.now is None:
                self._found.unjudged[f"rollouts: {each.problem}"] += 1
                yield each.stored
                continue
            place = _place(log, each.stored)
            silent = () if teaches or not log.training else ("silent",)
            for what, names in (("verdicts", (*VERDICT, *silent)), ("labels", LABELS)):
                self._found.compare(what, place, difference(_part(each.stored, names), _part(each.now, names)))
            if teaches and each.stored.cues:
                self._found.unjudged["rollouts with a teacher's cues: which cues, and whether they taught"] += 1
            # With a teacher, `silent` depends on the lesson, which the log does not hold.
            yield replace(each.now, silent=each.stored.silent) if teaches else each.now

    def _whole(self, log: StoredLog, records: Sequence[TrajectoryRecord]) -> None:
        """Check that a step has each sample of each of its prompts once, and a validation those of each of its rows."""
        there = Counter((each.data_source, each.task_id, each.sample, each.group) for each in records)
        asked = min((self._asked(log, launch, records) for launch in self._players(log)), key=lambda a: a != there)
        for key in dict.fromkeys((*asked, *there)):
            source, task, sample, _ = key
            if there[key] == asked[key]:
                self._found.compare("tasks", Place(log.step, log.training), None)
                continue
            place = Place(log.step, log.training, task, sample)
            said = "is missing" if not there[key] else f"is there {there[key]} times, and {asked[key]} are asked for"
            self._found.missing("tasks", place, f"this rollout of {source} {said}")

    def _players(self, log: StoredLog) -> tuple[Launch, ...]:
        """The launches that may have played a log: a resumed run may validate before it trains."""
        return log.launch, *(each for each in self._launches if not log.training and each.step == log.step)

    @staticmethod
    def _asked(log: StoredLog, launch: Launch, records: Sequence[TrajectoryRecord]) -> Counter[tuple]:
        """The expected numbers of rollouts, by data source, task, sample and prompt number."""
        rows = [(source, task) for source, task, _ in launch.rows("training" if log.training else "validation")]
        if not log.training:
            return Counter((*row, n, None) for row in rows for n in range(launch.validation_samples))
        asked: Counter[tuple] = Counter()
        for group in range(launch.prompts):
            own = [(each.data_source, each.task_id) for each in records if each.group == group]
            task = next((each for each in own if each in rows), ("an unknown task", ""))
            asked.update((*task, n, group) for n in range(launch.samples))
        return asked

    # --- rounds -------------------------------------------------------------------------

    def _enter(self, log: StoredLog) -> None:
        """Advance to a training step under the settings of its launch, as a resumed trainer does."""
        self._skipped(log.step)
        self._step = log.step
        if self._loop is None:
            return
        if log.launch is not self._launch:
            state, self._loop = self._loop.state, ClosedLoop(log.launch.settings)
            self._loop.restore(state)
        self._launch = log.launch
        if omega := self._loop.omega_to_send():
            self._omegas[omega["version"]] = omega

    def _skipped(self, step: int) -> None:
        """Note the steps missing before this one; nothing can be computed from missing steps."""
        for missing in range(self._step + 1, step):
            self._found.missing("tasks", Place(missing, True), "its trajectories are missing")
            self._loop = None

    def _round(self, log: StoredLog, records: Sequence[TrajectoryRecord]) -> None:
        """Advantages, C_t, rho, w and Omega of a step."""
        groups = mark_groups([str(each.group) for each in records], records)
        self._advantages(log, records, groups)
        if self._loop is None:
            self._found.unjudged["steps whose C_t, rho, w and Omega follow from steps that are not there"] += 1
            return
        weights, report = self._loop.step(log.step, records, groups)
        if log.step not in self._lines["steps"] and log.step > max(self._lines["steps"], default=0):
            self._found.unjudged["steps that the run did not finish"] += 1
            return
        for record, weight in zip(records, weights, strict=True):
            self._found.compare("w", _place(log, record), difference({"w": record.w}, {"w": weight}))
        lines = json.loads(json.dumps(report.lines()))
        for what, name, keys in ROUND:
            written = self._lines[name].get(log.step, {})
            sides = ({key: line[key] for key in keys if key in line} for line in (written, lines[name]))
            self._found.compare(what, Place(log.step, True), difference(*sides))

    def _advantages(self, log: StoredLog, records: Sequence[TrajectoryRecord], groups: Sequence[Group]) -> None:
        """Compare each A_j with the one that follows from the rewards."""
        config = log.launch.config
        if not follow_from_rewards(config):
            self._found.unjudged["advantages, which do not follow only from rewards"] += len(records)
            return
        if log.launch.settings.teaches and "entries" not in config["seal"]["interface"]:
            self._found.unjudged["advantages of a teacher before its plain baselines"] += len(records)
            return
        by_deviation = config["algorithm"].get("norm_adv_by_std_in_grpo", True)
        scores: dict[str, set[float]] = {}
        for each, group in zip(records, groups, strict=True):
            scores.setdefault(group.uid, set()).update({each.score} if group.counts else ())
        expected = group_advantages(records, groups, by_deviation=by_deviation)
        for record, value, group in zip(records, expected, groups, strict=True):
            same = agrees(record.advantage, value, equal_rewards=len(scores[group.uid]) == 1)
            one = None if same else Difference("advantage", record.advantage, value)
            self._found.compare("advantages", _place(log, record), one)


def _place(log: StoredLog, record: TrajectoryRecord) -> Place:
    return Place(log.step, log.training, record.task_id, record.sample)


def _part(record: TrajectoryRecord, names: Sequence[str]) -> dict[str, Any]:
    return json.loads(json.dumps({name: getattr(record, name) for name in names}))


def _lines(path: Path) -> dict[int, Mapping[str, Any]]:
    """The lines of a log that has one per step, by step; if a step was logged twice, the later line."""
    found = {}
    for line in read_jsonl(path) if path.is_file() else ():
        if isinstance(line, BadLine):
            raise ValueError(str(line))
        found[line.value.get("step")] = line.value
    return found
