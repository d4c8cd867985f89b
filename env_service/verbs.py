"""The verbs of the protocol: what each takes, what it answers, and who answers it."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from env_service import protocol
from env_service.encoding import encode
from env_service.episodes import Episodes, expire_idle_episodes
from env_service.history import EpisodeHistory
from env_service.metrics import Metrics
from env_service.pool import WorkerPool
from env_service.refusals import RequestRefused
from env_service.settings import ServerSettings


class Service:
    """The verbs, over the open episodes of one worker pool."""

    def __init__(self, settings: ServerSettings) -> None:
        """Processes start with :meth:`start`."""
        self.settings = settings
        self.metrics = Metrics()
        self.pool = WorkerPool(settings)
        self._episodes = Episodes(settings, self.pool, self.metrics)
        self._expiry: asyncio.Task[None] | None = None
        self._uploads = tempfile.TemporaryDirectory(prefix="seal_tasks_")
        self.metrics.gauge("episodes_open", "Open episodes.", lambda: len(self._episodes))
        self.metrics.gauge("worker_restarts", "Worker processes that were replaced.", lambda: self.pool.restarts)

    async def start(self) -> None:
        """Start the workers and the expiry of idle episodes."""
        await self.pool.start()
        self._expiry = asyncio.create_task(expire_idle_episodes(self._episodes, self.settings.idle_seconds))

    async def stop(self) -> None:
        """End both."""
        if self._expiry is not None:
            self._expiry.cancel()
        await self.pool.stop()
        self._uploads.cleanup()

    async def get_env_profile(self, request: protocol.ProfileRequest) -> bytes:
        """List the task ids of a split."""
        split = request.params.get("split") or ""
        answer = await self.pool.query("profile", {"env_type": request.env_type, "split": str(split)})
        return _success(answer.body)

    async def create(self, request: protocol.CreateRequest) -> bytes:
        """Open an episode."""
        if request.task_id is None:
            raise RequestRefused("task_id is missing: name the task to open.")
        name = request.instance_id or uuid.uuid4().hex
        history = EpisodeHistory(name, request.env_type, request.task_id, request.params)
        return _success(await self._episodes.create(history, request.create_id))

    async def step(self, request: protocol.StepRequest) -> bytes:
        """Pass on one assistant message."""
        content, step_id = request.messages.content, request.step_id
        return _success(await self._episodes.step(request.instance_id, content, step_id, request.truncated))

    async def evaluate(self, request: protocol.EvaluateRequest) -> bytes:
        """Give verdict, figures and labels, without changing the episode."""
        return _success(await self._episodes.inspect("evaluate", request.instance_id, request.params))

    async def get_info(self, request: protocol.InstanceRequest) -> bytes:
        """Describe the tools that are available now, as text."""
        return _success(await self._episodes.inspect("describe", request.instance_id, {}))

    async def tasks(self, request: protocol.TasksRequest) -> bytes:
        """Serve further tasks until the service ends."""
        name = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:16]
        path = Path(self._uploads.name) / f"{name}.jsonl"
        path.write_bytes(b"\n".join(encode(task) for task in request.tasks) + b"\n")
        return _success((await self.pool.load_task_file(str(path))).body)

    async def release(self, request: protocol.InstanceRequest) -> bytes:
        """Close an episode."""
        released = await self._episodes.release(request.instance_id)
        return b'{"success":%s,"data":null}' % (b"true" if released else b"false")


def _success(data: bytes) -> bytes:
    return b'{"success":true,"data":' + data + b"}"


@dataclass(frozen=True)
class Verb:
    """One POST verb: the models of its request and answer, and its handler."""

    request: type[BaseModel]
    answer: type[BaseModel]
    handle: Callable[[Any], Awaitable[bytes]]


def verbs(service: Service) -> dict[str, Verb]:
    """The verbs by name."""
    return {
        "get_env_profile": Verb(protocol.ProfileRequest, protocol.ProfileAnswer, service.get_env_profile),
        "create": Verb(protocol.CreateRequest, protocol.CreateAnswer, service.create),
        "step": Verb(protocol.StepRequest, protocol.StepAnswer, service.step),
        "evaluate": Verb(protocol.EvaluateRequest, protocol.EvaluateAnswer, service.evaluate),
        "get_info": Verb(protocol.InstanceRequest, protocol.InfoAnswer, service.get_info),
        "tasks": Verb(protocol.TasksRequest, protocol.TasksAnswer, service.tasks),
        "release": Verb(protocol.InstanceRequest, protocol.ReleaseAnswer, service.release),
    }
