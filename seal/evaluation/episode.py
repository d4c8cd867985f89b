"""One task of the plain benchmark, played by an endpoint against the environment service."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from seal.data.rows import TaskRow
from seal.evaluation.endpoint import ChatEndpoint, ContextExceeded, EndpointFault
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.env_client import EnvironmentClient, EnvironmentFault

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpisodeSettings:
    """How every episode is played.

    step: the number under which results are logged; service: what the service
    calls itself, repeated in every line.
    """

    prompt_mode: str = "bfcl_qwen_fc"
    max_steps: int = 20
    deadline_s: float = 1800.0
    seed: int = 0
    step: int = 0
    service: str = ""


@dataclass
class _Played:
    """What has been said so far, and what is known about it."""

    info: dict[str, Any]
    messages: list[dict[str, str]]
    opening: int
    tokens: int = 0
    stop: str = ""


async def play(
    row: TaskRow, sample: int, endpoint: ChatEndpoint, service: EnvironmentClient, settings: EpisodeSettings
) -> dict[str, Any]:
    """Play one task once; the line of its validation log.

    No interface ever travels with it. A failure of the service or the endpoint
    makes a line with its cause (``infra``), not an exception; EndpointRefused
    passes.
    """
    started = time.monotonic()
    played = _Played({}, [], 0)
    evaluation, infra = None, None
    try:
        async with asyncio.timeout(settings.deadline_s):
            evaluation = await _episode(played, row, sample, endpoint, service, settings)
    except EnvironmentFault as fault:
        infra = f"environment_{fault.cause}"
        logger.warning("%s: %s", row.task_id, fault)
    except EndpointFault as fault:
        infra = fault.cause
        logger.warning("%s: %s", row.task_id, fault)
    except TimeoutError:
        infra = "task_deadline"
        logger.warning("%s passed its deadline of %.0f s", row.task_id, settings.deadline_s)
    return _line(played, row, sample, evaluation, infra, settings, time.monotonic() - started)


async def _episode(
    played: _Played,
    row: TaskRow,
    sample: int,
    endpoint: ChatEndpoint,
    service: EnvironmentClient,
    settings: EpisodeSettings,
) -> dict[str, Any]:
    instance = uuid4().hex
    params: dict[str, Any] = {
        "split": "eval",
        "tool_prompt_mode": settings.prompt_mode,
        "max_steps": settings.max_steps,
    }
    if row.turns > 0:
        params["turns"] = row.turns
    played.messages, played.info = await service.create(row.task_id, instance, params)
    played.opening = len(played.messages)
    try:
        name = f"{row.task_id}/{sample}"
        message, done = 0, False
        while not done:
            text, truncated = "", True
            try:
                seed = zlib.crc32(f"{settings.seed}/{name}/{message}".encode())
                reply = await endpoint.complete(played.messages, seed, f"{name}/{message}")
                text, truncated = reply.text, reply.truncated
                played.tokens += reply.tokens
            except ContextExceeded:
                logger.info("%s does not fit the model's context after %d messages", row.task_id, message)
            observation = await service.step(instance, str(message), text, truncated)
            played.messages += [{"role": "assistant", "content": text}, *observation.messages]
            message, done = message + 1, observation.done
        return await service.evaluate(instance, {})
    finally:
        try:
            await service.release(instance)
        except EnvironmentFault as fault:
            logger.info("episode of %s could not be released: %s", row.task_id, fault)


def _line(
    played: _Played,
    row: TaskRow,
    sample: int,
    evaluation: dict[str, Any] | None,
    infra: str | None,
    settings: EpisodeSettings,
    seconds: float,
) -> dict[str, Any]:
    return TrajectoryRecord.of(
        evaluation,
        step=settings.step,
        task_id=row.task_id,
        data_source=row.data_source,
        category=row.category,
        split=row.split,
        sample=sample,
        score=float(evaluation["valid"]) if evaluation else 0.0,
        infra=infra,
        stop=evaluation["stop"] if evaluation else "",
        tokens=played.tokens,
        seconds=round(seconds, 3),
        prompt_mode=settings.prompt_mode,
        data_hash=str(played.info.get("data_hash", "")),
        messages=tuple(played.messages),
    ).line()
