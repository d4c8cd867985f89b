"""The part of an update that has a gradient: some rows, and some tokens of these.

The policy loss of a token is proportional to its advantage, so a group whose rollouts all scored the same adds
nothing to the gradient: without a KL or an entropy term its rows need no forward or backward pass. Of the other rows
the loss looks at the log-probs of sampled tokens alone.
"""

from collections.abc import Sequence

import torch
from omegaconf import DictConfig

SKIP_IDLE_ROWS = "skip_idle_rows"
"""By this name an update says that rows without an advantage may be skipped."""

_PER_TOKEN = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
"""The ways to aggregate the loss of a row that do not depend on the rows beside it."""


def can_skip(config: DictConfig) -> bool:
    """Return whether a row without an advantage has loss 0, and other rows have the same loss without it.

    config: of a recipe. This holds for PPO's clipped loss without a KL, an entropy or a distillation term, over
    micro-batches of any number of rows.
    """
    actor = config.actor_rollout_ref.actor
    others = actor.use_kl_loss, actor.entropy_coeff, actor.calculate_entropy, config.distillation.enabled
    clipped = actor.policy_loss.loss_mode == "vanilla" and actor.loss_agg_mode in _PER_TOKEN
    return clipped and actor.use_dynamic_bsz and not any(others)


def busy_rows(advantages: torch.Tensor) -> list[int]:
    """The rows of advantages, (B, n), padded or nested, that are not all 0, ascending; the first one if none is."""
    return [row for row, each in enumerate(advantages.unbind()) if each.any()] or [0]


def filled_up(chosen: Sequence[int], rows: int, number: int) -> list[int]:
    """The chosen rows, padded with the first unused ones to `number`, ascending."""
    others = [row for row in range(rows) if row not in set(chosen)]
    return sorted([*chosen, *others[: number - len(chosen)]])


def before_sampled(ends: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """The places in a packed row after which a sampled token comes, ascending; the first one if none does.

    ends: (B + 1,), where each dialogue ends, after a 0. response_mask: (B, n), nested, 1 for a sampled token of the
    response, which is the end of its dialogue.
    """
    responses = response_mask.offsets()
    shifts = (ends - responses)[1:].repeat_interleave(responses.diff())
    places = torch.arange(len(shifts), device=shifts.device) + shifts - 1
    chosen = places[response_mask.values().bool()]
    return chosen if len(chosen) else places[:1]
