"""The budgets of a trajectory in tokens: how long the next message may be, and which limit decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from seal.settings import SealSettings


@dataclass(frozen=True)
class Budgets:
    """Limits in tokens, and in messages of a training trajectory; docs/how-it-works.md names their keys.

    message, validation_message: one assistant message. response: all after the first prompt. model: prompt and
    response. actor: the same, in training. max_steps: assistant messages, in training.
    """

    message: int
    validation_message: int
    response: int
    model: int
    actor: int
    max_steps: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The budgets of a composed configuration."""
        settings = SealSettings.of(config).rollout
        rollout, actor = config["actor_rollout_ref"]["rollout"], config["actor_rollout_ref"]["actor"]
        model = rollout["max_model_len"] or rollout["prompt_length"] + rollout["response_length"]
        packed = model
        if actor["use_dynamic_bsz"]:
            # A training trajectory must fit the actor's token budget, or verl could not pack it.
            packed = actor["ppo_max_token_len_per_gpu"] * actor["ulysses_sequence_parallel_size"]
        return cls(
            message=settings.max_message_tokens,
            validation_message=settings.validation_message_tokens,
            response=rollout["response_length"],
            model=model,
            actor=packed,
            max_steps=settings.max_steps,
        )

    def room(self, response: int, total: int, training: bool) -> tuple[str, int]:
        """The budget that limits the next message, by its name in CUTS, and the tokens that it leaves."""
        rooms = {"message_length": self.message if training else self.validation_message}
        rooms["model_length"] = self.model - total
        if training:  # a validation has only the benchmark's limits and the engine's
            rooms["trajectory_length"] = self.response - response
            rooms["actor_length"] = self.actor - total
        return min(rooms.items(), key=lambda item: item[1])
