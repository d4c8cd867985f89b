"""One training step, as it is logged, shown and read again."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as validated

from seal.method.interface.cues import Omega
from seal.method.interface.evolve import Event
from seal.records.format import FORMAT, require_format
from seal.records.trajectory import TrajectoryRecord, count_tokens, count_user, shares
from seal.system.grouping import grouped
from seal.system.jsonl import BadLine, read_records

PATIENCE = 3
"""First steps without a group with signal after which the user is told that the run learns nothing."""
LEAST_TRAINED = 0.5
"""The trained share of the sampled tokens below which the user of a harness is warned."""
REWARD = ("reward_mean", "pass_share")
"""The names of the reward figures."""


@dataclass(frozen=True)
class Range:
    """Mean, smallest and largest of some values."""

    mean: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        return cls(sum(values) / len(values), min(values), max(values)) if values else None


@dataclass(frozen=True)
class SentOmega:
    """The Omega that a step was played with."""

    version: int
    """The number of times that Omega had changed."""
    digest: str
    """The hash of its cues and wording."""
    cues: tuple[str, ...]
    """The active cues."""

    @classmethod
    def of(cls, omega: Omega) -> Self:
        """Omega as a step's log names it."""
        return cls(omega.version, omega.digest, tuple(omega.cues))


@dataclass(frozen=True)
class Lift:
    """The mean reward of rollouts that saw Omega minus that of the others, averaged over prompts.

    prompts: how many have rollouts of both kinds. mean: in units of the reward. standard_error: over prompts,
    None for a single one.
    """

    prompts: int
    mean: float
    standard_error: float | None

    @classmethod
    def of(cls, prompts: Iterable[Sequence[TrajectoryRecord]]) -> Self | None:
        """The lift over some prompts, each with its usable rollouts; None if no prompt has both kinds."""
        differences = []
        for rollouts in prompts:
            with_omega = [each.score for each in rollouts if each.omega_version is not None]
            without = [each.score for each in rollouts if each.omega_version is None]
            if with_omega and without:
                differences.append(statistics.fmean(with_omega) - statistics.fmean(without))
        if not differences:
            return None
        error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
        return cls(len(differences), statistics.fmean(differences), error)


def reward_figures(records: Sequence[TrajectoryRecord]) -> dict[str, float | None]:
    """Mean reward and pass share of the usable records, by the names of REWARD; None without any."""
    usable = [record for record in records if record.usable]
    sums = sum(record.score for record in usable), sum(record.passed for record in usable)
    return {name: total / len(usable) if usable else None for name, total in zip(REWARD, sums, strict=True)}


