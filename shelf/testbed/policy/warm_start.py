"""The warm start: supervised next-token training on encoded dialogues.

Muon updates the matrices of the blocks, AdamW the embedding, norms and biases;
with AdamW for everything the same loss took clearly more tokens. The assistant's
tokens count fully, the names of the tools that it calls more (they decide, and are one
token among dozens), and all others a little: predicting users and tools teaches the
small network the values that it has to copy.
"""

import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional
from transformers import Qwen2ForCausalLM

from shelf.testbed.policy.tokenizer import Encoded

Groups = Sequence[Sequence[Encoded]]
"""Dialogues in groups that count equally."""

MICRO, READING, LESSONS, BENCHMARK = "micro", "reading", "lessons", "benchmark"
"""The sources of dialogues: single calls, single calls under a schema cue, synthesised tasks, the benchmark's training
scenarios."""

_OTHERS = 4
"""Train on every 4th token that the assistant does not say, weighted 4x."""


class ExtraWeight(NamedTuple):
    """Multiplies the loss of the assistant's token `distance` places after any of these ids."""

    ids: Collection[int]
    factor: float
    distance: int


@dataclass(frozen=True)
class WarmStartSettings:
    """How to train."""

    tokens: int = 18_000_000
    """Budget, padding included."""
    batch_tokens: int = 1_600
    """Largest number of tokens per step; a longer dialogue is a batch of its own."""
    muon_lr: float = 0.015
    """Peak learning rate of matrices."""
    adam_lr: float = 0.008
    """Peak learning rate of all other parameters."""
    warmup: int = 20
    """Steps to the peak."""
    floor: float = 0.05
    """Where the cosine after the peak ends, as a share of the peak."""
    other_weight: float = 0.02
    """Loss weight of tokens that the assistant does not say."""
    tool_weight: float = 4.0
    """Loss weight of the tools' names in the assistant's calls."""
    name_weight: float = 4.0
    """Loss weight of the first token of an argument's name."""
    decay: float = 0.05
    """Muon's weight decay."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    micro_share: float = 0.15
    """Share of the steps with single calls."""
    reading_share: float = 0.15
    """Share of the steps with single calls under a schema cue."""
    benchmark_share: float = 0.2
    """Share of the steps with the benchmark's scenarios; the rest have lessons."""
    opening: int = 150_000
    """Tokens of single calls at the beginning, half of them under a schema cue."""


class Step(NamedTuple):
    """One optimiser step: tokens so far, source, loss on the assistant's tokens (nats)."""

    step: int
    tokens: int
    source: str
    loss: float
    seconds: float


def batches(groups: Sequence[Sequence[Encoded]], batch_tokens: int, rng: random.Random) -> Iterator[list[Encoded]]:
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
    batch: Sequence[Encoded],
    other_weight: float,
    extra: Sequence[ExtraWeight] = (),
    phase: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad on the right.

    Returns ids, [B, T] int64, and the loss weight of predicting each of them,
    [B, T] float32 (0 for slips and padding). extra: which of the assistant's tokens count more.
    phase: which of the other tokens count; None: all.
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
        spoken = torch.tensor(dialogue.spoken)
        weights[row, :length] = torch.where(spoken, 1.0, others[:length])
        for start, stop in dialogue.slips:
            weights[row, start:stop] = 0.0
    spoken = weights == 1.0
    for chosen, factor, distance in extra:
        reached = torch.isin(ids, torch.tensor(sorted(chosen), dtype=torch.long)).roll(distance, dims=1)
        weights[reached & spoken] = factor
    return ids, weights


def dialogue_loss(
    model: Qwen2ForCausalLM, ids: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted mean loss, and the plain mean over the assistant's tokens (weight 1 or more), scalars in nats."""
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
    sources: Mapping[str, Groups],
    settings: WarmStartSettings,
    seed: int,
    on_step: Callable[[Step], bool | None],
    tools: Collection[int] = (),
    joints: Collection[int] = (),
) -> None:
    """Train the model in place, on its own device, until the token budget is spent or on_step returns True.

    sources: dialogues by MICRO, READING, LESSONS and BENCHMARK; the share of a source that is absent or empty goes to
    the others. tools: ids of the tools' names; joints: of what stands before an argument's name.
    """
    device = next(model.parameters()).device
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        (matrices if parameter.dim() == 2 and "embed_tokens" not in name else rest).append(parameter)
    muon = torch.optim.Muon(matrices, lr=settings.muon_lr, momentum=0.95, weight_decay=settings.decay)
    adam = torch.optim.AdamW(rest, lr=settings.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
    rng = random.Random(seed)
    streams = {name: batches(groups, settings.batch_tokens, rng) for name, groups in sources.items() if groups}
    shares = {
        MICRO: settings.micro_share,
        READING: settings.reading_share,
        BENCHMARK: settings.benchmark_share,
    }
    shares[LESSONS] = 1 - sum(shares.values())
    names = [name for name in shares if name in streams]
    extra = (ExtraWeight(tools, settings.tool_weight, 0), ExtraWeight(joints, settings.name_weight, 1))
    model.train()
    spent, step, started = 0, 0, time.perf_counter()
    while spent < settings.tokens:
        cosine = 0.5 * (1 + math.cos(math.pi * spent / settings.tokens))
        factor = min(1.0, (step + 1) / settings.warmup) * (settings.floor + (1 - settings.floor) * cosine)
        for optimiser, peak in ((muon, settings.muon_lr), (adam, settings.adam_lr)):
            for group in optimiser.param_groups:
                group["lr"] = peak * factor
        drawn = [name for name in names if name in (MICRO, READING)] if spent < settings.opening else []
        source = rng.choice(drawn) if drawn else rng.choices(names, [shares[name] for name in names])[0]
        batch = next(streams[source])
        ids, weights = collate(batch, settings.other_weight, extra, phase=step)
        loss, spoken = dialogue_loss(model, ids.to(device), weights.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        for optimiser in (muon, adam):
            optimiser.step()
            optimiser.zero_grad()
        step += 1
        spent += ids.numel()
        if on_step(Step(step, spent, source, spoken.item(), time.perf_counter() - started)):
            break
    model.eval()
