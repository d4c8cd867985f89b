"""The closed loop of a run: records of a step in, w_j and the step's report out.

Algorithm 1 itself is in `seal/method/algorithm.py`; this module turns records into its rollouts, gives it the control
and the teacher of the recipe, and reports. Free of verl and torch.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev
from typing import Any

from seal.method.algorithm import Rollout, Round, State, play_round
from seal.method.controls import relabel
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.teacher import Trial, figures, teacher_of
from seal.records.step import Lift, Range, SentOmega, StepRecord, StepReport
from seal.records.trajectory import TrajectoryRecord, count_labels
from seal.settings import SealSettings

_EPSILON = 1e-6
"""verl divides by the standard deviation plus this."""
MIN_GROUP = 2
"""Usable trajectories that a group needs; a single one has no spread, and its advantage would be its raw reward."""


@dataclass(frozen=True)
class Group:
    """One trajectory's standing in its group.

    uid: the prompt. counts: usable, in a group with at least MIN_GROUP usable ones. trains: it counts, is not silent.
    """

    uid: str
    counts: bool
    trains: bool


def mark_groups(uids: Sequence[str], records: Sequence[TrajectoryRecord]) -> list[Group]:
    """Return the standing of each trajectory, in their order."""
    usable = Counter(uid for uid, record in zip(uids, records, strict=True) if record.usable)
    groups = []
    for uid, record in zip(uids, records, strict=True):
        counts = record.usable and usable[uid] >= MIN_GROUP
        groups.append(Group(uid, counts, counts and not record.silent))
    return groups


def by_prompt(groups: Sequence[Group]) -> dict[str, list[int]]:
    """The places of the trajectories that count, by the uid of their prompt."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        if group.counts:
            found[group.uid].append(place)
    return found


def plain_advantages(
    records: Sequence[TrajectoryRecord], groups: Sequence[Group], *, by_deviation: bool
) -> dict[int, float]:
    """A_j of the plain rollouts of prompts that also have cued ones, by place: GRPO's among the prompt's plain ones.

    A teacher's cued successes teach by their lessons; in this baseline they would also make every plain failure of
    their prompt worse. by_deviation: divided by the standard deviation, as verl does.
    """
    found = {}
    for places in by_prompt(groups).values():
        plain = [place for place in places if not records[place].cues]
        if len(plain) < len(places):
            scores = [records[place].score for place in plain]
            found |= {place: relative(records[place].score, scores, by_deviation=by_deviation) for place in plain}
    return found


def relative(score: float, scores: Sequence[float], *, by_deviation: bool) -> float:
    """GRPO's A_j of a score among those of its group (paper, section 2)."""
    spread = stdev(scores) + _EPSILON if by_deviation and len(scores) > 1 else 1.0
    return (score - fmean(scores)) / spread


