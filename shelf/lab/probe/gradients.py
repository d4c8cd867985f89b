"""Gradients of a policy's own words: what a step on one prompt gives another, and where weights turn a batch."""

import math
from collections.abc import Iterable

import torch
from transformers import AutoModelForCausalLM

from shelf.lab.probe.rollouts import DialogueTokens

Gradient = list[torch.Tensor]
Weighed = tuple[DialogueTokens, float, float, int]
"""A rollout of a batch: its advantage, its weight, and 0 or 1 for the half of its prompt's samples."""


class Policy:
    """The model as the trainer loads it, in float32 on a CPU and in bfloat16 on a GPU."""

    def __init__(self, model: str, temperature: float):
        self._device, kind = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=kind).to(self._device).eval()
        self._temperature = temperature

    def gradient(self, tokens: DialogueTokens) -> Gradient:
        """Of the log-prob, in nats, of all its own tokens; one tensor per parameter."""
        ids, own = (torch.tensor(each, device=self._device) for each in tokens)
        self._model.zero_grad()
        logits = self._model(ids[None], logits_to_keep=own - 1).logits[0].float() / self._temperature
        logits.log_softmax(-1).gather(1, ids[own, None]).sum().backward()
        return [each.grad for each in self._model.parameters()]

    def transfer(self, seen: DialogueTokens, plain: DialogueTokens) -> float:
        """Return the change in the log-prob of `plain` by a step on `seen`, as a share of that by a step on `plain`."""
        first = [each.clone() for each in self.gradient(seen)]
        own = self.gradient(plain)
        return _dot(first, own) / _dot(own, own)

    def angles(self, batch: Iterable[Weighed]) -> tuple[float, float, float]:
        """Cosines of a batch's gradients: A and w A; its two halves; these with w. nan where one of them is 0."""
        sums = [[torch.zeros_like(each) for each in self._model.parameters()] for _ in range(4)]
        for tokens, advantage, w, half in batch:
            own = self.gradient(tokens) if advantage else []
            for total, factor in ((sums[half], advantage), (sums[2 + half], w * advantage)):
                for part, more in zip(total, own, strict=False):
                    part.add_(more, alpha=factor)
        a, b, c, d = sums
        whole, weighed = ([one + other for one, other in zip(*pair, strict=True)] for pair in ((a, b), (c, d)))
        return _cosine(whole, weighed), _cosine(a, b), _cosine(c, d)


def _dot(a: Gradient, b: Gradient) -> float:
    return sum(torch.sum(one.float() * other.float()).item() for one, other in zip(a, b, strict=True))


def _cosine(a: Gradient, b: Gradient) -> float:
    scale = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / scale if scale else math.nan
