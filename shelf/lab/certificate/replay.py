"""One trajectory played again on a service, from what the policy said.

Everything else in its record is computed anew and compared: the environment's
messages, evidence, labels, blame, verdict, reward and counts. Taken as they are
are only what no replay can know: token counts, which the budgets must allow,
calls that exceeded a limit of the service, and losses to infrastructure.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from seal.diagnosis.categories import parse_task_id
from seal.interface.cues import Omega
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.play import Terms
from seal.settings import SealSettings
from seal.teacher import sees_omega
from shelf.lab.certificate.fields import ASPECT_OF, LOST_HASHED
from shelf.lab.certificate.file import Record
from shelf.lab.certificate.places import Disagreement, Place, difference, says, shown
from shelf.lab.certificate.unordered import in_one_order
from shelf.view.again import Again, refused_calls

WEIGHING = ("group", "advantage", "w")
"""The fields that only the step as a whole decides."""
TAUGHT = ("cues", "taught", "silent")
"""Those that the whole prompt decides where there is a teacher."""
UNPLAYABLE = frozenset({"environment_refused", "environment_failed", "environment_broken"})
"""What a record that does not fit the environment makes of a replay; other faults are this machine's."""
_PRINTED = ("output", "evidence")
"""The fields that hold what tools have printed."""


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
        return "training" if self.training else "validation"

    @property
    def teaches(self) -> bool:
        """Whether a teacher chose what its trajectories see."""
        return self.training and self.settings.teaches

    @property
    def terms(self) -> Terms:
        """How its trajectories are judged."""
        return Terms(self.training, self.settings.reward, self.settings.diagnosis.taxonomy)

    def parameters(self, record: TrajectoryRecord) -> dict[str, Any]:
        """The parameters of /create for one of its trajectories."""
        omega = self.omega if sees_omega(record.sample, self.settings.interface.share) else None
        if self.teaches:
            omega = Omega.of(record.cues, self.omega["version"]).to_json() if record.cues else None
        return parameters(record, self.prompt_mode, self.training, True, omega)


class Replayed(NamedTuple):
    """A trajectory that was played again.

    record: as recomputed, without messages and evidence; None if the line cannot be
    played. problems: what does not hold, in the order of the fields. disagreeing: the
    aspects (see `fields`) of these. written: the fields that only the step as a whole
    decides. overdue: calls that are taken to have exceeded a limit.
    """

    record: TrajectoryRecord | None
    problems: tuple[Disagreement, ...]
    disagreeing: frozenset[str]
    written: Mapping[str, Any]
    overdue: int = 0


def parameters(
    record: TrajectoryRecord, prompt_mode: str, training: bool, enforce_available_tools: bool | None, omega: Any
) -> dict[str, Any]:
    """The parameters of /create, as the agent loop sends them (the leak guard changes no answer)."""
    params: dict[str, Any] = {"split": record.split if training else "eval", "tool_prompt_mode": prompt_mode}
    if record.prefix > 0:
        params["turns"] = record.prefix
    if training:
        params["enforce_available_tools"] = enforce_available_tools
        if omega is not None:
            params["omega"] = omega
    return params


