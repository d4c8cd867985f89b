"""The settings of the service: environment variables, which the options of `seal serve` override."""

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from env_service import PREFIX, variable
from seal.system.net import is_loopback


def _listed(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _locations(text: str) -> dict[str, str]:
    """Environments by name; ValueError for a malformed entry."""
    added = {}
    for entry in _listed(text):
        name, _, location = entry.partition("=")
        if not name or location.count(":") != 1:
            raise ValueError(f"{variable('environments')}: {entry!r} must look like name=package.module:Class.")
        added[name] = location
    return added


def _task_files(text: str) -> tuple[str, ...]:
    """Absolute paths; ValueError for a file that does not exist."""
    for name in _listed(text):
        if not Path(name).is_file():
            raise ValueError(f"{variable('task_files')}: there is no file {name}; make it with seal tasks synthesise.")
    return tuple(str(Path(name).resolve()) for name in _listed(text))


class ServerSettings(BaseSettings):
    """The address and the limits of the service."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on; an address that other machines can reach needs a token."""
    port: int = Field(8082, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    workers: int = Field(0, ge=0)
    """Worker processes; 0 starts one per core, at most 8."""
    token: str = ""
    """If set, every request except /healthz must send `Authorization: Bearer <token>`."""
    call_seconds: float = Field(5.0, gt=0)
    """Deadline of one tool call, in processor time of its worker."""
    request_seconds: float = Field(30.0, gt=0)
    """Deadline of everything else that a request does, in processor time of its worker."""
    memory_mb: int = Field(512, gt=0)
    """Megabytes that a worker may use beyond what it has at its start."""
    idle_seconds: float = Field(3600.0, gt=0)
    """Time after which an unused episode expires."""
    max_episodes: int = Field(4096, gt=0)
    """Episodes that may be open at once."""
    max_body_bytes: int = Field(4 * 2**20, gt=0)
    """Size limit of one request body, and of an episode's messages together."""
    delay_seconds: float = Field(0.0, ge=0)
    """For benchmarks: the median delay of the answer to a step (log-normal); 0 for none."""
    environments: Annotated[dict[str, str], NoDecode, BeforeValidator(_locations)] = Field({}, validate_default=False)
    """Further environments: name=package.module:Class, separated by commas."""
    task_files: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_task_files)] = Field((), validate_default=False)
    """Files of synthesised tasks to serve beside the benchmark's, separated by commas."""
    owner: str = ""
    """The process with which this service ends, in words; other runs do not use it. Empty if it runs independently."""

    @model_validator(mode="after")
    def _require_token(self) -> Self:
        if not is_loopback(self.host) and not self.token:
            raise ValueError(
                f"{variable('host')}={self.host} is reachable from outside: set {variable('token')}, or use 127.0.0.1."
            )
        return self

    @property
    def worker_count(self) -> int:
        return self.workers or min(8, os.cpu_count() or 1)


def read_settings(**options: Any) -> ServerSettings:
    """The given settings, and the others from the environment; ValueError names the wrong variable."""
    try:
        return ServerSettings(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        raise ValueError(str(first["ctx"]["error"]))
    name, requirement = variable(str(first["loc"][0])), first["msg"].removeprefix("Input should ")
    raise ValueError(f"{name} must {requirement}, got {first['input']!r}.")
