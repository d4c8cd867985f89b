"""Rollouts of other programs as records: played again if the service can, else judged by what they show."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seal.method import labels
from seal.method.diagnosis.schema import judges
from seal.records.source import UNSCORED
from seal.records.trajectory import TrajectoryRecord
from shelf.lab.foreign.benchmark import align, compare, replay_of
from shelf.lab.foreign.rollout import Rollout
from shelf.lab.foreign.seen import label_dialogue, sources
from shelf.replay.player import play_again
from shelf.statistics.summary import FOREIGN


class Judged(NamedTuple):
    """A rollout and its record. differs: a sentence on what the replay contradicts, "" if nothing."""

    rollout: Rollout
    record: TrajectoryRecord
    differs: str = ""


def judge(rollouts: Sequence[Rollout], url: str) -> Iterator[Judged]:
    """Every rollout judged, in order; the service at `url` judges those of the benchmark's tasks."""
    rollouts = [align(rollout) if rollout.replays else rollout for rollout in rollouts]
    samples: Counter[tuple[str, int]] = Counter()
    pairs = []
    for rollout in rollouts:
        task = rollout.task_id, rollout.prefix
        pairs.append((rollout, {"task_id": rollout.task_id, "split": "eval", "step": 0, "sample": samples[task]}))
        samples[task] += 1
    played = play_again((replay_of(rollout, names) for rollout, names in pairs if rollout.replays), url)
    for rollout, names in pairs:
        if rollout.failure:
            lost = {"infra": "inference", "infra_message": rollout.failure, "score": 0.0}
            yield Judged(rollout, TrajectoryRecord(**names, **lost, **sources(rollout, FOREIGN)))
        elif rollout.replays:
            yield Judged(rollout, *compare(rollout, next(played)))
        else:
            yield Judged(rollout, label_dialogue(rollout, names))


def sentences(every: Sequence[Judged]) -> Iterator[str]:
    """Sentences on how the rollouts were judged, how many faults are own ones, and which rollouts were not judged."""
    yield from _on_replays([judged for judged in every if judged.rollout.replays], len(every))
    for text, count in Counter(judged.rollout.failure for judged in every if judged.rollout.failure).most_common():
        yield f"{count} count as not run, by their file: {text}"
    if unread := Counter(kind for judged in every for kind in judged.rollout.unread):
        kinds = ", ".join(f"{count} {kind}" for kind, count in unread.most_common())
        yield f"Parts and items of these kinds were not read: {kinds}."
    if subagents := [judged.rollout for judged in every if judged.rollout.subagents]:
        number, first = sum(rollout.subagents for rollout in subagents), subagents[0].place
        yield f"{number} trajectories of sub-agents and other branches have no labels, first those of {first}."
    of_file = [judged.rollout for judged in every if not (judged.rollout.replays or judged.rollout.failure)]
    if vague := [each for each in of_file if not all(judges(tool.get("parameters", {})) for tool in each.tools or ())]:
        yield f"Documents of tools in {len(vague)} are not JSON Schemas and judge nothing, first in {vague[0].place}."
    if above := [each for each in of_file if (each.reward or 0.0) > 1.0]:
        yield f"{len(above)} have a reward above 1, which counts as passed like 1, first {above[0].place}."
    if seen := [judged.record for judged in every if not (judged.rollout.replays or judged.rollout.failure)]:
        turns = Counter(label for record in seen for label in record.labels)
        yield (
            f"{len(seen)} were judged by schemas, errors and repetition; {turns[labels.CHECKER_ERROR]} of their "
            f"{turns.total()} turns show nothing by themselves and have no label."
        )
    if any(judged.record.environment == UNSCORED for judged in every):
        yield "The rows of unscored/ have no reward in their file, so they have labels and no rates."


def _on_replays(replayed: Sequence[Judged], of: int) -> Iterator[str]:
    without = [judged for judged in replayed if judged.record.infra is not None]
    if played := len(replayed) - len(without):
        yield f"{played} of {of} rollouts were played again on the benchmark: labels are exact."
        blames = Counter(found.get("blame") for judged in replayed for found in judged.record.diagnosis)
        yield f"Of their failed turns {blames['own']} are own faults and {blames['inherited']} inherited ones."
    for each in without:
        lost = "was not judged" if each.record.infra == "misread" else "could not be played again"
        yield f"{each.rollout.place} {lost}: {each.record.infra_message}."
    if differing := [judged for judged in replayed if judged.differs]:
        yield f"{len(differing)} differ from their file, first {differing[0].rollout.place}: {differing[0].differs}."
