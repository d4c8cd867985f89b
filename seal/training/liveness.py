"""Watch the processes of a run: verl's weight sync and sampling would wait forever for a dead one.

A thread of the trainer's process pings every other named Ray actor and asks each rollout server about its engine;
the death of one ends the trainer within seconds. A busy actor only answers late and is left alone; the step's
deadline catches one that hangs. Ray imports an actor's modules in each process that calls it: the trainer has them.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import ray
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayError, RayTaskError

from seal.records.ending import Ending
from seal.training.cluster import QUEUE_NAMESPACE
from seal.training.ending import death

logger = logging.getLogger(__name__)

POLL_S = 1.0
GRACE_S = 5.0
"""A run that ends by itself stops its actors one by one and is over within this time."""


class Liveness:
    """A thread that calls `end`, once, with the ending that a process's death means; names: of actors seen, by id."""

    def __init__(self, end: Callable[[Ending], None]) -> None:
        self.names: dict[str, str] = {}
        self._end = end
        self._actors: dict[str, Any] = {}
        self._pings: dict[str, Any] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="liveness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=2 * POLL_S)

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_S):
            try:
                found = self._dead()
            except RayError as error:
                logger.warning("the processes of the run could not be checked: %s", error)
                continue
            if found and not self._stopped.wait(GRACE_S):
                logger.error("%s", found.sentence)
                self._end(found)
                return

    def _dead(self) -> Ending | None:
        """The ending after the death of a process, or None; every actor ever seen has one open ping at a time."""
        if not ray.is_initialized():
            return None
        self._actors = {**_named_actors(), **self._actors}
        self.names |= {actor._actor_id.hex(): name for name, actor in self._actors.items()}
        for name in self._actors.keys() - self._pings.keys():
            self._pings[name] = self._actors[name].__ray_call__.remote(_engine_failed)
        if not self._pings:
            return None
        answered, _ = ray.wait(list(self._pings.values()), num_returns=len(self._pings), timeout=0)
        for name in [name for name, ping in self._pings.items() if ping in answered]:
            try:
                if ray.get(self._pings.pop(name)):
                    return death(name, "engine")
            except OutOfMemoryError:
                return death(name, "memory")
            except (ActorUnavailableError, RayTaskError) as error:  # a broken connection, or its answer
                logger.debug("%s cannot be pinged: %s", name, error)
            except RayActorError:
                return death(name)
        return None


def _engine_failed(actor: Any) -> bool:
    """Return whether the actor serves a vLLM engine that has died; runs in the actor."""
    return bool(getattr(getattr(actor, "engine", None), "errored", False))


def _named_actors() -> dict[str, Any]:
    """Return the named actors of this job and of its data queue; a cluster may run other jobs too."""
    namespaces = (ray.get_runtime_context().namespace, QUEUE_NAMESPACE)
    found = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if entry["namespace"] in namespaces:
            with suppress(ValueError):  # it has just ended; if it was seen before, its open ping reports that
                found[entry["name"]] = ray.get_actor(entry["name"], namespace=entry["namespace"])
    return found
