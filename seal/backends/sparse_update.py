"""What of an update has a gradient: some rows, and some tokens of these.

The policy loss of a token is proportional to its advantage, so a group whose rollouts all scored the same adds
nothing to the gradient: without a KL or an entropy term its rows need no forward or backward pass. Of the other rows
the loss looks at the log-probs of sampled tokens alone.
"""

import torch
from omegaconf import DictConfig

SKIP_IDLE_ROWS = "skip_idle_rows"
"""By this name an update says that rows without an advantage may be passed over."""


def can_skip(actor: DictConfig) -> bool:
    """Whether the actor's loss is the policy loss alone, over micro-batches of any number of rows."""
    return not actor.use_kl_loss and actor.entropy_coeff == 0 and actor.use_dynamic_bsz


def busy_rows(advantages: torch.Tensor) -> list[int]:
    """The rows, ascending, that have an advantage other than 0; the first one if none has.

    advantages: (B, n), padded or nested.
    """
    return [row for row, each in enumerate(advantages.unbind()) if each.any()] or [0]


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
