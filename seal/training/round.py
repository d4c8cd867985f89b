"""The result of a round of Algorithm 1, and the figures that a step logs about it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.evolve import Event
from seal.method.teacher import Rollout, sees_omega
from seal.records.step import Lift, Range, StepRecord
from seal.records.trajectory import TrajectoryRecord, count_labels
from seal.settings.interface import InterfaceSettings
from seal.training.group import Group, by_prompt


class Round(NamedTuple):
    """A round for the trajectories that count.

    labels: by trajectory and turn. rho: by label, as it weighed them. w: by trajectory. shown: Omega_t, None where the
    interface is off. events: the cues that Omega_{t+1} turns on or off.
    """

    labels: Sequence[Sequence[str]]
    rho: Mapping[str, float]
    w: Sequence[float]
    shown: Omega | None
    events: tuple[Event, ...]


def step_record(
    step: int,
    records: Sequence[TrajectoryRecord],
    groups: Sequence[Group],
    advantages: Sequence[float],
    weight: Mapping[int, float],
    played: Round,
    teaching: dict[str, Any],
) -> StepRecord:
    """The figures of a step. weight: w_j by the number of each trajectory that counts, in the order of the round."""
    rollouts = [[records[i] for i in places] for places in by_prompt(groups).values()]
    return StepRecord.of(
        step,
        records,
        played.shown,
        label_counts=count_labels(played.labels),
        rho=dict(played.rho),
        w=Range.of(played.w),
        push=_push([(records[i].tokens, w, advantages[i]) for i, w in weight.items()]),
        lift=Lift.of(rollouts),
        teaching=teaching,
        groups_with_spread=sum(len({each.score for each in prompt}) > 1 for prompt in rollouts),
        trajectories_dropped=len(records) - len(weight),
        groups_dropped=len({group.uid for group in groups}) - len(rollouts),
        staleness=Range.of([step - 1 - row.weights[0] for row in (records[i] for i in weight) if row.weights]),
        events=played.events,
    )


def _push(rows: Sequence[tuple[int, float, float]]) -> dict[str, float]:
    """|A| summed over the sampled tokens of each sign, with w and without, as the token-mean loss counts it."""
    sums = dict.fromkeys(("successes", "failures", "successes_unweighted", "failures_unweighted"), 0.0)
    for tokens, factor, advantage in rows:
        name = "successes" if advantage > 0 else "failures"
        sums[name] += abs(advantage) * (factor * tokens)
        sums[f"{name}_unweighted"] += abs(advantage) * tokens
    return sums if any(sums.values()) else {}


def compared(
    records: Sequence[TrajectoryRecord],
    groups: Sequence[Group],
    interface: InterfaceSettings,
    transfers: Mapping[int, float],
) -> list[tuple[str, list[Rollout]]]:
    """Return the rollouts that a teacher compares: by prompt, its environment and those of its rollouts that count."""
    prompts: dict[str, tuple[str, list[Rollout]]] = {}
    for i, (group, record) in enumerate(zip(groups, records, strict=True)):
        comparable, failures = True, record.signals
        if interface.teacher == "retry":  # the cues were chosen for what failed before
            comparable = sees_omega(record.sample, interface.share)
            failures = frozenset(catalogue()[cue].label for cue in record.cues)
        rollout = Rollout(record.cues, failures, record.score, record.taught, transfers.get(i), comparable)
        if group.counts:
            prompts.setdefault(group.uid, (record.environment, []))[1].append(rollout)
    return list(prompts.values())
