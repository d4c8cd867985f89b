"""Watches the processes of a run from outside: verl's weight sync and sampling would wait for ever for a dead one.

The training process asks every named Ray actor for a sign of life and each
rollout server for its engine's; the death of one ends the trainer within
seconds. An actor that is only busy answers late and is left alone: the step's
deadline is for those that hang.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

logger = logging.getLogger(__name__)

TRAINER = "seal_trainer"
"""The name under which the training process starts verl's task runner."""
QUEUE_NAMESPACE = "transfer_queue"
POLL_S = 1.0
GRACE_S = 5.0
"""A run that ends by itself stops its actors one after another and is over within this time."""

KINDS = {
    "vllm_server": "the rollout server",
    "agent_loop_worker": "the agent-loop worker",
    "reward_loop_worker": "the reward worker",
    "TransferQueue": "the data queue",
}
WAITING = "the trainer would wait for it for ever"


class Liveness:
    """A thread that ends the trainer when a process it depends on has died; `reason` then says which."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._actors: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="liveness", daemon=True)

    def __enter__(self) -> Liveness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=2 * POLL_S)

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                found = self._dead()
            except RayError as error:
                logger.warning("the processes of the run could not be looked at: %s", error)
                continue
            if found and not self._over.wait(GRACE_S):
                self.reason = found
                logger.error("%s", found)
                self._end_trainer()
                return

    def _dead(self) -> str | None:
        """What has died, if anything; every actor that was ever seen has one open question at a time."""
        if not ray.is_initialized():
            return None
        self._actors = {**_named_actors(), **self._actors}
        for name in self._actors.keys() - self._asked.keys():
            self._asked[name] = self._actors[name].__ray_call__.remote(_engine_failed)
        if not self._asked:
            return None
        answered, _ = ray.wait(list(self._asked.values()), num_returns=len(self._asked), timeout=0)
        for name in [name for name, question in self._asked.items() if question in answered]:
            try:
                if ray.get(self._asked.pop(name)):
                    return f"The engine of {_described(name)} has died; {WAITING}, so the run is ended."
            except RayActorError:
                return f"The process of {_described(name)} has died; {WAITING}, so the run is ended."
            except RayTaskError as error:
                logger.debug("%s cannot be asked: %s", name, error)
        return None

    def _end_trainer(self) -> None:
        try:
            ray.kill(ray.get_actor(TRAINER))
        except ValueError:
            logger.debug("the trainer is gone already")


def _engine_failed(actor: Any) -> bool:
    """Runs in the actor: whether it serves a vLLM engine that has died."""
    return bool(getattr(getattr(actor, "engine", None), "errored", False))


def _named_actors() -> dict[str, Any]:
    """This job's named actors and its data queue's; a cluster may run other jobs too."""
    ours = (ray.get_runtime_context().namespace, QUEUE_NAMESPACE)
    found = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if entry["name"] == TRAINER or entry["namespace"] not in ours:
            continue
        try:
            found[entry["name"]] = ray.get_actor(entry["name"], namespace=entry["namespace"])
        except ValueError:
            continue  # it ended between the two calls; when it was seen before, its open question tells
    return found


def _described(name: str) -> str:
    kind = next((text for part, text in KINDS.items() if part in name), "the training worker")
    return f"{kind} {name}"
