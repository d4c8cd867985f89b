"""One stored rollout judged again: its verdict, labels and reward now, and why they differ."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from env_service.environments.bfcl import clock
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.rewards import terminal_reward
from seal.settings.diagnosis import Taxonomy
from seal.settings.reward import RewardSettings
from shelf.lab.certificate.episode import UNPLAYABLE, Again, RecordedLimits, ended_as, parameters, said
from shelf.lab.certificate.places import difference, shown


@dataclass(frozen=True)
class Conditions:
    """How rollouts were played, and how they are judged now.

    training: they are of a training step, with its Omega as JSON values (None without
    one). prompt_mode: None for that of the record. max_steps: of an evaluation, None for
    the service's.
    """

    training: bool
    taxonomy: Taxonomy
    reward: RewardSettings
    prompt_mode: str | None = None
    enforce_available_tools: bool | None = None
    omega: Mapping[str, Any] | None = None
    max_steps: int | None = None


class Reason(NamedTuple):
    """Why a rollout is judged differently: the part that changed (a key of PARTS), and where, as text."""

    part: str
    text: str


PARTS = {
    "tools": "the simulators answer a call differently",
    "checker": "the checker compares a turn differently",
    "episode": "the episode takes another course",
    "labels": "the diagnosis names the same evidence differently",
    "reward": "the reward grades the same verdict differently",
}


class Rescored(NamedTuple):
    """A rollout as stored and as judged now, both without messages and evidence.

    now is None if infrastructure had lost it or it cannot be played, and `problem` says which.
    reason is None if verdict, labels and reward are the same.
    """

    stored: TrajectoryRecord
    now: TrajectoryRecord | None
    reason: Reason | None = None
    problem: str = ""


def rescore(text: bytes, conditions: Conditions) -> Rescored:
    """Judge a stored line again; never raises for an episode that the environment does not play."""
    record = TrajectoryRecord.from_line(json.loads(text))
    stored = replace(record, messages=(), evidence=(), sampled=())
    if record.infra is not None:
        return Rescored(stored, None, problem=f"lost to infrastructure ({record.infra})")
    try:
        now, other_course = _judged(record, conditions)
    except UNPLAYABLE as error:
        return Rescored(stored, None, problem=f"the environment does not play it ({error})")
    slim = replace(now, messages=(), evidence=())
    return Rescored(stored, slim, _reason(record, now, other_course))


def _judged(record: TrajectoryRecord, conditions: Conditions) -> tuple[TrajectoryRecord, bool]:
    """The record as it is judged now, and whether the policy said more or less than the episode now takes."""
    if record.omega_version is not None and conditions.omega is None:
        raise ValueError("its Omega is not in the run's log")
    omega = conditions.omega if record.omega_version is not None else None
    mode, enforced = conditions.prompt_mode or record.prompt_mode, conditions.enforce_available_tools
    params = parameters(record, mode, conditions.training, enforced, omega)
    if conditions.max_steps is not None:
        params["max_steps"] = conditions.max_steps
    limits = RecordedLimits(record.evidence, enforces=conditions.training and bool(enforced))
    with clock.as_of(datetime.date.fromisoformat(record.day) if record.day else clock.today()):
        again = Again(record.task_id, params, limits).play(record)
        cut = {"stop": CUTS[record.stop]} if record.stop in CUTS else {}
        evaluation = again.evaluate({"taxonomy": conditions.taxonomy, **cut})
    # Only a budget of ours ends a dialogue that the environment would have continued.
    other_course = len(again.turns) != len(said(record)) or again.ended != (record.stop not in CUTS)
    stop = ended_as(record.stop if cut else "completed", evaluation)
    known = {
        **{name: getattr(record, name) for name in _KEPT},
        "score": terminal_reward(evaluation, conditions.reward, conditions.training and stop in CUTS),
        "stop": stop,
        "data_hash": str(again.info["data_hash"]),
    }
    return TrajectoryRecord.of(evaluation, **known), other_course and not _cut_message_ended(record)


_KEPT = ("task_id", "data_source", "category", "split", "sample", "step", "prompt_mode", "tokens", "day", "w", "group")


def _cut_message_ended(record: TrajectoryRecord) -> bool:
    """Whether a cut message was the last one, after which the environment may or may not have ended the episode."""
    return bool(record.truncated) and max(record.truncated) == len(said(record)) - 1


def _reason(stored: TrajectoryRecord, now: TrajectoryRecord, other_course: bool) -> Reason | None:
    """The first cause, in the order in which one follows from the other; None if nothing that counts differs."""
    same_score = difference(stored.score, now.score) is None
    if stored.passed == now.passed and same_score and tuple(stored.labels) == tuple(now.labels):
        return None
    written, found = (json.loads(json.dumps(list(each.evidence))) for each in (stored, now))
    for turn, (was, is_now) in enumerate(zip(written, found, strict=False)):
        if text := _calls(was["actions"], is_now["actions"]):
            return Reason("tools", f"turn {turn}: {text}")
        for name in ("state_match", "response_match", "instances_match", "reference_error", "checker_error"):
            if was.get(name) != is_now.get(name):
                return Reason("checker", f"turn {turn}: {name} was {was.get(name)} and is {is_now.get(name)}")
        if was.get("stop") != is_now.get("stop"):
            return Reason("episode", f"turn {turn}: stop was {was.get('stop')} and is {is_now.get('stop')}")
    if len(written) != len(found):
        return Reason("episode", f"{len(written)} turns were played, and the task has {len(found)}")
    if other_course:
        return Reason("episode", "the environment ends it after another message")
    if stored.passed != now.passed and not same_score and stored.turns_passed == now.turns_passed:
        return Reason("reward", f"reward was {stored.score:g} and is {now.score:g}")
    for turn, (was, is_now) in enumerate(zip(stored.labels, now.labels, strict=False)):
        if was != is_now:
            return Reason("labels", f"turn {turn}: {was} is {is_now} now")
    return Reason("reward", f"reward was {stored.score:g} and is {now.score:g}")


def _calls(written: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> str:
    """The first call that is answered differently; "" if there is none."""
    pairs = zip(
        *([call for action in actions for call in action["calls"]] for actions in (written, found)), strict=False
    )
    for was, is_now in pairs:
        for name in ("name", "arguments", "available", "error", "result"):
            if was.get(name) != is_now.get(name):
                what = f"{was['name']}: {name} was {shown(was.get(name))} and is {shown(is_now.get(name))}"
                return what
    counts = [sum(len(action["calls"]) for action in actions) for actions in (written, found)]
    return "" if counts[0] == counts[1] else f"{counts[0]} calls were read, and {counts[1]} are now"