class Line:
    """A trajectory of a certificate: what it says, the replay that it needs (again; None for none), and its faults."""

    def __init__(self, written: Record, stage: Stage) -> None:
        """Read the record; never raises for what it holds."""
        self.written = written
        self.again: Again | None = None
        self._stage = stage
        self._place = Place(step=stage.step, validation=not stage.training)
        self._problems: list[Disagreement] = []
        self._aspects: set[str] = set()
        self._record: TrajectoryRecord | None = None
        self._overdue = 0
        try:
            self._line = json.loads(written.text)[stage.kind]
            task, sample = self._line.get("task_id"), self._line.get("sample")
            self._place = self._place._replace(task=str(task), sample=sample)
            record = TrajectoryRecord.from_line(self._line)
            self._overdue = 0 if record.infra is not None else len(refused_calls(record.evidence, self._enforced))
            self.again = self._replay(record)
            self._record = record
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            self._fault(str(first["loc"][0]), f"{shown(first['input'])}: {first['msg'].lower()}")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._fault("", f"the trajectory cannot be read ({str(error).splitlines()[0]})")

    def compared(self, new: TrajectoryRecord | None) -> Replayed:
        """The findings; new: what the replay gave, None if there was none.

        ValueError if this machine could not play it.
        """
        record = self._record
        if record is None:
            return Replayed(None, tuple(self._problems), frozenset({"identities"}), {})
        if new is not None and new.infra is not None:
            if new.infra not in UNPLAYABLE:
                raise ValueError(f"Record {self.written.number} cannot be played again here: {new.infra_message}")
            self._fault("task_id", f"the environment does not play it ({new.infra_message})")
            return Replayed(None, tuple(self._problems), frozenset(self._aspects), {})
        expected = self._expected(record, new)
        line = json.loads(json.dumps(expected.line()))
        decided = frozenset(WEIGHING if self._stage.training else ())
        for field in dict.fromkeys((*line, *self._line)):
            if field not in decided:
                sides = ({field: each[field]} if field in each else {} for each in (self._line, line))
                same = in_one_order if field in _PRINTED else str
                if (one := difference(*sides, same=same)) is not None:
                    self._fault(one.field, says(one), _turn_of(one.path, expected))
        written = {name: self._line.get(name) for name in (*WEIGHING, *TAUGHT, "sample", "task_id", "data_source")}
        slim = replace(expected, messages=(), evidence=())
        return Replayed(slim, tuple(self._problems), frozenset(self._aspects), written, self._overdue)

    @property
    def _enforced(self) -> bool:
        return self._stage.training

    def _fault(self, field: str, problem: str, turn: int | None = None) -> None:
        self._problems.append(Disagreement(self._place._replace(field=field or None, turn=turn), problem))
        self._aspects.add(ASPECT_OF.get(field.partition("[")[0], "identities"))

    def _replay(self, record: TrajectoryRecord) -> Again | None:
        """What is played: all that was said, or only the opening of what infrastructure lost."""
        params = self._stage.parameters(record)
        if record.infra is not None:
            opening = replace(record, messages=(), evidence=(), stop="completed", spans=(), truncated=())
            return Again(opening, params, self._stage.terms) if record.messages else None
        self._limit, self._open = _limit(record, self._stage, self._fault)
        messages = record.messages
        if self._open:
            # Unless the environment ends the episode, this shows that the dialogue would have gone on.
            messages = (*messages, {"role": "assistant", "content": ""})
        return Again(replace(record, stop=self._limit or "completed", messages=messages), params, self._stage.terms)

    def _expected(self, record: TrajectoryRecord, new: TrajectoryRecord | None) -> TrajectoryRecord:
        """The record that the log should hold."""
        stage = self._stage
        known = {
            "category": parse_task_id(record.task_id)[0],
            "split": stage.sides.get((record.data_source, record.task_id), "in no row of this run"),
            "step": stage.step,
            "prompt_mode": stage.prompt_mode,
            "cues": (),
            "taught": False,
            # What follows from the whole prompt is compared with the step.
            **({name: getattr(record, name) for name in TAUGHT} if stage.teaches else {}),
            "withdrawn": None,  # a withdrawal's trajectories have a file of their own
        }
        if not stage.training:
            known |= {"group": None, "advantage": None, "w": None}
        if record.infra is not None:
            return self._lost(record, new, known)
        if self._open and _said(new) > _said(record):
            self._fault("stop", "the dialogue breaks off, and no budget ended it")
        kept = {name: getattr(record, name) for name in ("day", "rebuilt", "infra", "infra_message")}
        return replace(new, **kept, **known, tokens=sum(end - start for _, start, end in new.spans))

    def _lost(
        self, record: TrajectoryRecord, new: TrajectoryRecord | None, known: Mapping[str, Any]
    ) -> TrajectoryRecord:
        """A trajectory that infrastructure failed: nobody judged it."""
        opening = new.messages if new else ()
        hashed = {name: getattr(record, name) for name in LOST_HASHED - {"output"}}
        weighed = {name: getattr(record, name) for name in WEIGHING}
        names = {name: getattr(record, name) for name in ("task_id", "data_source", "sample")}
        seen = {
            "omega_version": new.omega_version if new else None,
            "data_hash": new.data_hash if new else "",
            "messages": (*opening, *record.messages[len(opening) :]),
            "score": 0.0,
            "excluded": _cut_is("exclude", record.stop, self._stage),
            "silent": _cut_is("silent", record.stop, self._stage),
        }
        return TrajectoryRecord.of(None, **hashed | weighed | names | seen | dict(known))


def _cut_is(what: str, stop: str, stage: Stage) -> bool:
    return stage.training and stop in CUTS and stage.settings.reward.cut == what


def _said(record: TrajectoryRecord) -> int:
    """How many messages the policy said."""
    return sum(message["role"] == "assistant" for message in record.messages)


def _limit(record: TrajectoryRecord, stage: Stage, fault: Callable[[str, str], None]) -> tuple[str, bool]:
    """The budget that ended a rollout unless the environment did ("" for none), and whether only the environment can
    have; reports token counts that the budgets do not allow."""
    said, limit, before = _said(record), "", 0
    for number, (_, start, end) in enumerate(record.spans):
        limit, room = stage.budgets.room(start, record.prompt_tokens + start, stage.training)
        cut = number in record.truncated
        if not before <= start < end:
            fault(f"spans[{number}]", f"[{start}, {end}) is empty or overlaps the message before")
        elif end - start > room or (cut and end - start < room):
            fault(f"spans[{number}]", f"{end - start} tokens{', cut,' if cut else ''} where {room} were left ({limit})")
        before = end
    if len(record.spans) != said:
        fault("spans", f"{len(record.spans)} spans for {said} messages")
    if record.length < record.prompt_tokens + (record.spans[-1][1] if record.spans else 0):
        fault("length", f"{record.length} tokens are fewer than those of the messages")
    following, room = stage.budgets.room(record.length - record.prompt_tokens, record.length, stage.training)
    if room >= 1:
        following = "max_steps" if stage.training and said >= stage.budgets.max_steps else ""
    if said - 1 not in record.truncated:
        return following, False
    # A cut message ends a dialogue by the environment's word; in validation the dialogue may go on to the next limit.
    return (following if record.stop == following else limit), not following


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
