"""One task of the benchmark, played by an endpoint against the environment service."""

import asyncio
import logging
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from seal.data.rows import TaskRow
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.env_client import EnvironmentFault
from seal.rollout.episode import Episode
from seal.rollout.services import Services
from shelf.suites.bfcl.endpoint import ChatEndpoint
from shelf.suites.chat import ContextExceeded, EndpointFault

logger = logging.getLogger(__name__)

STEP = 0
"""The training step under which results are logged."""


@dataclass(frozen=True)
class EpisodeSettings:
    """How every episode is played.

    params: further parameters of /create; the plain benchmark has none.
    """

    prompt_mode: str = "bfcl_qwen_fc"
    max_steps: int = 20
    deadline_s: float = 1800.0
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def create_params(self, turns: int) -> dict[str, Any]:
        """The parameters of /create for a task, or for its first turns if `turns` is positive."""
        params = {"split": "eval", "tool_prompt_mode": self.prompt_mode, "max_steps": self.max_steps, **self.params}
        return {**params, "turns": turns} if turns > 0 else params


@dataclass
class _Dialogue:
    """The messages so far, and what is known about them."""

    messages: list[dict[str, str]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0
    tokens_in: int = 0
    truncated: list[int] = field(default_factory=list)
    rebuilt: int = 0


async def play(
    row: TaskRow, sample: int, endpoint: ChatEndpoint, services: Services, settings: EpisodeSettings
) -> TrajectoryRecord:
    """Play one task once, through restarts of its service.

    A failure of the service or the endpoint gives a record with its cause
    (``infra``), not an exception; EndpointRefused passes.
    """
    began, started = time.time(), time.monotonic()
    dialogue = _Dialogue()
    evaluation, infra, message = None, None, ""
    try:
        async with asyncio.timeout(settings.deadline_s):
            evaluation = await _play(dialogue, row, sample, endpoint, services, settings)
    except EnvironmentFault as fault:
        infra, message = f"environment_{fault.cause}", str(fault)
    except EndpointFault as fault:
        infra, message = fault.cause, str(fault)
    except TimeoutError:
        infra, message = "task_deadline", f"not finished after --deadline {settings.deadline_s:g}"
    if infra is not None:
        logger.warning("%s: %s", row.task_id, message)
    return TrajectoryRecord.of(
        evaluation,
        step=STEP,
        task_id=row.task_id,
        data_source=row.data_source,
        category=row.category,
        split=row.split,
        sample=sample,
        score=float(evaluation["valid"]) if evaluation else 0.0,
        stop=evaluation["stop"] if evaluation else "",
        tokens=dialogue.tokens,
        tokens_in=dialogue.tokens_in or None,  # not every endpoint counts
        seconds=round(time.monotonic() - started, 3),
        rebuilt=dialogue.rebuilt,
        infra=infra,
        infra_message=message,
        prompt_mode=settings.prompt_mode,
        data_hash=str(dialogue.info.get("data_hash", "")),
        messages=tuple(dialogue.messages),
        truncated=tuple(dialogue.truncated),
        day=str(dialogue.info.get("day", "")),
        began=round(began, 3),
    )


async def _play(
    dialogue: _Dialogue,
    row: TaskRow,
    sample: int,
    endpoint: ChatEndpoint,
    services: Services,
    settings: EpisodeSettings,
) -> dict[str, Any]:
    """Open, interact, evaluate, release; returns the service's evaluation."""
    episode = Episode(services, row.task_id, uuid4().hex, settings.create_params(row.turns))
    try:
        opening, dialogue.info = await episode.create()
        dialogue.messages = list(opening)
        name = f"{row.task_id}/{sample}"
        number, done = 0, False
        while not done:
            text, truncated = "", True
            try:
                seed = zlib.crc32(f"{settings.seed}/{name}/{number}".encode())
                reply = await endpoint.complete(dialogue.messages, seed, f"{name}/{number}")
                text, truncated = reply.text, reply.truncated
                dialogue.tokens += reply.tokens
                dialogue.tokens_in += reply.prompt_tokens
            except ContextExceeded:
                logger.info("%s does not fit the model's context after %d messages", row.task_id, number)
            if truncated:
                dialogue.truncated.append(number)
            observation = await episode.step(str(number), text, truncated)
            dialogue.messages += [{"role": "assistant", "content": text}, *observation.messages]
            number, done = number + 1, observation.done
        return await episode.evaluate({})
    finally:
        dialogue.rebuilt = episode.rebuilt
        await episode.release()
