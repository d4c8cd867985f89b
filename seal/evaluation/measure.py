"""How often a policy passes tasks: figures of an evaluation's log."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from seal.evaluation.summary import label_shares
from seal.records.validation import read_log


@dataclass(frozen=True)
class PassRates:
    """The pass rates of a set of tasks.

    rate: their mean; error: its standard error over tasks. band: how many tasks
    have a rate strictly between 0 and 1. labels: each label's share of the
    labelled turns. rates: by task id.
    """

    tasks: int
    samples: int
    rate: float
    error: float
    band: int
    labels: dict[str, float]
    rates: dict[str, float]


def pass_rates(log: Path) -> PassRates:
    """The pass rates in a validation log, without rollouts that infrastructure failed; ValueError if none is left."""
    lines = [line for line in read_log(log).lines if line.infra is None]
    passed: dict[str, list[bool]] = defaultdict(list)
    for line in lines:
        passed[line.task_id].append(line.passed)
    if not passed:
        raise ValueError(f"Every rollout in {log} failed for reasons other than the policy: see infra_message there.")
    rates = {task: mean(map(float, outcomes)) for task, outcomes in passed.items()}
    return PassRates(
        tasks=len(rates),
        samples=min(map(len, passed.values())),
        rate=mean(rates.values()),
        error=stdev(rates.values()) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan,
        band=sum(0 < rate < 1 for rate in rates.values()),
        labels=label_shares(lines),
        rates=rates,
    )
