"""Do the rollout engine and the actor agree on the log-probs of the sampled tokens?

Both hold the same weights when a step's log-probs are computed, so that a
difference is numerical noise, unless the weight sync failed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from seal.training.batch import StepBatch


@dataclass(frozen=True)
class Agreement:
    """Absolute difference of the engine's and the actor's log-probs over a step's sampled tokens; nan: not compared."""

    largest: float
    mean: float

    @property
    def metrics(self) -> dict[str, float]:
        """The figures under the names of the step's metrics."""
        return {"seal/logp_diff_max": self.largest, "seal/logp_diff_mean": self.mean}


@dataclass(frozen=True)
class Tolerance:
    """Limits of an Agreement (`seal.logprob_tolerance`, `seal.logprob_mean_tolerance`); None sets no limit."""

    largest: float | None
    mean: float | None

    def check(self, batch: StepBatch, step: int) -> Agreement:
        """Compare the log-probs of a batch.

        Raises RuntimeError beyond a limit, and for a difference that is not finite:
        the engine then does not run the weights that are being trained, and no
        gradient means anything.
        """
        if not batch.rollout_logprobs:
            return Agreement(math.nan, math.nan)
        differences = torch.cat(
            [
                (rollout - actor)[mask].abs().float().cpu()
                for rollout, actor, mask in zip(batch.rollout_logprobs, batch.actor_logprobs, batch.masks, strict=True)
            ]
        )
        if not len(differences):
            return Agreement(0.0, 0.0)
        found = Agreement(differences.max().item(), differences.mean().item())
        if not math.isfinite(found.mean):
            raise RuntimeError(
                f"Log-probs of step {step} are not finite: the weights have diverged. Resume from an earlier "
                "checkpoint with a smaller actor_rollout_ref.actor.optim.lr."
            )
        for value, limit, key in (
            (found.largest, self.largest, "logprob_tolerance"),
            (found.mean, self.mean, "logprob_mean_tolerance"),
        ):
            if limit is not None and value > limit:
                raise RuntimeError(
                    f"After the weight sync of step {step} rollout and actor log-probs differ by {value:.2e}, more "
                    f"than seal.{key}={limit:.0e}: the engine's weights are stale."
                )
        return found
