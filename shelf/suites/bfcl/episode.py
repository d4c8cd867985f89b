"""One task of the benchmark, played by an endpoint against the environment service."""

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seal.data.rows import TaskRow
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.episode import Episode
from seal.rollout.play import Terms, play
from seal.rollout.services import Services
from seal.rollout.speaker import Said, Speaker
from shelf.suites.chat import ChatClient, ContextExceeded, Sampling

logger = logging.getLogger(__name__)

STEP = 0
"""The training step under which results are logged."""


@dataclass(frozen=True)
class EpisodeSettings:
    """Settings of every episode. params: further parameters of /create; the plain benchmark has none."""

    prompt_mode: str = "bfcl_qwen_fc"
    max_steps: int = 20
    deadline_s: float = 1800.0
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def create_params(self, turns: int) -> dict[str, Any]:
        """The parameters of /create for a task, or for its first turns if `turns` is positive."""
        params = {"split": "eval", "tool_prompt_mode": self.prompt_mode, "max_steps": self.max_steps, **self.params}
        return {**params, "turns": turns} if turns > 0 else params


class EndpointSpeaker(Speaker):
    """A model at a chat endpoint. name: of the rollout, from which seeds and request ids follow.

    The benchmark's own prompt travels as messages; tools are never passed as such.
    """

    def __init__(self, client: ChatClient, sampling: Sampling, name: str, seed: int):
        self._client, self._sampling = client, sampling
        self._rollout = name
        self._seed = seed
        self._tokens = self._tokens_in = 0

    async def say(self, dialogue: Dialogue) -> Said:
        number = len(dialogue.turns)
        name = f"{self._rollout}/{number}"
        seed = zlib.crc32(f"{self._seed}/{name}".encode())
        try:
            reply = await self._client.complete(dialogue.messages, self._sampling, seed, name)
        except ContextExceeded:
            logger.info("%s does not fit the model's context after %d messages", self._rollout, number)
            return Said("", truncated=True)
        self._tokens += reply.tokens
        self._tokens_in += reply.prompt_tokens
        return Said(reply.text, reply.truncated)

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        return {"tokens": self._tokens, "tokens_in": self._tokens_in or None}  # not every endpoint counts


async def play_row(
    row: TaskRow, sample: int, client: ChatClient, sampling: Sampling, services: Services, settings: EpisodeSettings
) -> TrajectoryRecord:
    """Play one task once, through restarts of its service; EndpointRefused passes."""
    names = ("task_id", "data_source", "category", "split")
    known = {name: getattr(row, name) for name in names} | {"prompt_mode": settings.prompt_mode}
    return await play(
        Episode(services, row.task_id, settings.create_params(row.turns)),
        EndpointSpeaker(client, sampling, f"{row.task_id}/{sample}", settings.seed),
        known | {"step": STEP, "sample": sample},
        Terms(deadline_s=settings.deadline_s, deadline="--deadline"),
    )
