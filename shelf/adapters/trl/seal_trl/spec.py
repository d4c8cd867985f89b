"""One object that holds what a trainer needs: tasks, rollouts of whole episodes, and the verdict as the reward."""

import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from datasets import Dataset
from trl import GRPOTrainer

from env_service.client import ServiceClient
from env_service.local_service import address
from seal_trl.tokens import Tokens


class SealSpec:
    """Arguments of `GRPOTrainer(train_dataset=, rollout_func=, reward_funcs=)`, in the style of TRL's specs.

    split: the service's split; `val` is not for training. tasks: these ids instead. num_tasks: at most this many.
    max_tokens: limit for a whole dialogue, by default the model's context; a message that could exceed it is not asked
    for, and the episode counts as cut. base_url: the service; by default SEAL_URL, else one is started here. params:
    those of the service's /create. ServiceError if no service answers.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        tasks: Sequence[str] | None = None,
        num_tasks: int | None = None,
        max_tokens: int | None = None,
        base_url: str | None = None,
        env_type: str = "bfcl",
        **params: Any,
    ) -> None:
        self.service = ServiceClient(address(base_url), env_type)
        self._tasks = list(tasks if tasks is not None else self.service.tasks(split))[:num_tasks]
        self._max_tokens = max_tokens
        self._params = {"split": split, **params}

    @cached_property
    def train_dataset(self) -> Dataset:
        """The task ids as prompts: the service speaks first."""
        return Dataset.from_dict({"prompt": self._tasks})

    @property
    def reward_funcs(self) -> list[Callable[..., list[float]]]:
        """The verdict of the whole task."""
        return [passed]

    def rollout_func(self, prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Play one episode per prompt, all at once, and return the tokens as they were sampled.

        env_mask is 1 for sampled tokens. Reward functions also get `passed`, `labels` (one per user turn),
        `diagnosis` and `progress`. A failing service raises ServiceError; it never gives a reward of 0.
        """
        episodes = [_Episode(self.service, task, self._params, trainer.processing_class) for task in prompts]
        limit = self._max_tokens or trainer.model.config.max_position_embeddings
        try:
            for each in episodes:
                each.open()
            while active := [each for each in episodes if each.goes_on(limit - trainer.max_completion_length)]:
                # TRL's own generation: a bare `model.generate` here would run under gradient checkpointing,
                # which silently writes broken text.
                drawn, logprobs = trainer._generate_single_turn([each.tokens.ids for each in active], None, {}, 1)
                for episode, ids, logprob in zip(active, drawn, logprobs or [None] * len(drawn), strict=True):
                    episode.say(ids, logprob)
            found = [each.evaluate() for each in episodes]
        finally:
            for each in episodes:
                each.close()
        streams = [each.tokens for each in episodes]
        return {
            "prompt_ids": [stream.prompt for stream in streams],
            "completion_ids": [stream.completion for stream in streams],
            "logprobs": [stream.logprobs for stream in streams] if all(stream.scored for stream in streams) else None,
            "env_mask": [stream.mask for stream in streams],
            "passed": [float(report["valid"]) for report in found],
            **{name: [report[name] for report in found] for name in ("labels", "diagnosis", "progress")},
        }


def passed(passed: list[float], **_: Any) -> list[float]:
    """1 for a task that met the verifier, else 0."""
    return passed


class _Episode:
    """One episode and its tokens."""

    def __init__(self, service: ServiceClient, task: str, params: dict[str, Any], tokenizer: Any) -> None:
        self._service, self._name = service, uuid.uuid4().hex
        self._task, self._params, self._tokenizer = task, params, tokenizer
        self._ended = False

    def open(self) -> None:
        """Create the episode and append its first messages."""
        self.tokens = Tokens(self._tokenizer, self._service.create(self._task, self._name, self._params)["state"])

    def goes_on(self, limit: int) -> bool:
        """Return whether to ask for another message."""
        return not self._ended and len(self.tokens.ids) <= limit

    def say(self, ids: list[int], logprobs: list[float] | None) -> None:
        """Send a sampled message and append the answer."""
        text = self.tokens.said(ids, logprobs)
        answer = self._service.step(self._name, text, truncated=self.tokens.cut)
        self._ended = answer["is_terminated"]
        if not self._ended:
            self.tokens.answered(answer["state"])

    def evaluate(self) -> dict[str, Any]:
        return self._service.evaluate(self._name, None if self._ended else "length")

    def close(self) -> None:
        """Release the episode, if it was opened."""
        self._service.release(self._name)
