"""One trajectory played again in the environment, from what the policy said.

Everything else in its record is computed anew and compared: the environment's
messages, evidence, labels, blame, verdict, reward and counts. Taken as they are
are only what no replay can know: token counts, which the budgets must allow,
calls that exceeded a limit of the service, and losses to infrastructure.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from env_service.environments.bfcl import clock
from seal.diagnosis.categories import parse_task_id
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.rewards import terminal_reward
from seal.rollout.row import sees_omega
from seal.settings import SealSettings
from shelf.lab.certificate.episode import UNPLAYABLE, Again, RecordedLimits, ended_as, parameters
from shelf.lab.certificate.fields import ASPECT_OF, LOST_HASHED, TRAJECTORY_HASHED
from shelf.lab.certificate.places import Disagreement, Place, difference, says, shown
from shelf.lab.certificate.unordered import in_one_order


@dataclass(frozen=True)
class Stage:
    """What the trajectories of one step, or of one validation, were played with.

    omega: Omega_t as JSON values, None without one. sides: the side of each row, by
    data source and task.
    """

    step: int
    training: bool
    settings: SealSettings
    budgets: Budgets
    prompt_mode: str
    omega: Mapping[str, Any] | None
    sides: Mapping[tuple[str, str], str]

    @property
    def kind(self) -> str:
        """The kind of its records."""
        return "training" if self.training else "validation"

    def place(self, line: Mapping[str, Any]) -> Place:
        """Where one of its trajectories is."""
        task, sample = line.get("task_id"), line.get("sample")
        return Place(step=self.step, validation=not self.training, task=str(task), sample=sample)


class Replayed(NamedTuple):
    """A trajectory that was played again.

    record: as recomputed, without messages and evidence; None if the line cannot be
    played. problems: what does not hold, in the order of the fields. agree, of: by
    aspect (see `fields`), whether all its fields agree. written: the fields that only
    the step as a whole decides. overdue: calls that are taken to have exceeded a limit.
    """

    record: TrajectoryRecord | None
    problems: tuple[Disagreement, ...]
    disagreeing: frozenset[str]
    written: Mapping[str, Any]
    overdue: int = 0


WEIGHING = ("group", "advantage", "w")
"""The fields that only the step as a whole decides."""


def replay(text: bytes, stage: Stage) -> Replayed:
    """Play a record's trajectory again; never raises for what the record holds."""
    place = Place(step=stage.step, validation=not stage.training)
    try:
        line = json.loads(text)[stage.kind]
        place = stage.place(line)
        record = TrajectoryRecord.from_line(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return _unreadable(
            place._replace(field=str(first["loc"][0])), f"{shown(first['input'])}: {first['msg'].lower()}"
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return _unreadable(place, f"the trajectory cannot be read ({str(error).splitlines()[0]})")
    faults = _Faults(stage.place(line))
    try:
        again, overdue = _played(record, stage, faults.add)
    except UNPLAYABLE as error:
        faults.add("task_id", f"the environment does not play it ({error})")
        return Replayed(None, tuple(faults.problems), frozenset(faults.aspects), {})
    found = json.loads(json.dumps(again.line()))
    decided = frozenset(WEIGHING if stage.training else ())
    for field in dict.fromkeys((*found, *line)):
        if field not in decided:
            sides = ({field: each[field]} if field in each else {} for each in (line, found))
            same = in_one_order if field in _PRINTED else str
            if (one := difference(*sides, same=same)) is not None:
                faults.add(one.field, says(one), _turn_of(one.path, again))
    written = {name: line.get(name) for name in (*WEIGHING, "sample", "task_id", "data_source")}
    slim = replace(again, messages=(), evidence=())
    return Replayed(slim, tuple(faults.problems), frozenset(faults.aspects), written, overdue)


def _unreadable(place: Place, problem: str) -> Replayed:
    return Replayed(None, (Disagreement(place, problem),), frozenset({"identities"}), {})


class _Faults:
    """What does not hold in one trajectory."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.problems: list[Disagreement] = []
        self.aspects: set[str] = set()

    def add(self, field: str, problem: str, turn: int | None = None) -> None:
        self.problems.append(Disagreement(self._place._replace(field=field, turn=turn), problem))
        self.aspects.add(ASPECT_OF.get(field.partition("[")[0], "identities"))


Fault = Callable[[str, str], None]
"""Notes a field that does not hold, and why."""


def _played(record: TrajectoryRecord, stage: Stage, fault: Fault) -> tuple[TrajectoryRecord, int]:
    """The record as the replay gives it, and how many calls are taken to have exceeded a limit."""
    category, _ = parse_task_id(record.task_id)
    known = {
        "category": category,
        "split": stage.sides.get((record.data_source, record.task_id), "in no row of this run"),
        "step": stage.step,
        "prompt_mode": stage.prompt_mode,
    }
    if not record.messages and record.infra is not None:
        return _lost(record, stage, known | {"omega_version": None, "data_hash": "", "messages": ()}), 0
    try:
        day = datetime.date.fromisoformat(record.day)
    except ValueError:
        fault("day", f"{record.day!r} is not a date")
        day = clock.today()
    enforced = stage.settings.rollout.enforce_available_tools
    omega = stage.omega if sees_omega(record.sample, stage.settings.interface.share) else None
    limits = RecordedLimits(record.evidence, enforces=stage.training and enforced)
    with clock.as_of(day):
        again = Again(record.task_id, parameters(record, stage.prompt_mode, stage.training, enforced, omega), limits)
        info = again.info
        known |= {"omega_version": (info["omega"] or {}).get("version"), "data_hash": info["data_hash"]}
        if record.infra is not None:
            messages = again.messages
            return _lost(record, stage, known | {"messages": (*messages, *record.messages[len(messages) :])}), 0
        again.play(record)  # what else was said appears as a difference of the dialogues
        turns = again.turns
        known["messages"] = tuple(again.messages)
        stop = _stop(record, stage, len(turns), again.ended, fault)
        cut = {"stop": CUTS[stop]} if stop in CUTS else {}
        evaluation = again.evaluate({"taxonomy": stage.settings.diagnosis.taxonomy, **cut})
    stop = ended_as(stop, evaluation)
    spans = tuple((turn, start, end) for turn, (_, start, end) in zip(turns, record.spans, strict=False))
    if len(record.spans) != len(turns):
        fault("spans", f"{len(record.spans)} spans for {len(turns)} messages")
    known |= {
        "stop": stop,
        "excluded": _excluded(stop, stage),
        "score": terminal_reward(evaluation, stage.settings.reward, stage.training and stop in CUTS),
        "spans": spans,
        "tokens": sum(end - start for _, start, end in spans),
    }
    carried = {name: getattr(record, name) for name in _CARRIED}
    return TrajectoryRecord.of(evaluation, **carried | known), limits.overdue


def _lost(record: TrajectoryRecord, stage: Stage, known: Mapping[str, Any]) -> TrajectoryRecord:
    """A trajectory that infrastructure failed: nobody judged it."""
    carried = {name: getattr(record, name) for name in (*_CARRIED, *LOST_HASHED - {"output"})}
    return TrajectoryRecord.of(None, **carried | known, score=0.0, excluded=_excluded(record.stop, stage))


_PRINTED = ("output", "evidence")
"""The fields that hold what tools have printed."""

_CARRIED = (*TRAJECTORY_HASHED, "task_id", "data_source", "sample", "truncated", *WEIGHING)
"""The fields that no replay changes."""


def _excluded(stop: str, stage: Stage) -> bool:
    return stage.training and stop in CUTS and stage.settings.reward.cut == "exclude"


def _stop(record: TrajectoryRecord, stage: Stage, messages: int, ended: bool, fault: Fault) -> str:
    """How the rollout ended, from its budgets; reports token counts that the budgets do not allow."""
    limit, before = "", 0
    for number, (_, start, end) in enumerate(record.spans[:messages]):
        limit, room = stage.budgets.room(start, record.prompt_tokens + start, stage.training)
        cut = number in record.truncated
        if not before <= start < end:
            fault(f"spans[{number}]", f"[{start}, {end}) is empty or overlaps the message before")
        elif end - start > room or (cut and end - start < room):
            fault(f"spans[{number}]", f"{end - start} tokens{', cut,' if cut else ''} where {room} were left ({limit})")
        before = end
    if any(not 0 <= number < messages for number in record.truncated):
        fault("truncated", f"names a message that is not there ({shown(record.truncated)})")
    if record.length < record.prompt_tokens + (record.spans[-1][1] if record.spans else 0):
        fault("length", f"{record.length} tokens are fewer than those of the messages")
    if ended:
        return limit if messages - 1 in record.truncated else "completed"
    limit, room = stage.budgets.room(record.length - record.prompt_tokens, record.length, stage.training)
    if room < 1:
        return limit
    if stage.training and messages >= stage.budgets.max_steps:
        return "max_steps"
    fault("stop", "the dialogue breaks off, and no budget ended it")
    return record.stop


def _turn_of(path: Sequence[str | int], record: TrajectoryRecord) -> int | None:
    """The user turn that a field belongs to, if it belongs to one."""
    if len(path) < 2 or not isinstance(path[1], int):
        return None
    field, index = path[0], path[1]
    if field == "output":
        own = [turn for turn, _, _ in record.spans]
        roles = [message["role"] for message in record.messages]
        start = roles.index("assistant") if "assistant" in roles else len(roles)
        number = roles[start : start + index + 1].count("assistant")
        return own[number - 1] if 0 < number <= len(own) else None
    if field == "spans":
        return record.spans[index][0] if index < len(record.spans) else None
    return index if field in ("labels", "diagnosis", "evidence") else None
