"""A second environment: a counter. It shows that adding one touches no file of the service."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from env_service.environments.base import Guard, Json, Refusal


class CounterEpisode:
    """`+N` adds N, `done` ends; the reward is 1 when the goal was met.

    `grow N` takes N megabytes and `crash` ends the process, both in a guarded call;
    `spin` never returns and is not guarded; `stumble` raises KeyError, and `quit` SystemExit in a guarded call.
    """

    def __init__(self, goal: int, guard: Guard) -> None:
        self._goal, self._guard = goal, guard
        self._count, self._ended = 0, False

    def start(self) -> Json:
        return {"state": [{"role": "user", "content": f"Count to {self._goal}."}], "info": {"goal": self._goal}}

    def step(self, content: str, truncated: bool) -> Json:
        if self._ended:
            raise Refusal("The count has ended.")
        error = None
        if content.startswith("grow "):
            text = self._guard.run(lambda: str(len(bytearray(int(content[5:]) * 2**20))), lambda reason: reason)
            error = None if text.isdigit() else "deadline"
        elif content == "crash":
            text = self._guard.run(lambda: os.kill(os.getpid(), signal.SIGKILL), lambda reason: reason)
            error = "deadline"
        elif content == "spin":
            while True:
                pass
        elif content == "stumble":
            raise KeyError("stumble")
        elif content == "quit":
            text = self._guard.run(lambda: sys.exit(2), lambda reason: reason)
        elif content == "done" or truncated:
            self._ended, text = True, "ended"
        else:
            self._count += int(content)
            text = str(self._count)
        state = [{"role": "user", "content": text}]
        reward = float(self.evaluate({"sparse": True})) if self._ended else 0.0
        return {"state": state, "reward": reward, "is_terminated": self._ended, "info": {"error_class": error}}

    def evaluate(self, params: Mapping[str, Any]) -> Json | float:
        valid = self._ended and self._count == self._goal
        return float(valid) if params.get("sparse") else {"valid": valid, "count": self._count}

    def describe(self) -> str:
        return "+N: add N"


class CounterEnvironment:
    """Tasks are goals."""

    name = "counter"

    def task_ids(self, split: str) -> Sequence[str]:
        return ["3", "7"]

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> CounterEpisode:
        if not task_id.isdigit():
            raise ValueError(f"task_id {task_id!r} is not a number.")
        return CounterEpisode(int(task_id), guard)

    def prepare(self) -> Iterator[None]:
        return iter(())

    def version(self) -> Json:
        return {"data_hash": "none"}


class UnreadEnvironment(CounterEnvironment):
    """Cannot read its tasks."""

    name = "unread"

    def task_ids(self, split: str) -> Sequence[str]:
        raise OSError("the file of the tasks is gone")

    def prepare(self) -> Iterator[None]:
        yield
        self.task_ids("")
