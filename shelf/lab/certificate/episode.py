"""One episode played again in this process, from what the policy said."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import orjson

from env_service.encoding import encode
from env_service.environments.base import Guard, Result
from env_service.environments.registry import get_environment
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.episode import ROLES

_BROKEN = "Error during execution: "

UNPLAYABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    TimeoutError,
)
"""What a record that does not fit the environment can make of a replay."""


class RecordedLimits(Guard):
    """Refuses the calls that exceeded a limit when the episode was played, as its evidence has them."""

    def __init__(self, evidence: Sequence[Mapping[str, Any]], enforces: bool) -> None:
        self._overdue: list[dict[int, str]] = []
        for action in (action for turn in evidence for action in turn["actions"]):
            guarded = [call for call in action["calls"] if call["available"] or not enforces]
            reasons = {n: call["result"] for n, call in enumerate(guarded) if call["error"] == "deadline"}
            self._overdue.append({n: str(reason).removeprefix(_BROKEN) for n, reason in reasons.items()})
        self._message = self._call = 0

    @property
    def overdue(self) -> int:
        """How many calls are refused."""
        return sum(map(len, self._overdue))

    def next_message(self) -> None:
        """The calls of the next message come now."""
        self._message, self._call = self._message + 1, 0

    def run(self, call: Callable[[], Result], refused: Callable[[str], Result]) -> Result:
        reasons = self._overdue[self._message] if self._message < len(self._overdue) else {}
        number, self._call = self._call, self._call + 1
        return refused(reasons[number]) if number in reasons else call()


class Again:
    """An episode that is played again.

    info: what the service says about it. turns: the user turn of each message of the
    policy. ended: whether the environment ended it.
    """

    def __init__(self, task_id: str, parameters: Mapping[str, Any], limits: RecordedLimits) -> None:
        """Open the episode of a task with the parameters of /create."""
        self._limits = limits
        self._episode = get_environment("bfcl").open(task_id, dict(parameters), limits)
        opening = self._episode.start()
        self.info: Mapping[str, Any] = opening["info"]
        self._messages = _messages(opening["state"])
        self.turns: list[int] = []
        self.ended = False

    @property
    def messages(self) -> list[dict[str, str]]:
        """The dialogue so far, as it is after the wire, which simplifies what JSON cannot hold."""
        return orjson.loads(encode(self._messages))

    def play(self, record: TrajectoryRecord) -> Self:
        """Say what the policy said, until the environment ends the episode."""
        turn = 0
        for number, content in enumerate(said(record)):
            if self.ended:
                break
            answer = self._episode.step(content, number in record.truncated)
            self._limits.next_message()
            self.turns.append(turn)
            self._messages += [{"role": "assistant", "content": content}, *_messages(answer["state"])]
            self.ended, turn = bool(answer["is_terminated"]), int(answer["info"]["turn"])
        return self

    def evaluate(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The environment's verdict, with the parameters of /evaluate."""
        return orjson.loads(encode(self._episode.evaluate(dict(parameters))))


def said(record: TrajectoryRecord) -> list[str]:
    """The policy's messages."""
    return [str(message["content"]) for message in record.messages if message["role"] == "assistant"]


def parameters(
    record: TrajectoryRecord, prompt_mode: str, training: bool, enforce_available_tools: bool | None, omega: Any
) -> dict[str, Any]:
    """The parameters of /create, as the agent loop sends them (the leak guard changes no answer)."""
    params: dict[str, Any] = {"split": record.split if training else "eval", "tool_prompt_mode": prompt_mode}
    if record.prefix > 0:
        params["turns"] = record.prefix
    if training:
        params["enforce_available_tools"] = enforce_available_tools
        if omega is not None:
            params["omega"] = omega
    return params


def ended_as(stop: str, evaluation: Mapping[str, Any]) -> str:
    """How a rollout ended whose budgets say `stop`, once the environment has judged it."""
    if evaluation["stop"] == "answered":
        return "completed"
    return evaluation["stop"] if stop == "completed" else stop


def _messages(state: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Messages of the environment, as the agent loop keeps them."""
    return [{"role": ROLES.get(each["role"], each["role"]), "content": each["content"]} for each in state]
