"""Rows of an update that cannot change a gradient.

The policy loss of a token is proportional to its advantage, so a group whose rollouts all scored the same adds
nothing to the gradient: without a KL or an entropy term its rows need no forward or backward pass. The loss is
divided by the tokens of all rows, as if they had been passed.
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
