"""What judging a log again changes: counts, reasons, and paired differences."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from rich.console import RenderableType

from seal.records.trajectory import TrajectoryRecord
from seal.statistics.comparison import Comparison, Side, compare
from seal.statistics.intervals import PairedDifference, paired_difference
from seal.statistics.tables import comparison_record, comparison_table, percent, table
from shelf.lab.certificate.processes import gathered, replayers
from shelf.lab.rescoring.score import PARTS, Conditions, Rescored, rescore
from shelf.lab.rescoring.stored import StoredLog

STORED, NOW = "stored", "now"


class Rescoring(NamedTuple):
    """One log judged again. reward: the paired difference of the mean reward, None if no reward changed."""

    log: StoredLog
    conditions: Conditions
    rollouts: tuple[Rescored, ...]
    comparisons: tuple[Comparison, ...]
    reward: PairedDifference | None

    @property
    def replayed(self) -> tuple[Rescored, ...]:
        """The rollouts that could be judged again."""
        return tuple(each for each in self.rollouts if each.now is not None)

    @property
    def unplayable(self) -> tuple[Rescored, ...]:
        """Those that the environment does not play."""
        return tuple(each for each in self.rollouts if each.now is None and each.stored.infra is None)

    @property
    def changed(self) -> tuple[Rescored, ...]:
        """Those whose verdict, labels or reward differ."""
        return tuple(each for each in self.rollouts if each.reason is not None)

    @property
    def verdicts(self) -> tuple[Rescored, ...]:
        """Those whose verdict differs."""
        return tuple(each for each in self.changed if each.stored.passed != each.now.passed)


def rescored(
    log: StoredLog, conditions: Conditions, processes: int, task_files: Iterable[str] = (), on_rollout: Callable = id
) -> Rescoring:
    """Judge every rollout of a log again, in some processes (0: in this one, without limits of time and memory).

    on_rollout is called with each. ValueError if a replay does not end, or for a task that is not there.
    """
    rollouts = []
    with replayers(processes, log.tasks(task_files)) as pool:
        for _, found in gathered(pool.begin(log.lines, partial(rescore, conditions=conditions))):
            rollouts.append(found)
            on_rollout(found)
    pairs = [(each.stored, each.now) for each in rollouts if each.now is not None]
    sides = [Side(name, (tuple(side),)) for name, side in zip((STORED, NOW), zip(*pairs, strict=True), strict=False)]
    verdicts = any(stored.passed != now.passed or stored.turns_passed != now.turns_passed for stored, now in pairs)
    rewards = any(stored.score != now.score for stored, now in pairs)
    comparisons = compare(*sides) if verdicts else ()
    return Rescoring(log, conditions, tuple(rollouts), comparisons, _reward(pairs) if rewards else None)


def _reward(pairs: Sequence[tuple[TrajectoryRecord, TrajectoryRecord]]) -> PairedDifference:
    """The difference of the mean rewards, paired by task: over categories and prefixes as one mean."""
    scores: tuple[dict, dict] = ({}, {})
    scenarios = {}
    for pair in pairs:
        for side, record in zip(scores, pair, strict=True):
            side.setdefault((record.task_id, record.data_source), []).append(record.score)
            scenarios[record.task_id, record.data_source] = record.scenario
    means = [{task: sum(found) / len(found) for task, found in side.items()} for side in scores]
    return paired_difference(*means, scenarios, dict.fromkeys(scenarios, ""))


def tables(found: Rescoring, shown: int) -> list[RenderableType]:
    """The findings for people; shown: at most this many changed verdicts."""
    kind = "training step" if found.log.training else "validation at step"
    judged = found.conditions
    head = (
        f"{found.log.path} ({kind} {found.log.step}): {len(found.replayed)} of {len(found.rollouts)} rollouts judged "
        f"again, with taxonomy {judged.taxonomy} and reward mode {judged.reward.mode}"
    )
    parts: list[RenderableType] = [head, *_notes(found)]
    if not found.changed:
        return [*parts, "Every verdict, label and reward is the same."]
    parts.append(_reasons(found))
    if labels := _labels(found):
        parts.append(labels)
    if found.comparisons:
        parts.append(comparison_table(found.comparisons, f"Verdicts {NOW} against those {STORED}"))
    else:
        parts.append("Every verdict is the same.")
    if found.reward:
        each = found.reward
        parts.append(
            f"Mean reward {each.mean_a:.3f} {STORED} and {each.mean_b:.3f} {NOW}, paired by task: "
            f"{each.difference:+.3f} [{each.low:+.3f}, {each.high:+.3f}]"
        )
    if found.verdicts:
        parts.append(_verdicts(found.verdicts, shown))
    return parts


def _notes(found: Rescoring) -> list[str]:
    lost = Counter(each.problem for each in found.rollouts if each.now is None)
    notes = [f"left out ({count}): {problem}" for problem, count in sorted(lost.items())]
    was, now = ({each.data_hash for each in side if each.data_hash} for side in _sides(found))
    if was and now and was != now:
        notes.append(f"the benchmark's data differ: {', '.join(h[:16] for h in was)} then, {', '.join(now)[:16]} now")
    return notes


def _sides(found: Rescoring) -> tuple[list[TrajectoryRecord], list[TrajectoryRecord]]:
    return [each.stored for each in found.replayed], [each.now for each in found.replayed]


def _reasons(found: Rescoring) -> RenderableType:
    made = table("What changed", ["what", "rollouts", "verdict won", "verdict lost", "reward", "labels"])
    for part, said in PARTS.items():
        own = [each for each in found.changed if each.reason.part == part]
        if own:
            made.add_row(said, *_counts(own))
    made.add_row("all", *_counts(found.changed), style="bold")
    return made


def _counts(changed: Sequence[Rescored]) -> list[str]:
    won = sum(each.now.passed and not each.stored.passed for each in changed)
    lost = sum(each.stored.passed and not each.now.passed for each in changed)
    rewards = sum(each.stored.score != each.now.score for each in changed)
    labels = sum(tuple(each.stored.labels) != tuple(each.now.labels) for each in changed)
    return [str(count) for count in (len(changed), won, lost, rewards, labels)]


def _labels(found: Rescoring) -> RenderableType | None:
    moves = Counter(
        pair
        for each in found.changed
        for pair in zip(each.stored.labels, each.now.labels, strict=False)
        if pair[0] != pair[1]
    )
    if not moves:
        return None
    turns = sum(len(each.stored.labels) for each in found.replayed)
    made = table("Labels that changed", ["label", "what", "turns", "% of turns"])
    for (was, now), count in moves.most_common():
        made.add_row(was, f"is {now} now", str(count), percent(count / turns))
    return made


def _verdicts(changed: Sequence[Rescored], shown: int) -> RenderableType:
    made = table("Changed verdicts", ["category", "task", "sample", "was", "is", "what"])
    for each in changed[:shown]:
        verdicts = ("passed" if side.passed else "failed" for side in (each.stored, each.now))
        made.add_row(each.stored.data_source, each.stored.task_id, str(each.stored.sample), *verdicts, each.reason.text)
    if len(changed) > shown:
        made.add_row("", f"and {len(changed) - shown} more (--all, or --json)", "", "", "", "")
    return made


def to_json(found: Rescoring) -> dict[str, Any]:
    """The findings for programs."""
    judged = found.conditions
    return {
        "log": str(found.log.path),
        "step": found.log.step,
        "training": found.log.training,
        "taxonomy": judged.taxonomy,
        "reward_settings": judged.reward.model_dump(),
        "rollouts": len(found.rollouts),
        "replayed": len(found.replayed),
        "left_out": [{**_identity(each), "problem": each.problem} for each in found.rollouts if each.now is None],
        "changed": [_change(each) for each in found.changed],
        "comparisons": [comparison_record(row, "with") for row in found.comparisons],
        "reward": asdict(found.reward) if found.reward else None,
    }


def _identity(each: Rescored) -> Mapping[str, Any]:
    return {name: getattr(each.stored, name) for name in ("task_id", "data_source", "sample")}


def _change(each: Rescored) -> dict[str, Any]:
    names = ("passed", "score", "labels", "turns_passed", "stop")
    pairs = {name: [getattr(each.stored, name), getattr(each.now, name)] for name in names}
    return {**_identity(each), **pairs, "reason": each.reason._asdict()}
