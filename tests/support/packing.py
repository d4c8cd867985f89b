"""Packed rows whose groups share a prompt, and what a model computes on them."""

from collections.abc import Sequence

import torch

from seal.backends.cpu_rows import PromptedRow

Groups = Sequence[tuple[int, Sequence[int]]]
"""The tokens of each prompt, and of its responses."""


def rows_of(groups: Groups) -> list[PromptedRow]:
    return [
        PromptedRow(bytes([number]), prompt, n) for number, (prompt, responses) in enumerate(groups) for n in responses
    ]


def packed(groups: Groups, vocabulary: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and positions of whole rows: the responses of a group follow the same prompt."""
    draws = torch.Generator().manual_seed(1)
    ids, positions = [], []
    for before, responses in groups:
        prompt = torch.randint(0, vocabulary, (before,), generator=draws)
        for n in responses:
            ids.append(torch.cat((prompt, torch.randint(0, vocabulary, (n,), generator=draws))))
            positions.append(torch.arange(before + n))
    return torch.cat(ids)[None], torch.cat(positions)[None]


def gradients(policy: torch.nn.Module, ids: torch.Tensor, positions: torch.Tensor, places: torch.Tensor):
    """The logits at some places of a packed row, and the gradient of a log-prob that is summed over them."""
    policy.zero_grad()
    ids, positions, places = (each.to(policy.device) for each in (ids, positions, places))
    logits = policy(input_ids=ids, position_ids=positions, use_cache=False).logits[0, places]
    logits.float().log_softmax(-1)[:, 7].sum().backward()
    return logits.detach(), torch.cat([each.grad.flatten() for each in policy.parameters()])
