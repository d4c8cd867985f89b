"""The open episodes: which exist, which request may act on them, and when they end.

This module answers everything that a client can do wrong with an id. An episode
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

from env_service.history import EpisodeHistory
from env_service.metrics import Metrics
from env_service.pool import WorkerPool
from env_service.refusals import NO_EPISODE, RequestRefused
from env_service.settings import ServerSettings, variable

_LOG = logging.getLogger(__name__)
_REMEMBERED_IDS = 4096


@dataclass(eq=False)
class _OpenEpisode:
    history: EpisodeHistory
    create_id: str | None
    used: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    finished: bool = False
    last_step: tuple[str, str, bytes] | None = None


class Episodes:
    """The open episodes of the service."""

    def __init__(self, settings: ServerSettings, pool: WorkerPool, metrics: Metrics) -> None:
        """The pool must be running before the first call."""
        self._settings = settings
        self._pool = pool
        self._metrics = metrics
        self._open: dict[str, _OpenEpisode] = {}
        self._closed: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    async def create(self, history: EpisodeHistory, create_id: str | None) -> bytes:
        """Open an episode; JSON of /create's data."""
        known = self._open.get(history.id)
        if known is not None:
            return await self._repeat(known, create_id)
        if len(self._open) >= self._settings.max_episodes:
            self._metrics.failures.labels("too_many_episodes").inc()
            limit = self._settings.max_episodes
            raise RequestRefused(f"{limit} episodes are open: release some, or raise {variable('max_episodes')}.", 429)
        entry = _OpenEpisode(history, create_id, time.monotonic())
        self._open[history.id] = entry
        async with entry.lock:
            try:
                answer = await self._pool.create(history)
            except BaseException:
                # Whatever went wrong, a failed create leaves nothing behind.
                del self._open[history.id]
                self._metrics.failures.labels("create").inc()
                raise
        self._metrics.episodes.labels("created").inc()
        return answer.body

    async def _repeat(self, known: _OpenEpisode, create_id: str | None) -> bytes:
        """Answer a create that was sent twice; refuse any other use of an open id."""
        async with known.lock:
            if create_id is None or create_id != known.create_id or known.history.steps:
                name = known.history.id
                raise RequestRefused(f"instance_id {name!r} is already open: release it or choose another one.")
            self._require_open(known)
            return (await self._pool.inspect("start", known.history, {})).body

    async def step(self, instance_id: str | None, content: str, step_id: str | None, truncated: bool) -> bytes:
        """Pass on one assistant message; JSON of /step's data."""
        entry = self._entry(instance_id)
        async with entry.lock:
            self._require_open(entry)
            if step_id is not None and entry.last_step is not None and entry.last_step[0] == step_id:
                if entry.last_step[1] != content:
                    raise RequestRefused(f"step_id {step_id!r} was used for another message: choose a new one.")
                return entry.last_step[2]
            try:
                answer = await self._pool.step(entry.history, content, truncated)
            except RequestRefused:
                self._metrics.failures.labels("lost" if entry.history.lost else "step").inc()
                raise
            entry.used = time.monotonic()
            if answer.header.get("error"):
                self._metrics.tool_errors.labels(answer.header["error"]).inc()
            if answer.header["done"] and not entry.finished:
                entry.finished = True
                self._metrics.episodes.labels("finished").inc()
            if step_id is not None:
                entry.last_step = (step_id, content, answer.body)
            return answer.body

    async def inspect(self, op: str, instance_id: str | None, arguments: Mapping[str, Any]) -> bytes:
        """Evaluate or describe an episode; JSON of the data."""
        entry = self._entry(instance_id)
        async with entry.lock:
            self._require_open(entry)
            answer = await self._pool.inspect(op, entry.history, arguments)
            entry.used = time.monotonic()
            return answer.body

    async def release(self, instance_id: str | None) -> bool:
        """Close an episode; False if it is not open."""
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

    async def close_idle(self) -> int:
        """Close episodes that were idle for too long; returns how many."""
        limit = time.monotonic() - self._settings.idle_seconds
        idle = [entry for entry in self._open.values() if entry.used < limit and not entry.lock.locked()]
        for entry in idle:
            async with entry.lock:
                if self._open.get(entry.history.id) is entry:
                    await self._close(entry, "expired")
        return len(idle)

    async def _close(self, entry: _OpenEpisode, event: str) -> None:
        del self._open[entry.history.id]
        self._closed[entry.history.id] = event
        if len(self._closed) > _REMEMBERED_IDS:
            self._closed.popitem(last=False)
        self._metrics.episodes.labels(event).inc()
        await self._pool.release(entry.history)

    def _entry(self, instance_id: str | None) -> _OpenEpisode:
        if instance_id is None:
            raise RequestRefused("instance_id is missing.")
        entry = self._open.get(instance_id)
        if entry is None:
            event = self._closed.get(instance_id)
            state = f"was {event}" if event else "is unknown"
            raise RequestRefused(f"instance_id {instance_id!r} {state}: create an episode first.", code=NO_EPISODE)
        return entry

    def _require_open(self, entry: _OpenEpisode) -> None:
        name = entry.history.id
        if self._open.get(name) is not entry:
            self._entry(name)
            raise RequestRefused(f"instance_id {name!r} was closed while the request waited.", code=NO_EPISODE)


async def expire_idle_episodes(episodes: Episodes, idle_seconds: float) -> None:
    """Close idle episodes from time to time; a failed round does not end the loop."""
    while True:
        await asyncio.sleep(min(30.0, idle_seconds / 2))
        try:
            closed = await episodes.close_idle()
        except (RuntimeError, OSError):
            _LOG.exception("closing idle episodes failed; the next round tries again")
            continue
        if closed:
            _LOG.info("closed %d idle episodes", closed)
