"""The rows and tokens that a CPU's update computes; its engine (`cpu_engine`) leaves out the others.

The policy loss of a token is proportional to its advantage, so a group whose rollouts all scored the same adds
nothing to the gradient: without a KL or an entropy term its rows need no forward or backward pass. In the other rows
the loss reads only the log-probs of sampled tokens.

The rollouts of a group follow the same prompt, which often has most of their tokens. With
`actor_rollout_ref.actor.use_prefix_grouper` the packed row of a micro-batch holds it once, and the responses one after
the other. Only position ids show this: a dialogue begins at 0, and a segment that begins at s > 0 continues the first s
tokens of that dialogue. `packed_attention` reads them in this way; losses and gradients are those of whole rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from omegaconf import DictConfig
from tensordict import TensorDict

SKIP_IDLE_ROWS = "skip_idle_rows"
"""The name by which an update says that rows without an advantage may be skipped."""

_PER_TOKEN = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
"""The ways to aggregate the loss of a row that do not depend on the rows beside it."""

SHARE_PROMPTS = "share_prompts"
"""The name by which an update says that its micro-batches hold a prompt once."""


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


class PromptedRow(NamedTuple):
    """A rollout's prompt as bytes, and the numbers of tokens of prompt and response."""

    prompt: bytes
    before: int
    after: int


def rows_of(data: TensorDict) -> list[PromptedRow]:
    """The rows of a batch; input_ids, response_mask: (B, n), nested; a response is the end of its row."""
    after = data["response_mask"].offsets().diff().tolist()
    prompts = [ids[: len(ids) - n] for ids, n in zip(data["input_ids"].unbind(), after, strict=True)]
    return [PromptedRow(ids.cpu().numpy().tobytes(), len(ids), n) for ids, n in zip(prompts, after, strict=True)]


def micro_batches(rows: Sequence[PromptedRow], limit: int, least: int = 1) -> list[list[int]]:
    """Rows by micro-batch of at most `limit` computed tokens, those of a prompt beside each other.

    least: minimum number of micro-batches (<= rows). A row that exceeds the limit is a micro-batch of its own.
    """
    first = {row.prompt: place for place, row in reversed([*enumerate(rows)])}
    parts: list[list[int]] = []
    room = 0
    for place in sorted(range(len(rows)), key=lambda place: first[rows[place].prompt]):
        row = rows[place]
        whole = row.before + row.after
        more = row.after if parts and rows[parts[-1][-1]].prompt == row.prompt else whole
        if not parts or more > room:
            parts.append([])
            room, more = limit, whole
        parts[-1].append(place)
        room -= more
    while len(parts) < least:
        longest = max(range(len(parts)), key=lambda place: len(parts[place]))
        half = len(parts[longest]) // 2
        parts[longest : longest + 1] = parts[longest][:half], parts[longest][half:]
    return parts


def shared(rows: Sequence[PromptedRow]) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens of a packed row are computed, ascending, and where each token of the row is among them.

    A prompt that the previous row has too is left out; its tokens are at the places of that row's tokens.
    """
    kept, places, start, count = [], [], 0, 0
    prompt = torch.empty(0, dtype=torch.long)
    for place, row in enumerate(rows):
        if not place or row.prompt != rows[place - 1].prompt:
            kept.append(torch.arange(start, start + row.before))
            prompt = torch.arange(count, count + row.before)
            count += row.before
        kept.append(torch.arange(start + row.before, start + row.before + row.after))
        places += [prompt, torch.arange(count, count + row.after)]
        start, count = start + row.before + row.after, count + row.after
    return torch.cat(kept), torch.cat(places)
