"""The pool of workers: sticky episodes, and rebuilding them after a worker was replaced.

An episode stays with the worker that opened it. If that worker's process is replaced, each of its episodes is rebuilt
from its history when it is next needed, and the waiting requests are sent again: clients notice only a delay.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from env_service.connection import WorkerGone
from env_service.protocol import DEFAULT_ENVIRONMENT, ENVIRONMENT_FAILED, EPISODE_BROKEN, RequestRefused
from env_service.settings import ServerSettings
from env_service.worker import START_SECONDS, EpisodeHistory, Worker

_LOG = logging.getLogger(__name__)
_WATCH_SECONDS = 0.05
_MAX_RESTARTS_PER_REQUEST = 8


class WorkerPool:
    """A fixed number of workers."""

    def __init__(self, settings: ServerSettings) -> None:
        self._workers = [Worker(settings) for _ in range(settings.worker_count)]
        self._placed: dict[EpisodeHistory, Worker] = {}
        self._deadline_watch: asyncio.Task[None] | None = None

    @property
    def restarts(self) -> int:
        """The number of processes that were replaced."""
        return sum(worker.restarts for worker in self._workers)

    @property
    def enforces_deadlines(self) -> bool:
        """True if the watch over deadlines runs."""
        return self._deadline_watch is not None and not self._deadline_watch.done()

    async def start(self) -> None:
        """Start every worker and the watch over deadlines; RuntimeError or RequestRefused says why one cannot start."""
        own = {"env_type": DEFAULT_ENVIRONMENT}
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(*(worker.start() for worker in self._workers))
                await asyncio.gather(*(worker.request("version", None, own) for worker in self._workers))
        except (WorkerGone, OSError) as error:
            reason = str(error) or f"one ended, or did not answer within {START_SECONDS:g} s; it may say why above"
            raise RuntimeError(f"The workers cannot be started: {reason}.") from error
        self._deadline_watch = asyncio.create_task(self._enforce_deadlines())

    async def stop(self) -> None:
        if self._deadline_watch is not None:
            self._deadline_watch.cancel()
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def query(self, op: str, arguments: Mapping[str, Any]) -> bytes:
        """Send a request that concerns no episode to any worker."""
        worker = min(self._workers, key=lambda worker: worker.busy)
        for _ in range(_MAX_RESTARTS_PER_REQUEST):
            generation = worker.generation
            try:
                return await worker.request(op, None, arguments)
            except WorkerGone:
                await worker.replace(generation)
        raise RequestRefused("The service's workers end as soon as they start: see its log.", 503)

    async def load_task_file(self, path: str) -> bytes:
        """Make every worker, and its later replacements, serve a file's tasks; RequestRefused for a bad file."""
        answer = await self.query("load_task_file", {"path": path})
        others = [worker for worker in self._workers if path not in worker.task_files]
        for worker in others:
            worker.task_files.append(path)
        try:
            for worker in self._workers:  # all of them: another upload of the same file may still be under way
                generation = worker.generation
                try:
                    await worker.request("load_task_file", None, {"path": path})
                except WorkerGone:
                    await worker.replace(generation)
        except RequestRefused:
            for worker in others:  # once the file is gone, a replacement could not load it and would not start
                worker.task_files.remove(path)
            raise
        return answer

    async def create(self, history: EpisodeHistory) -> bytes:
        """Open an episode on the worker with the fewest episodes."""
        load = Counter(self._placed.values())
        self._placed[history] = min(self._workers, key=load.__getitem__)
        try:
            return await self.send("create", history, history.opening())
        except BaseException:
            del self._placed[history]
            raise

    async def step(self, history: EpisodeHistory, content: str, truncated: bool, role: str) -> bytes:
        """Pass on one message and keep it for a rebuild; a refused one leaves nothing that could affect later ones."""
        broken = list(history.broken)
        try:
            answer = await self.send("step", history, {"content": content, "truncated": truncated, "role": role})
        except RequestRefused:
            history.broken[:] = broken
            raise
        history.steps.append((content, truncated, role))
        return answer

    async def release(self, history: EpisodeHistory) -> None:
        worker = self._placed.pop(history)
        if history.generation != worker.generation:
            return
        try:
            await worker.request("release", history, {})
        except WorkerGone:
            _LOG.info("the worker of episode %s ended before its release", history.id)

    async def send(self, op: str, history: EpisodeHistory, arguments: Mapping[str, Any]) -> bytes:
        """Send a request about an episode; after its worker died, rebuild the episode and send the request again.

        Deaths caused by other episodes do not count: each of those has at most a few calls that break.
        """
        worker, deaths = self._placed[history], 0
        while deaths < _MAX_RESTARTS_PER_REQUEST:
            if history.lost:
                raise RequestRefused(history.lost, code=EPISODE_BROKEN)
            generation = worker.generation
            try:
                if op != "create" and history.generation != generation:
                    await worker.request("rebuild", history, {**history.opening(), "steps": history.steps})
                    history.generation = generation
                answer = await worker.request(op, history, arguments)
                history.generation = generation
                return answer
            except RequestRefused as refused:
                if refused.code == ENVIRONMENT_FAILED and op != "create":
                    history.lost = str(refused)  # the episode's state is now unknown
                raise
            except WorkerGone:
                await worker.replace(generation)
                deaths += worker.culprit is None or worker.culprit is history
        history.lost = "The episode was closed: its worker ended again and again."
        raise RequestRefused(history.lost, code=EPISODE_BROKEN)

    async def _enforce_deadlines(self) -> None:
        """Kill workers that are past a deadline; the requests that wait for them start the replacements."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for worker in self._workers:
                try:
                    worker.kill_if_overdue()
                except OSError:
                    _LOG.exception("a look at a worker's deadline failed; the next one follows")