def by_environment(records: Sequence[TrajectoryRecord]) -> dict[str, dict[str, Any]]:
    """The reward figures of each environment; {} with a single one, whose figures are the step's."""
    parts = grouped((record.environment, record) for record in records)
    return {name: reward_figures(parts[name]) for name in sorted(parts)} if len(parts) > 1 else {}


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class StepRecord:
    """The figures of one training step: a line of seal_log/steps.jsonl."""

    # Identity
    step: int
    """The training step, from 1."""
    omega: SentOmega | None = None
    """Omega_t: what rollouts that this step draws see; None without one."""
    events: tuple[Event, ...] = ()
    """The cues that its figures turned on or off in Omega_{t+1}."""

    # Verdict
    reward_mean: float | None = None
    """Mean terminal reward; None if infrastructure lost every trajectory."""
    pass_share: float | None = None
    """Share of the trajectories that passed."""
    trajectories: int = 0
    """Number of trajectories."""
    groups_with_spread: int = 0
    """Groups in which some advantage is not 0: those with a learning signal."""
    trajectories_dropped: int = 0
    """Trajectories that do not count: lost or excluded."""
    groups_dropped: int = 0
    """Groups without a trajectory that counts."""
    stops: dict[str, int] = field(default_factory=dict)
    """Trajectories by how they stopped."""
    label_counts: dict[str, int] = field(default_factory=dict)
    """Turns by label, excluded labels left out."""
    blames: dict[str, int] = field(default_factory=dict)
    """Failed turns by whose fault they are: own, or inherited from an earlier turn."""
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`reward_mean` and `pass_share` by environment; empty with a single one."""
    lift: Lift | None = None
    """The lift of Omega (`seal.interface.share` below 1; with `retry`, within the share); None without both kinds."""
    teaching: dict[str, dict[str, float]] = field(default_factory=dict)
    """With a teacher, by "environment/cue": the figures of `seal.method.teacher.figures`."""
    infra: dict[str, int] = field(default_factory=dict)
    """Trajectories by the failure of infrastructure that ended them."""

    # Tokens
    tokens: dict[str, int] = field(default_factory=dict)
    """`in` (prompts of all requests, absent if unknown) and `out` (sampled)."""
    user: dict[str, float] = field(default_factory=dict)
    """Of the model that plays the user: messages, requests, tokens in and out, and seconds; empty without one."""
    rewritten: int = 0
    """Trajectories whose harness had several dialogues with the policy."""
    trained_share: float = 1.0
    """The share of the sampled tokens that is trained; below 1 only with `seal.rollout.trained=main`."""
    unsampled_calls: int = 0
    """Calls that reached the episode and that no sampled message holds."""

    # Timing
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by stage."""
    seal_seconds: float = 0.0
    """SEAL's own part of it in the trainer."""
    episodes_rebuilt: int = 0
    """Times that an episode was opened again on a service."""

    # Training
    rho: dict[str, float] = field(default_factory=dict)
    """The utility of each label."""
    w: Range | None = None
    """The weights of the trajectories that count."""
    push: dict[str, float] = field(default_factory=dict)
    """|A| over the tokens in the loss of `successes` (A > 0) and `failures` (A < 0), weighted and `_unweighted`."""
    logp_diff_max: float | None = None
    """The largest log-prob difference between rollout engine and actor; None if not compared."""
    logp_diff_mean: float | None = None
    """The mean log-prob difference; None if not compared."""
    staleness: Range | None = None
    """By how many updates the oldest weights that sampled a trajectory lag behind those that it trains."""

    @classmethod
    def of(cls, step: int, records: Sequence[TrajectoryRecord]) -> Self:
        """The figures of a step that follow only from its trajectories."""
        sampled = sum(record.tokens for record in records)
        return cls(
            step=step,
            **reward_figures(records),
            trajectories=len(records),
            stops=dict(Counter(record.stop for record in records if record.infra is None)),
            blames=dict(Counter(turn["blame"] for record in records for turn in record.diagnosis if turn.get("blame"))),
            environments=by_environment(records),
            infra=dict(Counter(record.infra for record in records if record.infra)),
            tokens=count_tokens(records),
            user=count_user(records),
            rewritten=sum(record.rewritten > 0 for record in records),
            trained_share=sum(each.tokens * each.trained_share for each in records) / sampled if sampled else 1.0,
            unsampled_calls=sum(record.unsampled_calls for record in records),
            episodes_rebuilt=sum(record.rebuilt for record in records),
        )

    @property
    def label_shares(self) -> dict[str, float]:
        return shares(self.label_counts)

    @property
    def cues(self) -> tuple[str, ...]:
        return self.omega.cues if self.omega else ()

    @property
    def total_seconds(self) -> float:
        """Wall time of the step: verl's own total, else the sum of its stages."""
        return self.seconds.get("step", sum(self.seconds.values()))

    def line(self) -> dict[str, Any]:
        """The record as a line of `steps.jsonl`."""
        figures = asdict(self) | {"seal_seconds": round(self.seal_seconds, 4)}
        return {"format": FORMAT, **figures, "label_shares": self.label_shares}

    @classmethod
    def from_line(cls, value: Mapping[str, Any]) -> Self:
        """Read a line of `steps.jsonl`, also of earlier versions (no format); ValueError if it cannot be used."""
        require_format(value)
        # Earlier versions wrote NaN for log-probs that were not compared.
        known = {name: found for name, found in value.items() if name in cls.__dataclass_fields__ and found == found}
        return cls(**{name: found for name, found in known.items() if found is not None})

    def metrics(self) -> dict[str, float]:
        """The figures as scalars for verl's loggers."""
        figures: dict[str, float] = {
            "groups_with_spread": self.groups_with_spread,
            "groups_dropped": self.groups_dropped,
            "trajectories_dropped": self.trajectories_dropped,
            "rewritten": self.rewritten,
            "trained_share": self.trained_share,
            "unsampled_calls": self.unsampled_calls,
            "episodes_rebuilt": self.episodes_rebuilt,
            "seconds": self.seal_seconds,
        }
        if self.omega is not None:
            figures |= {"omega/version": self.omega.version, "omega/cues": len(self.cues)}
        by_name = {
            "stop": self.stops,
            "tokens": self.tokens,
            "user": self.user,
            "w": asdict(self.w) if self.w else {},
            "staleness": asdict(self.staleness) if self.staleness else {},
            "label_share": self.label_shares,
            "rho": self.rho,
            "infra": self.infra,
            "push": self.push,
            "lift": {"mean": self.lift.mean, "prompts": self.lift.prompts} if self.lift else {},
        }
        for name, rewards in self.environments.items():
            by_name[name] = {key: rewards[key] for key in REWARD if rewards[key] is not None}
        by_name |= {f"teaching/{cue}": figures for cue, figures in self.teaching.items()}
        figures |= {f"{name}/{key}": value for name, values in by_name.items() for key, value in values.items()}
        return {f"seal/{name}": value for name, value in figures.items()}


