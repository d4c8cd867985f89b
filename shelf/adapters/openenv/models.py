"""The types that client and server exchange: OpenEnv's types with the fields of a dialogue."""

from typing import Any

from openenv.core.env_server.types import Action, Observation, State
from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    """One message of a dialogue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    content: str


class SealAction(Action):
    """One assistant message, exactly as the policy wrote it."""

    message: str = Field(description="The text of the assistant message, tool calls included")
    truncated: bool = Field(default=False, description="Whether a length limit cut the message")


class SealObservation(Observation):
    """The reply to an action: messages to append to the dialogue. The reward is 1 for a passed task, at the end."""

    messages: list[Message] = Field(default=[], description="New messages; after reset the system and user message")
    task_id: str = Field(default="", description="The task that is played")
    turn: int = Field(default=0, description="Index of the user turn")
    stop: str | None = Field(default=None, description="Why the episode ended: answered, step_limit, length, ...")
    evaluation: dict[str, Any] | None = Field(default=None, description="Verdict, figures and labels, at the end")


class SealState(State):
    """The current state of the episode."""

    task_id: str | None = None
    split: str | None = None
    done: bool = False
