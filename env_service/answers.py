"""An environment's answers as typed dictionaries: the `data` of the HTTP protocol's answers.

A worker encodes them as they are; pydantic checks them at both ends of the wire (`protocol.py`, `host.py`).
"""

from collections.abc import Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from seal.method.diagnosis.evidence import TurnCounts, TurnEvidence
from seal.method.diagnosis.rules import Diagnosis

COMPLETED = "[CONVERSATION_COMPLETED]"
"""The content of the message that ends an episode."""


class Message(TypedDict):
    """One message of the environment; those of a step also have an empty list `tool_calls`, for the public client."""

    role: str
    content: str
    tool_calls: NotRequired[list[Any]]


class UserOpening(TypedDict):
    """What a language model that plays the user gets first: messages and tools, in the form of a request."""

    messages: list[dict[str, str]]
    tools: list[dict[str, Any]]


class Opening(TypedDict):
    """The answer to /create: the messages that start an episode, and what identifies it.

    info: at least task_id, category, data_hash, tool_prompt_mode, omega (the interface's version and digest, or null).
    user: if present, the caller sends the user's first message next; the policy must see none of this.
    """

    state: list[Message]
    info: dict[str, Any]
    user: NotRequired[UserOpening]


class StepInfo(TypedDict, total=False):
    """turn: number of the current user turn, from 0. stop: how the episode ended. error_class: of the first error."""

    turn: int
    stop: str | None
    error_class: str | None


class Step(TypedDict):
    """The answer to /step: what followed a message. user: what the user hears before the caller sends its message."""

    state: list[Message]
    reward: float
    is_terminated: bool
    info: StepInfo
    user: NotRequired[list[dict[str, str]]]


class Evaluation(TypedDict):
    """The answer to /evaluate. An environment may add its own keys.

    valid: whether the whole task met the verifier. labels, diagnosis: Z(tau), one for each user turn that took place.
    evidence: that of every turn of the task. progress: of the turns that need calls, the share that met the verifier.
    turns, calls, errors: counts. stop: how the last turn that was reached ended.
    """

    valid: bool
    labels: list[str]
    diagnosis: Sequence[Diagnosis]
    evidence: Sequence[TurnEvidence]
    progress: float
    turns: int
    calls: int
    errors: int
    stop: str
    progress_info: TurnCounts
