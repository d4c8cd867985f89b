"""The warm start: supervised next-token training on encoded dialogues.

Muon updates the matrices of the blocks, AdamW the embedding, norms and biases; with AdamW for everything the same loss
took clearly more tokens. The assistant's tokens count fully, and all others a little: predicting users and tools
teaches the small network the values that it has to copy.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional
from transformers import Qwen2ForCausalLM

_OTHERS = 4
"""Train on every 4th token that the assistant does not say, weighted 4x."""


class Encoded(NamedTuple):
    """A dialogue as tokens; spoken[i] is true if the assistant says ids[i] and should learn to."""

    ids: tuple[int, ...]
    spoken: tuple[bool, ...]


Groups = Sequence[Sequence[Encoded]]
"""Dialogues in groups that count equally."""


@dataclass(frozen=True)
class WarmStartSettings:
    """Training settings.

    tokens: the budget, padding included. muon_lr, adam_lr: peak learning rates of matrices and of all other parameters.
    batch_tokens: the most tokens of a step; a longer dialogue is a batch of its own. warmup: steps to the peak, at
    which it stays. other_weight: the loss weight of tokens that the assistant does not say. decay: Muon's weight decay.
    clip: the largest norm of the gradient.
    """

    tokens: int
    muon_lr: float
    adam_lr: float
    batch_tokens: int = 1_600
    warmup: int = 5
    other_weight: float = 0.02
    decay: float = 0.05
    clip: float = 1.0


class Update(NamedTuple):
    """One optimiser step: tokens so far, loss on the assistant's tokens (nats)."""

    step: int
    tokens: int
    loss: float
    seconds: float


def batches(groups: Groups, batch_tokens: int, rng: random.Random) -> Iterator[list[Encoded]]:
    """Endless batches of similar lengths; a round takes one dialogue of each group, so that groups count equally."""
    while True:
        round_ = sorted((rng.choice(group) for group in rng.sample(groups, len(groups))), key=lambda d: len(d.ids))
        ready: list[list[Encoded]] = [[]]
        for dialogue in round_:
            if ready[-1] and (len(ready[-1]) + 1) * len(dialogue.ids) > batch_tokens:
                ready.append([])
            ready[-1].append(dialogue)
        rng.shuffle(ready)
        yield from ready


def collate(
    batch: Sequence[Encoded], other_weight: float, phase: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad on the right.

    Returns ids, [B, T] int64, and the loss weight of predicting each of them, [B, T] float32 (0 for padding). phase:
    which of the tokens that the assistant does not say count; None: all.
    """
    longest = max(len(dialogue.ids) for dialogue in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    weights = torch.zeros(len(batch), longest)
    others = torch.full((longest,), other_weight)
    if phase is not None:
        others = torch.where(torch.arange(longest) % _OTHERS == phase % _OTHERS, other_weight * _OTHERS, 0.0)
    for row, dialogue in enumerate(batch):
        length = len(dialogue.ids)
        ids[row, :length] = torch.tensor(dialogue.ids)
        weights[row, :length] = torch.where(torch.tensor(dialogue.spoken), 1.0, others[:length])
    return ids, weights


def dialogue_loss(
    model: Qwen2ForCausalLM, ids: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted mean loss, and the plain mean over the assistant's tokens (weight 1), scalars in nats."""
    targets, weights = ids[:, 1:], weights[:, 1:]
    counted = weights > 0
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        # Padding is on the right: causal attention never sees it, so no mask is needed.
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[counted])
    losses = functional.cross_entropy(logits.float(), targets[counted], reduction="none")
    weight = weights[counted]
    spoken = losses.detach()[weight >= 1]
    return (losses * weight).sum() / weight.sum(), spoken.mean()


def warm_start(
    model: Qwen2ForCausalLM,
    groups: Groups,
    settings: WarmStartSettings,
    seed: int,
    on_step: Callable[[Update], bool | None],
) -> None:
    """Train the model in place, on its own device, until the token budget is spent or on_step returns True."""
    device = next(model.parameters()).device
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        (matrices if parameter.dim() == 2 and "embed_tokens" not in name else rest).append(parameter)
    muon = torch.optim.Muon(matrices, lr=settings.muon_lr, momentum=0.95, weight_decay=settings.decay)
    adam = torch.optim.AdamW(rest, lr=settings.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
    stream = batches(groups, settings.batch_tokens, random.Random(seed))
    model.train()
    spent, step, started = 0, 0, time.perf_counter()
    while spent < settings.tokens:
        factor = min(1.0, (step + 1) / settings.warmup)
        for optimiser, peak in ((muon, settings.muon_lr), (adam, settings.adam_lr)):
            for group in optimiser.param_groups:
                group["lr"] = peak * factor
        ids, weights = collate(next(stream), settings.other_weight, phase=step)
        loss, spoken = dialogue_loss(model, ids.to(device), weights.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        for optimiser in (muon, adam):
            optimiser.step()
            optimiser.zero_grad()
        step += 1
        spent += ids.numel()
        if on_step(Update(step, spent, spoken.item(), time.perf_counter() - started)):
            break
    model.eval()