class ClosedLoop:
    """The state of Algorithm 1 over the steps of a run."""

    def __init__(self, settings: SealSettings):
        self._settings = settings
        self._extension = taxonomy_of(settings.diagnosis.taxonomy)
        self._state = State.initial(settings, self._extension)
        self._teacher = teacher_of(settings)

    def omega_to_send(self) -> dict[str, Any] | None:
        """Omega_t for the next training prompts, or None if the interface is off."""
        return self._state.omega.to_json() if self._settings.shows_omega else None

    def step(
        self,
        step: int,
        records: Sequence[TrajectoryRecord],
        groups: Sequence[Group],
        transfers: Mapping[int, float] | None = None,
    ) -> tuple[list[float], StepReport]:
        """Play a round; returns w_j of each trajectory, 0 for one that does not count, and the report.

        groups: the standing of each trajectory. transfers: `Trial.transfer` of what was taught, by its number.
        """
        settings, shown = self._settings, self._state.omega
        order = _order(records, groups)
        prompts, told = by_prompt(groups).values(), transfers or {}
        compared = [[records[i] for i in places] for places in prompts]
        trials = [[self._trial(records[i], told.get(i)) for i in places] for places in prompts]
        environments = (prompt[0].environment for prompt in compared)
        rollouts = [self._rollout(step, records[i]) for i in order]
        control = partial(
            relabel, settings=settings.diagnosis, extension=self._extension, seed=settings.seed, step=step
        )
        played = play_round(self._state, step, rollouts, settings, self._extension, control)
        self._state = played.state
        w = dict(zip(order, played.w, strict=True))
        record = replace(
            _record(step, records, groups, compared, played),
            omega=SentOmega.of(shown) if settings.shows_omega else None,
            lift=Lift.of([each for each in prompt if self._teacher.comparable(each.sample)] for prompt in compared),
            teaching=figures([*zip(environments, trials, strict=True)]) if self._teacher.teaches else {},
        )
        report = StepReport(record, self._state.profile.to_json(), self.omega_to_send())
        return [w.get(i, 0.0) for i in range(len(records))], report

    def _rollout(self, step: int, record: TrajectoryRecord) -> Rollout:
        drawn = step if record.drawn is None else record.drawn
        return Rollout(record.category, record.labels, record.score, drawn, not (self._teacher.teaches and record.cues))

    def _trial(self, record: TrajectoryRecord, transfer: float | None) -> Trial:
        """A rollout as a teacher compares it."""
        failures = self._teacher.failures(record.signals, record.cues)
        comparable = self._teacher.comparable(record.sample)
        return Trial(record.cues, failures, record.score, record.taught, transfer, comparable)

    @property
    def state(self) -> dict[str, Any]:
        """C, rho and Omega as JSON values, for the checkpoint."""
        return self._state.to_json()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state; what the recipe fixes (the window, a static rho) comes from it."""
        self._state = State.from_json(state, self._settings, self._extension)


def records_to_log(
    records: Sequence[TrajectoryRecord], groups: Sequence[Group], advantages: Sequence[float], w: Sequence[float]
) -> list[TrajectoryRecord]:
    """A step's records with the number of their prompt in the step, A_j and w_j."""
    numbers = {uid: number for number, uid in enumerate(dict.fromkeys(group.uid for group in groups))}
    rows = zip(records, groups, advantages, w, strict=True)
    return [replace(record, group=numbers[group.uid], advantage=a, w=factor) for record, group, a, factor in rows]


def _order(records: Sequence[TrajectoryRecord], groups: Sequence[Group]) -> list[int]:
    """The trajectories that count, in an order that does not depend on which ended first: the controls draw in it."""
    places = [place for place, group in enumerate(groups) if group.counts]
    return sorted(places, key=lambda i: (records[i].data_source, records[i].task_id, records[i].sample))


def _has_signal(prompt: Sequence[TrajectoryRecord]) -> bool:
    """Whether an advantage of a prompt's rollouts differs from 0 (`plain_advantages`: of a teacher's, the lessons')."""
    plain, every = {each.score for each in prompt if not each.cues}, {each.score for each in prompt}
    return len(plain) > 1 or (len(every) > 1 and any(each.taught for each in prompt))


def _record(
    step: int,
    records: Sequence[TrajectoryRecord],
    groups: Sequence[Group],
    prompts: Sequence[Sequence[TrajectoryRecord]],
    played: Round,
) -> StepRecord:
    """The figures of a step and of its round. prompts: the rollouts that count, by prompt."""
    counting = [record for prompt in prompts for record in prompt]
    return replace(
        StepRecord.of(step, records),
        label_counts=count_labels(played.labels),
        rho=dict(played.state.rho),
        w=Range.of(played.w),
        groups_with_spread=sum(map(_has_signal, prompts)),
        trajectories_dropped=len(records) - len(counting),
        groups_dropped=len({group.uid for group in groups}) - len(prompts),
        staleness=Range.of([step - 1 - record.weights[0] for record in counting if record.weights]),
        events=played.events,
    )
