"""Do the rollout engine and the actor agree on the log-probs of the sampled tokens?

Both hold the same weights when a step's log-probs are computed, so that a
difference is numerical noise, unless the weight sync failed.
"""

from __future__ import annotations

import math

import torch

from seal.settings import SealSettings
from seal.training.batch import StepBatch


def compare_logprobs(batch: StepBatch, step: int, settings: SealSettings) -> dict[str, float]:
    """Return the largest and the mean absolute difference over a batch's sampled tokens; nan if not compared.

    Raises RuntimeError beyond `seal.logprob_tolerance` or `seal.logprob_mean_tolerance`
    (None sets no limit), and for a difference that is not finite: the engine then
    does not run the weights that are being trained, and no gradient means anything.
    """
    if not batch.rollout_logprobs:
        return {"logp_diff_max": math.nan, "logp_diff_mean": math.nan}
    differences = torch.cat(
        [
            (rollout - actor)[mask].abs().float().cpu()
            for rollout, actor, mask in zip(batch.rollout_logprobs, batch.actor_logprobs, batch.masks, strict=True)
        ]
    )
    if not len(differences):
        return {"logp_diff_max": 0.0, "logp_diff_mean": 0.0}
    largest, mean = differences.max().item(), differences.mean().item()
    if not math.isfinite(mean):
        raise RuntimeError(
            f"Log-probs of step {step} are not finite: the weights have diverged. Resume from an earlier "
            "checkpoint with a smaller actor_rollout_ref.actor.optim.lr."
        )
    for value, limit, key in (
        (largest, settings.logprob_tolerance, "logprob_tolerance"),
        (mean, settings.logprob_mean_tolerance, "logprob_mean_tolerance"),
    ):
        if limit is not None and value > limit:
            raise RuntimeError(
                f"After the weight sync of step {step} rollout and actor log-probs differ by {value:.2e}, more "
                f"than seal.{key}={limit:.0e}: the engine's weights are stale."
            )
    return {"logp_diff_max": largest, "logp_diff_mean": mean}
