"""Requests and answers of the HTTP protocol, typed.

The shapes are those of the public SEAL release, so that its client works
unchanged; keys that only this service knows are optional. Unknown keys are
ignored. `instance_id` and `task_id` may be missing here because the protocol
answers that with 400 and a wrong shape with 422.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

Identifier = Annotated[str, Field(min_length=1, max_length=256)]


class ProfileRequest(BaseModel):
    """/get_env_profile: params.split names a split."""

    env_type: str = "bfcl"
    params: dict[str, Any] = {}


class CreateRequest(BaseModel):
    """/create: params are the environment's own; without instance_id one is chosen.

    A request repeated with the same instance_id and create_id opens one episode and
    gets the same answer.
    """

    env_type: str = "bfcl"
    task_id: Identifier | None = None
    instance_id: Identifier | None = None
    create_id: Identifier | None = None
    params: dict[str, Any] = {}


class AssistantMessage(BaseModel):
    """What the policy said."""

    role: Literal["assistant"]
    content: str


class StepRequest(BaseModel):
    """/step: a request repeated with the same step_id is answered again and acts once.

    truncated says that the message was cut by a length limit: nothing in it is run
    and the episode ends.
    """

    instance_id: Identifier | None = None
    messages: AssistantMessage
    step_id: Identifier | None = None
    truncated: bool = False


class EvaluateRequest(BaseModel):
    """/evaluate: params.sparse asks for the reward alone."""

    instance_id: Identifier | None = None
    params: dict[str, Any] = {}


class InstanceRequest(BaseModel):
    """/get_info and /release."""

    instance_id: Identifier | None = None


class OpeningMessage(BaseModel):
    """One message of those that an episode starts with."""

    role: str
    content: str


class EnvironmentMessage(OpeningMessage):
    """One message of the environment; tool_calls is always empty and there for the public client."""

    tool_calls: list[Any] = []


class CreateData(BaseModel):
    """What an episode starts with."""

    state: list[OpeningMessage]
    info: dict[str, Any]


class StepData(BaseModel):
    """What an assistant message led to."""

    state: list[EnvironmentMessage]
    reward: float
    is_terminated: bool
    info: dict[str, Any]


class ProfileAnswer(BaseModel):
    """Ids of a split's tasks."""

    success: bool = True
    data: list[str]


class CreateAnswer(BaseModel):
    """Answer to /create."""

    success: bool = True
    data: CreateData


class StepAnswer(BaseModel):
    """Answer to /step."""

    success: bool = True
    data: StepData


class EvaluateAnswer(BaseModel):
    """Answer to /evaluate: a float when sparse."""

    success: bool = True
    data: float | dict[str, Any]


class InfoAnswer(BaseModel):
    """Answer to /get_info."""

    success: bool = True
    data: str


class ReleaseAnswer(BaseModel):
    """Answer to /release: success is false for an unknown id."""

    success: bool
    data: None = None


class Problem(BaseModel):
    """What is wrong with a request, and the mend.

    code is there where a program can act on it: no_episode (unknown, released, expired or
    lost with a service that was restarted: open it again), episode_broken (it broke the
    service's limits and would again).
    """

    detail: str
    code: str | None = None


class VersionAnswer(BaseModel):
    """What results depend on."""

    service: str
    protocol: int
    data_hash: str
    bfcl_eval: str
