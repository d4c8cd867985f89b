"""Typed requests and answers of the HTTP protocol, shared by the service and its client.

The shapes are those of the public SEAL release, so that its client works unchanged; keys that only this service knows
are optional, and unknown keys are ignored. `instance_id` and `task_id` are optional here because the protocol answers
400 if they are missing, but 422 for a wrong shape.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from env_service import answers

PROTOCOL = 2
"""The version of the protocol, as /version gives it."""
DEFAULT_ENVIRONMENT = "bfcl"
"""The environment of a request that does not name one."""
NO_EPISODE, EPISODE_BROKEN = "no_episode", "episode_broken"
ENVIRONMENT_FAILED, USER_ROLE = "environment_failed", "user_role"
"""The codes of refusals (`Problem`)."""
Identifier = Annotated[str, Field(min_length=1, max_length=256)]


def first_error(error: ValidationError) -> str:
    """The first error in a body, and its place there."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg'].removeprefix('Value error, ')}"


class ProfileRequest(BaseModel):
    """/get_env_profile: params.split names a split."""

    env_type: str = DEFAULT_ENVIRONMENT
    params: dict[str, Any] = {}


class CreateRequest(BaseModel):
    """/create: params belong to the environment; without an instance_id the service picks one.

    Repeating a request with the same instance_id and create_id opens one episode, with one answer. refused_calls: in a
    replay, calls that exceeded a limit when first played and must not run again: (message, its call, reason), from 0.
    """

    env_type: str = DEFAULT_ENVIRONMENT
    task_id: Identifier | None = None
    instance_id: Identifier | None = None
    create_id: Identifier | None = None
    params: dict[str, Any] = {}
    refused_calls: list[tuple[int, int, str]] = []

    @field_validator("params")
    @classmethod
    def _require_finite(cls, params: dict[str, Any]) -> dict[str, Any]:
        if infinite := [key for key, value in params.items() if isinstance(value, float) and not math.isfinite(value)]:
            raise ValueError(f"{infinite[0]} is not a finite number")
        return params


class SaidMessage(BaseModel):
    """One message of the policy, or of the user if the caller sends the user's messages."""

    role: Literal["assistant", "user"]
    content: str


class StepRequest(BaseModel):
    """/step: a repeated request with the same step_id gets the same answer and acts once.

    truncated: a length limit cut the message. In training it ends the episode; evaluation reads the text as it is.
    """

    instance_id: Identifier | None = None
    messages: SaidMessage
    step_id: Identifier | None = None
    truncated: bool = False


class EvaluateRequest(BaseModel):
    """/evaluate: params.sparse asks for only the reward."""

    instance_id: Identifier | None = None
    params: dict[str, Any] = {}


class InstanceRequest(BaseModel):
    """/get_info and /release."""

    instance_id: Identifier | None = None


class TasksRequest(BaseModel):
    """/tasks: synthesised tasks to serve too, given as in the lines of a task file."""

    tasks: Annotated[list[dict[str, Any]], Field(min_length=1)]


Data = TypeVar("Data")


class Success(BaseModel, Generic[Data]):
    """An answer to a request that succeeded."""

    success: bool = True
    data: Data


class Verb(NamedTuple):
    """One POST verb: the models of its request and its answer."""

    request: type[BaseModel]
    answer: type[Success[Any]]


VERBS: Mapping[str, Verb] = {
    "get_env_profile": Verb(ProfileRequest, Success[list[str]]),  # the task ids of the split
    "create": Verb(CreateRequest, Success[answers.Opening]),
    "step": Verb(StepRequest, Success[answers.Step]),
    "evaluate": Verb(EvaluateRequest, Success[float | dict[str, Any]]),  # a float if sparse
    "get_info": Verb(InstanceRequest, Success[str]),
    "tasks": Verb(TasksRequest, Success[int]),  # how many tasks were sent
    "release": Verb(InstanceRequest, Success[None]),  # success is false for an unknown id
}
"""The verbs by name."""


class Problem(BaseModel):
    """A refusal: what is wrong with a request, and how to fix it.

    code, if a program can act on it: no_episode (unknown, released, expired or lost in a restart: open it again),
    episode_broken (it exceeded the service's limits and would do so again), environment_failed (the environment raised
    an exception, which must not become a reward), user_role (no user would say this: the user's model is at fault).
    """

    detail: str
    code: str | None = None


class RequestRefused(ValueError):
    """The request cannot be answered: why, and how to fix it; status: of the HTTP answer. code: as in `Problem`."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class VersionAnswer(BaseModel):
    """Answer to /version: what results depend on; the environment adds its own versions.

    owner: the process with which the service ends, in words; empty if it runs independently.
    """

    model_config = ConfigDict(extra="allow")

    service: str
    protocol: int
    data_hash: str
    owner: str = ""
