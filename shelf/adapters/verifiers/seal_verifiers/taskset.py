"""The tasks of one split of the service."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

from env_service.client import ServiceClient
from env_service.local_service import address


class SealTasksetConfig(vf.TasksetConfig):
    """Which tasks to play, and how; `--env.taskset.*` on the command line."""

    base_url: str | None = None
    """Address of the environment service; by default SEAL_URL, else one is started here."""
    env_type: str = "bfcl"
    """The service's environment."""
    split: str = "train"
    """The service's split: train, val, a category, ..."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Further `params` of the service's /create, for example `{"tool_prompt_mode": "compact"}`."""


class SealData(vf.TaskData):
    """One task: its id, and how the service opens it."""

    id: str
    params: dict[str, Any] = Field(default_factory=dict)


class SealTask(vf.Task[SealData]):
    """A task without a prompt: the service speaks first, when the episode is opened."""

    @property
    def key(self) -> str:
        """The service's id of the task."""
        return self.data.id


class SealTaskset(vf.Taskset[SealTask, SealTasksetConfig]):
    """The tasks of one split, in the service's order."""

    def load(self) -> Iterator[SealTask]:
        """Ask the service for the ids; ServiceError if it is down or has no such environment or split."""
        config = self.config
        with ServiceClient(address(config.base_url), config.env_type) as client:
            names = client.tasks(config.split)
        params = {"split": config.split, **config.params}
        for name in names:
            yield SealTask(SealData(id=name, name=name, params=params), config.task)
