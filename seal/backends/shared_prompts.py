"""A prompt that rollouts of an update share goes through the model once: `actor_rollout_ref.actor.use_prefix_grouper`.

The rollouts of a group follow the same prompt, which often has most of their tokens. The packed row of a micro-batch
then holds it once, and the responses one after the other. Position ids alone say so: a dialogue begins at 0, and a
segment that begins at s > 0 goes on after the first s tokens of that dialogue. A device brings attention that reads
them so (`packed_attention`); losses and gradients are those of whole rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from tensordict import TensorDict

SHARE_PROMPTS = "share_prompts"
"""By this name an update says that its micro-batches hold a prompt once."""


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

    A prompt that the row before has too is left out; its tokens are at the places of that row's.
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
