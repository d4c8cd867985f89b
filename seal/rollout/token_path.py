"""The rules of one trajectory's token stream: a run trains on exactly the tokens that it sampled.

Sampled ids and log-probs come from the engine and must reach the trainer unchanged, in order, with mask 1; everything
between them is context, with mask 0 and log-prob 0. `check` enforces this.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seal.rollout.speaker import SpeakerFault


class TokenPathError(SpeakerFault):
    """A trajectory whose tokens are not the sampled ones; it must not be trained on."""

    def __init__(self, message: str):
        super().__init__("token_path", message)


class DialogueRefused(TokenPathError):
    """verl's token builder, or the model's chat template, refuses the dialogue."""


@dataclass(frozen=True)
class Sampled:
    """One assistant message as the engine returned it: token ids, and one log-prob per token."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs):
            raise TokenPathError(f"the engine returned {len(self.ids)} tokens and {len(self.logprobs)} log-probs")
        if not all(map(math.isfinite, self.logprobs)):
            raise TokenPathError("the engine returned a log-prob that is not finite")


def check(
    response: Sequence[int],
    mask: Sequence[int],
    logprobs: Sequence[float],
    spans: Sequence[tuple[int, int]],
    sampled: Sequence[Sampled],
) -> None:
    """Raise TokenPathError unless the response is the sampled messages at their spans, and context elsewhere.

    response, mask, logprobs: one value per response token. spans: (start, end) of each message in these, in order.
    """
    if not len(response) == len(mask) == len(logprobs):
        raise TokenPathError(f"{len(response)} tokens, {len(mask)} of mask and {len(logprobs)} log-probs")
    if len(spans) != len(sampled):
        raise TokenPathError(f"{len(sampled)} sampled messages and {len(spans)} spans")
    end = 0
    for number, ((start, stop), message) in enumerate(zip(spans, sampled, strict=True), start=1):
        _check_context(mask[end:start], logprobs[end:start], f"before message {number}")
        if not end <= start <= stop <= len(response):
            raise TokenPathError(f"message {number} has the span {start}..{stop}, out of order")
        if tuple(response[start:stop]) != message.ids:
            raise TokenPathError(f"message {number} holds other tokens than were sampled")
        if tuple(logprobs[start:stop]) != message.logprobs:
            raise TokenPathError(f"message {number} holds other log-probs than were sampled")
        if any(value != 1 for value in mask[start:stop]):
            raise TokenPathError(f"message {number} holds sampled tokens outside the mask")
        end = stop
    _check_context(mask[end:], logprobs[end:], "after the last message")


def _check_context(mask: Sequence[int], logprobs: Sequence[float], where: str) -> None:
    if any(value != 0 for value in mask):
        raise TokenPathError(f"a token {where} is in the mask and was not sampled")
    if any(value != 0 for value in logprobs):
        raise TokenPathError(f"a token {where} has a log-prob and was not sampled")
