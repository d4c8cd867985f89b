"""Episodes: who is open, who may act, when they end.

Everything that a client can do wrong with an id is answered here. Each episode
takes one request at a time; a repeated /step is recognised by its step_id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from env_service.metrics import Metrics
from env_service.settings import ServiceSettings
from env_service.workers import NO_EPISODE, EpisodeLog, RequestRefused, WorkerPool

_LOG = logging.getLogger(__name__)
_REMEMBERED = 4096


@dataclass(eq=False)
class _Entry:
    log: EpisodeLog
    create_id: str | None
    used: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finished: bool = False
    last_step: tuple[str, str, bytes] | None = None


class Episodes:
    """The open episodes of the service."""

    def __init__(self, settings: ServiceSettings, pool: WorkerPool, metrics: Metrics) -> None:
        """The pool must have been started."""
        self._settings = settings
        self._pool = pool
        self._metrics = metrics
        self._open: dict[str, _Entry] = {}
        self._closed: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    async def create(self, log: EpisodeLog, create_id: str | None) -> bytes:
        """Open an episode; JSON of /create's data."""
        known = self._open.get(log.id)
        if known is not None:
            return await self._repeat(known, create_id)
        if len(self._open) >= self._settings.max_episodes:
            self._metrics.failures["too_many_episodes"] += 1
            limit = self._settings.max_episodes
            raise RequestRefused(f"{limit} episodes are open: release some, or raise BFCL_MAX_EPISODES.", 429)
        entry = _Entry(log, create_id, time.monotonic())
        self._open[log.id] = entry
        async with entry.lock:
            try:
                answer = await self._pool.create(log)
            except BaseException:
                # Whatever went wrong, a create that fails leaves nothing behind.
                del self._open[log.id]
                self._metrics.failures["create"] += 1
                raise
        self._metrics.episodes["created"] += 1
        return answer.body

    async def _repeat(self, known: _Entry, create_id: str | None) -> bytes:
        """Answer a create that was sent twice; any other use of an open id is refused."""
        async with known.lock:
            if create_id is None or create_id != known.create_id or known.log.steps:
                name = known.log.id
                raise RequestRefused(f"instance_id {name!r} is already open: release it or choose another one.")
            self._still_open(known)
            return (await self._pool.look("start", known.log, {})).body

    async def step(self, instance_id: str | None, content: str, step_id: str | None, truncated: bool) -> bytes:
        """Hand on one assistant message; JSON of /step's data."""
        entry = self._entry(instance_id)
        async with entry.lock:
            self._still_open(entry)
            if step_id is not None and entry.last_step is not None and entry.last_step[0] == step_id:
                if entry.last_step[1] != content:
                    raise RequestRefused(f"step_id {step_id!r} was used for another message: choose a new one.")
                return entry.last_step[2]
            try:
                answer = await self._pool.step(entry.log, content, truncated)
            except RequestRefused:
                self._metrics.failures["lost" if entry.log.lost else "step"] += 1
                raise
            entry.used = time.monotonic()
            if answer.header.get("error"):
                self._metrics.tool_errors[answer.header["error"]] += 1
            if answer.header["done"] and not entry.finished:
                entry.finished = True
                self._metrics.episodes["finished"] += 1
            if step_id is not None:
                entry.last_step = (step_id, content, answer.body)
            return answer.body

    async def look(self, op: str, instance_id: str | None, arguments: Mapping[str, Any]) -> bytes:
        """Evaluate or describe an episode; JSON of the data."""
        entry = self._entry(instance_id)
        async with entry.lock:
            self._still_open(entry)
            answer = await self._pool.look(op, entry.log, arguments)
            entry.used = time.monotonic()
            return answer.body

    async def release(self, instance_id: str | None) -> bool:
        """Close an episode; False when it is not open."""
        if instance_id is None:
            raise RequestRefused("instance_id is missing.")
        entry = self._open.get(instance_id)
        if entry is None:
            return False
        async with entry.lock:
            if self._open.get(instance_id) is not entry:
                return False
            await self._close(entry, "released")
        return True

    async def reap(self) -> int:
        """Close episodes that were idle too long; how many."""
        limit = time.monotonic() - self._settings.idle_seconds
        idle = [entry for entry in self._open.values() if entry.used < limit and not entry.lock.locked()]
        for entry in idle:
            async with entry.lock:
                if self._open.get(entry.log.id) is entry:
                    await self._close(entry, "expired")
        return len(idle)

    async def _close(self, entry: _Entry, why: str) -> None:
        del self._open[entry.log.id]
        self._closed[entry.log.id] = why
        if len(self._closed) > _REMEMBERED:
            self._closed.popitem(last=False)
        self._metrics.episodes[why] += 1
        await self._pool.release(entry.log)

    def _entry(self, instance_id: str | None) -> _Entry:
        if instance_id is None:
            raise RequestRefused("instance_id is missing.")
        entry = self._open.get(instance_id)
        if entry is None:
            why = self._closed.get(instance_id)
            state = f"was {why}" if why else "is unknown"
            raise RequestRefused(f"instance_id {instance_id!r} {state}: create an episode first.", code=NO_EPISODE)
        return entry

    def _still_open(self, entry: _Entry) -> None:
        if self._open.get(entry.log.id) is not entry:
            self._entry(entry.log.id)
            raise RequestRefused(f"instance_id {entry.log.id!r} was closed while the request waited.", code=NO_EPISODE)


async def reap_forever(episodes: Episodes, idle_seconds: float) -> None:
    """Close idle episodes from time to time; no failure of one round ends the next."""
    while True:
        await asyncio.sleep(min(30.0, idle_seconds / 2))
        try:
            closed = await episodes.reap()
        except (RuntimeError, OSError):
            _LOG.exception("closing idle episodes failed; trying again")
            continue
        if closed:
            _LOG.info("closed %d idle episodes", closed)
