"""The verbs of the protocol, one method per verb, and the open episodes: which exist, and when they close.

This module refuses wrong ids. An episode takes one request at a time; the step_id identifies a repeated /step.
"""

import asyncio
import hashlib
import logging
import math
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from env_service import protocol, variable
from env_service.encoding import encode
from env_service.pool import WorkerPool
from env_service.protocol import RequestRefused
from env_service.settings import ServerSettings
from env_service.worker import EpisodeHistory
from seal.system.files import replacing

_LOG = logging.getLogger(__name__)
_REMEMBERED_IDS = 4096


@dataclass(eq=False)
class _OpenEpisode:
    history: EpisodeHistory
    request: protocol.CreateRequest
    used: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_step: tuple[str, tuple[str, bool, str], bytes] | None = None


class Episodes:
    """The open episodes of the service, and the verbs that act on them."""

    def __init__(self, settings: ServerSettings, pool: WorkerPool) -> None:
        self._settings = settings
        self._pool = pool
        self._open: dict[str, _OpenEpisode] = {}
        self._closed: OrderedDict[str, str] = OrderedDict()

    def figures(self) -> dict[str, int]:
        """The number of open episodes, and of messages that they have answered."""
        messages = sum(len(entry.history.steps) for entry in self._open.values())
        return {"episodes_open": len(self._open), "messages_kept": messages}

    @cached_property
    def _uploads(self) -> tempfile.TemporaryDirectory[str]:
        # Created on the first upload, because a service may run where it cannot write.
        return tempfile.TemporaryDirectory(prefix="seal_tasks_")

    async def get_env_profile(self, request: protocol.ProfileRequest) -> bytes:
        """List the task ids of a split."""
        split = request.params.get("split") or ""
        answer = await self._pool.query("profile", {"env_type": request.env_type, "split": str(split)})
        return _success(answer)

    async def tasks(self, request: protocol.TasksRequest) -> bytes:
        """Serve further tasks until the service stops."""
        lines = b"\n".join(encode(task) for task in request.tasks) + b"\n"
        try:
            path = Path(self._uploads.name) / f"{hashlib.sha256(lines).hexdigest()[:16]}.jsonl"
            known = path.exists()
            with replacing(path) as draft:
                draft.write_bytes(lines)
        except OSError as error:
            reason = f"The tasks cannot be stored ({error.strerror}): make room in the temporary folder, or set TMPDIR."
            raise RequestRefused(reason, 503) from error
        try:
            return _success(await self._pool.load_task_file(str(path)))
        except RequestRefused:
            if not known:
                path.unlink(missing_ok=True)
            raise

    async def create(self, request: protocol.CreateRequest) -> bytes:
        """Open an episode."""
        if request.task_id is None:
            raise RequestRefused("task_id is missing: name the task to open.")
        name = request.instance_id or uuid.uuid4().hex
        if name in self._open:
            return await self._repeat(self._open[name], request)
        limit = self._settings.max_episodes
        if len(self._open) >= limit:
            raise RequestRefused(f"{limit} episodes are open: release some, or raise {variable('max_episodes')}.", 429)
        broken = list(request.refused_calls)
        history = EpisodeHistory(name, request.env_type, request.task_id, request.params, broken=broken)
        self._open[name] = entry = _OpenEpisode(history, request, time.monotonic())
        async with entry.lock:
            try:
                answer = await self._pool.create(history)
            except BaseException:
                # A failed create leaves nothing behind, whatever the error.
                del self._open[name]
                raise
        return _success(answer)

    async def _repeat(self, known: _OpenEpisode, request: protocol.CreateRequest) -> bytes:
        """Answer a create that was sent twice; refuse any other use of an open id."""
        async with known.lock:
            if request.create_id is None or request != known.request or known.history.steps:
                name = known.history.id
                raise RequestRefused(f"instance_id {name!r} is already open: release it or choose another one.")
            self._require_open(known)
            return _success(await self._pool.send("start", known.history, {}))

    async def step(self, request: protocol.StepRequest) -> bytes:
        """Pass on one message of the policy, or of the user."""
        said, step_id = request.messages, request.step_id
        message = (said.content, request.truncated, said.role)
        entry = self._entry(request.instance_id)
        async with entry.lock:
            self._require_open(entry)
            if step_id is not None and entry.last_step is not None and entry.last_step[0] == step_id:
                if entry.last_step[1] != message:
                    raise RequestRefused(f"step_id {step_id!r} was used for another message: choose a new one.")
                return _success(entry.last_step[2])
            self._require_room(entry.history, len(message[0]))
            answer = await self._pool.step(entry.history, *message)
            entry.used = time.monotonic()
            if step_id is not None:
                entry.last_step = (step_id, message, answer)
            await asyncio.sleep(delay(self._settings.delay_seconds, f"{entry.history.id}/{len(entry.history.steps)}"))
            return _success(answer)

    async def evaluate(self, request: protocol.EvaluateRequest) -> bytes:
        """Return verdict, figures and labels without changing the episode."""
        return await self._inspect("evaluate", request.instance_id, request.params)

    async def get_info(self, request: protocol.InstanceRequest) -> bytes:
        """Describe the tools that are available now, as text."""
        return await self._inspect("describe", request.instance_id, {})

    async def _inspect(self, op: str, instance_id: str | None, arguments: Mapping[str, Any]) -> bytes:
        entry = self._entry(instance_id)
        async with entry.lock:
            self._require_open(entry)
            answer = await self._pool.send(op, entry.history, arguments)
            entry.used = time.monotonic()
            return _success(answer)

    async def release(self, request: protocol.InstanceRequest) -> bytes:
        """Close an episode."""
        if request.instance_id is None:
            raise RequestRefused("instance_id is missing.")
        entry = self._open.get(request.instance_id)
        released = entry is not None and await self._close(entry, "released")
        return b'{"success":%s,"data":null}' % (b"true" if released else b"false")

    async def expire(self) -> None:
        """Close idle episodes from time to time; a failed round does not stop the loop."""
        while True:
            await asyncio.sleep(min(30.0, self._settings.idle_seconds / 2))
            limit = time.monotonic() - self._settings.idle_seconds
            idle = [entry for entry in self._open.values() if entry.used < limit and not entry.lock.locked()]
            try:
                for entry in idle:
                    await self._close(entry, "expired")
            except (RuntimeError, OSError):
                _LOG.exception("closing idle episodes failed; the next round tries again")
                continue
            if idle:
                _LOG.info("closed %d idle episodes", len(idle))

    async def _close(self, entry: _OpenEpisode, event: str) -> bool:
        """Close an episode; False if another request has done so."""
        name = entry.history.id
        async with entry.lock:
            if self._open.get(name) is not entry:
                return False
            del self._open[name]
            self._closed[name] = event
            if len(self._closed) > _REMEMBERED_IDS:
                self._closed.popitem(last=False)
            await self._pool.release(entry.history)
        return True

    def _entry(self, instance_id: str | None) -> _OpenEpisode:
        if instance_id is None:
            raise RequestRefused("instance_id is missing.")
        entry = self._open.get(instance_id)
        if entry is None:
            event = self._closed.get(instance_id)
            state = f"was {event}" if event else "is unknown"
            raise RequestRefused(
                f"instance_id {instance_id!r} {state}: create an episode first.", code=protocol.NO_EPISODE
            )
        return entry

    def _require_room(self, history: EpisodeHistory, more: int) -> None:
        """Refuse a message with which the episode's stored messages would exceed the limit of one body."""
        limit = self._settings.max_body_bytes
        if more + sum(len(content) for content, *_ in history.steps) > limit:
            reason = f"The episode's messages exceed {limit} characters ({variable('max_body_bytes')})."
            raise RequestRefused(reason, 413, protocol.EPISODE_BROKEN)

    def _require_open(self, entry: _OpenEpisode) -> None:
        name = entry.history.id
        if self._entry(name) is not entry:
            raise RequestRefused(f"instance_id {name!r} was closed while the request waited.", code=protocol.NO_EPISODE)


def _success(data: bytes) -> bytes:
    return b'{"success":true,"data":' + data + b"}"


def delay(median: float, place: str) -> float:
    """Seconds by which an answer is delayed: log-normal, like calls to real tools, and always the same for a place."""
    return Random(place).lognormvariate(math.log(median), 1.0) if median else 0.0
