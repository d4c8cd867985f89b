"""The report on rollouts that were judged again: what the current checker, labels and reward changed, and why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.console import RenderableType

from seal.records.trajectory import TrajectoryRecord
from seal.rollout.play import Terms
from shelf.replay.stored import PARTS, Rescored, StoredLog, judge
from shelf.statistics.comparison import Comparison, Side, compare, means
from shelf.statistics.intervals import PairedDifference, paired_difference
from shelf.statistics.tables import comparison_record, comparison_table, percent, table

STORED, NOW = "stored", "now"


class Rescoring(NamedTuple):
    """One log judged again. reward: the paired difference of the mean reward, None if no reward changed."""

    log: StoredLog
    terms: Terms
    rollouts: tuple[Rescored, ...]
    comparisons: tuple[Comparison, ...]
    reward: PairedDifference | None

    @property
    def replayed(self) -> tuple[Rescored, ...]:
        """The rollouts that could be judged again."""
        return tuple(each for each in self.rollouts if each.now is not None)

    @property
    def unplayable(self) -> tuple[Rescored, ...]:
        """The rollouts that the environment cannot play."""
        return tuple(each for each in self.rollouts if each.now is None and each.stored.infra is None)

    @property
    def changed(self) -> tuple[Rescored, ...]:
        """The rollouts whose verdict, labels or reward differ."""
        return tuple(each for each in self.rollouts if each.reason is not None)


def rescore_log(log: StoredLog, terms: Terms, url: str) -> Rescoring:
    """Judge every rollout of a log again on the service at `url`, which serves its synthesised tasks."""
    rollouts = tuple(judge(log, terms, log.omegas(), url))
    pairs = [(each.stored, each.now) for each in rollouts if each.now is not None]
    sides = [Side(name, (tuple(side),)) for name, side in zip((STORED, NOW), zip(*pairs, strict=True), strict=False)]
    verdicts = any(stored.passed != now.passed or stored.turns_passed != now.turns_passed for stored, now in pairs)
    rewards = any(stored.score != now.score for stored, now in pairs)
    comparisons = compare(*sides) if verdicts else ()
    return Rescoring(log, terms, rollouts, comparisons, _reward(pairs) if rewards else None)


def _reward(pairs: Sequence[tuple[TrajectoryRecord, TrajectoryRecord]]) -> PairedDifference:
    """The difference of the mean rewards, paired by task, as one mean over all categories and prefixes."""
    sides = [[((each.task_id, each.data_source), each) for each in side] for side in zip(*pairs, strict=True)]
    scores = (means((task, each.score) for task, each in side) for side in sides)
    scenarios = {task: each.scenario for side in sides for task, each in side}
    return paired_difference(*scores, scenarios, dict.fromkeys(scenarios, ""))


def tables(found: Rescoring, most: int) -> list[RenderableType]:
    """The findings for people. most: show at most this many changed verdicts."""
    kind = "training step" if found.log.training else "validation at step"
    parts: list[RenderableType] = [
        f"{found.log.path} ({kind} {found.log.step}): {len(found.replayed)} of {len(found.rollouts)} rollouts judged "
        f"again, with taxonomy {found.terms.taxonomy} and reward mode {found.terms.reward.mode}"
    ]
    left_out = Counter(each.problem for each in found.rollouts if each.now is None)
    parts += [f"left out ({count}): {problem}" for problem, count in sorted(left_out.items())]
    was = {each.stored.data_hash[:16] for each in found.replayed} - {""}
    now = {each.now.data_hash[:16] for each in found.replayed}
    if was and now and was != now:
        parts.append(f"the benchmark's data differ: {', '.join(sorted(was))} then, {', '.join(now)} now")
    if not found.changed:
        return [*parts, *(["Every verdict, label and reward is the same."] if found.replayed else [])]
    parts.append(_reasons(found.changed))
    labels = (zip(each.stored.labels, each.now.labels, strict=False) for each in found.changed)
    if moves := Counter((was, now) for pairs in labels for was, now in pairs if was != now):
        turns = sum(len(each.stored.labels) for each in found.replayed)
        made = table("Labels that changed", ["label", "what", "turns", "% of turns"])
        for (one, other), count in moves.most_common():
            made.add_row(one, f"is {other} now", str(count), percent(count / turns))
        parts.append(made)
    if found.comparisons:
        parts.append(comparison_table(found.comparisons, f"Verdicts {NOW} against those {STORED}"))
    else:
        parts.append("Every verdict is the same.")
    if reward := found.reward:
        parts.append(
            f"Mean reward {reward.mean_a:.3f} {STORED} and {reward.mean_b:.3f} {NOW}, paired by task: "
            f"{reward.difference:+.3f} [{reward.low:+.3f}, {reward.high:+.3f}]"
        )
    if verdicts := [each for each in found.changed if each.stored.passed != each.now.passed]:
        parts.append(_verdicts(verdicts, most))
    return parts


def _reasons(changed: Sequence[Rescored]) -> RenderableType:
    made = table("What changed", ["what", "rollouts", "verdict won", "verdict lost", "reward", "labels"])
    for part, said in PARTS.items():
        if own := [each for each in changed if each.reason.part == part]:
            made.add_row(said, *_counts(own))
    made.add_row("all", *_counts(changed), style="bold")
    return made


def _counts(changed: Sequence[Rescored]) -> list[str]:
    pairs = [(each.stored, each.now) for each in changed]
    won = sum(now.passed and not stored.passed for stored, now in pairs)
    lost = sum(stored.passed and not now.passed for stored, now in pairs)
    rewards = sum(stored.score != now.score for stored, now in pairs)
    labels = sum(tuple(stored.labels) != tuple(now.labels) for stored, now in pairs)
    return [str(count) for count in (len(pairs), won, lost, rewards, labels)]


def _verdicts(changed: Sequence[Rescored], most: int) -> RenderableType:
    made = table("Changed verdicts", ["category", "task", "sample", "was", "is", "what"])
    for each in changed[:most]:
        verdicts = ("passed" if side.passed else "failed" for side in (each.stored, each.now))
        made.add_row(each.stored.data_source, each.stored.task_id, str(each.stored.sample), *verdicts, each.reason.text)
    if len(changed) > most:
        made.add_row("", f"and {len(changed) - most} more (--all, or --json)", "", "", "", "")
    return made


def to_json(found: Rescoring) -> dict[str, Any]:
    """The findings for programs."""
    return {
        "log": str(found.log.path),
        "step": found.log.step,
        "training": found.log.training,
        "taxonomy": found.terms.taxonomy,
        "reward_settings": found.terms.reward.model_dump(),
        "rollouts": len(found.rollouts),
        "replayed": len(found.replayed),
        "left_out": [_change(each) for each in found.rollouts if each.now is None],
        "changed": [_change(each) for each in found.changed],
        "comparisons": [comparison_record(row, "with") for row in found.comparisons],
        "reward": asdict(found.reward) if found.reward else None,
    }


def _change(each: Rescored) -> dict[str, Any]:
    """A rollout for programs: its identity, and its problem or what changed."""
    named = {name: getattr(each.stored, name) for name in ("task_id", "data_source", "sample")}
    if each.now is None:
        return named | {"problem": each.problem}
    names = ("passed", "score", "labels", "turns_passed", "stop")
    pairs = {name: [getattr(each.stored, name), getattr(each.now, name)] for name in names}
    return named | pairs | {"reason": each.reason._asdict()}