@dataclass(frozen=True)
class StepReport:
    """A finished step: its record, C_t after it, and Omega_{t+1} (None if the interface is off)."""

    record: StepRecord
    profile: Mapping[str, Any]
    omega_next: Mapping[str, Any] | None

    def with_figures(self, **figures: Any) -> Self:
        """The same report with measured figures filled in."""
        return replace(self, record=replace(self.record, **figures))

    def lines(self) -> dict[str, dict[str, Any]]:
        """The step's line of each log in STEP_LOGS."""
        step = self.record.step
        return {
            "profile": {"step": step, "profile": self.profile},
            "omega": {"step": step, "omega": self.omega_next},
            "steps": self.record.line(),
        }


def nothing_learnt(steps: Sequence[StepRecord]) -> str | None:
    """Why a run learns nothing and what to do, said once: when its first PATIENCE steps had no group with signal."""
    passed = {step.pass_share for step in steps} - {None}
    if len(steps) != PATIENCE or not passed or any(step.groups_with_spread for step in steps):
        return None
    which, then = "each prompt's trained rollouts have the same reward", "take tasks that the policy passes sometimes"
    if passed == {0.0}:
        which, then = "no rollout passed", "start from a stronger policy, or train on easier tasks, alone or mixed in"
    elif passed == {1.0}:
        which, then = "every rollout passed", "train on harder tasks"
    return (
        f"No group had signal in {PATIENCE} steps ({which}), so every advantage is 0 and nothing is learnt: {then} "
        "(docs/environments.md#when-nothing-is-learnt)."
    )


def harness_warnings(step: StepRecord) -> dict[str, str]:
    """What a step shows about its harness that a user would want to change, each by a name."""
    found = {}
    if step.trained_share < LEAST_TRAINED:
        found["trained in part"] = (
            f"Step {step.step} trains {step.trained_share:.0%} of the sampled tokens: seal.rollout.trained=main "
            "takes one of a rollout's dialogues; all takes each (docs/harness.md#several-dialogues)."
        )
    if step.unsampled_calls:
        found["unsampled calls"] = (
            f"Step {step.step} has {step.unsampled_calls} calls that no sampled message holds: the harness made them, "
            "or the policy's code computed their arguments. Their effects count in its reward "
            "(docs/harness.md#what-holds)."
        )
    return found


def read_steps(path: Path | str) -> tuple[tuple[StepRecord, ...], tuple[BadLine, ...]]:
    """The steps of a `steps.jsonl`, ascending, each by its last line, and bad lines; OSError if it cannot be opened."""
    records, bad = read_records(path, StepRecord.from_line)
    by_step = {record.step: record for record in records}
    return tuple(by_step[step] for step in sorted(by_step)), bad
