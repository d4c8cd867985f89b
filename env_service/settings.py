"""Limits and addresses of the service, read from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

_VARIABLES = {
    "host": "BFCL_HOST",
    "port": "BFCL_PORT",
    "workers": "BFCL_WORKERS",
    "token": "BFCL_TOKEN",
    "call_seconds": "BFCL_CALL_SECONDS",
    "request_seconds": "BFCL_REQUEST_SECONDS",
    "memory_mb": "BFCL_MEMORY_MB",
    "idle_seconds": "BFCL_IDLE_SECONDS",
    "max_episodes": "BFCL_MAX_EPISODES",
    "max_body_bytes": "BFCL_MAX_BODY_BYTES",
    "environments": "BFCL_ENVIRONMENTS",
}


@dataclass(frozen=True)
class ServiceSettings:
    """How the service is reached and what it allows.

    call_seconds is the deadline of one tool call, request_seconds that of everything
    else a request does, memory_mb what a worker may take beyond its start, idle_seconds
    the time after which an unused episode expires.
    """

    host: str = "127.0.0.1"
    port: int = 8082
    workers: int = 0
    token: str = ""
    call_seconds: float = 5.0
    request_seconds: float = 30.0
    memory_mb: int = 512
    idle_seconds: float = 3600.0
    max_episodes: int = 4096
    max_body_bytes: int = 4 * 2**20
    environments: str = ""

    def __post_init__(self) -> None:
        """Check ranges; ValueError names the variable at fault."""
        for name in ("call_seconds", "request_seconds", "memory_mb", "idle_seconds", "max_episodes", "max_body_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{_VARIABLES[name]} must be greater than 0, got {getattr(self, name)}.")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"BFCL_PORT must lie in 0..65535, got {self.port}.")
        self.added_environments()
        if self.workers < 0:
            raise ValueError(f"BFCL_WORKERS must be 0 (choose) or more, got {self.workers}.")

    @property
    def worker_count(self) -> int:
        """Worker processes: as asked, or one a core and at most 8."""
        return self.workers or min(8, os.cpu_count() or 1)

    def added_environments(self) -> dict[str, str]:
        """`environments` as name to location; ValueError for an entry of another shape."""
        added = {}
        for entry in filter(None, self.environments.split(",")):
            name, _, location = entry.strip().partition("=")
            if not name or location.count(":") != 1:
                raise ValueError(f"BFCL_ENVIRONMENTS: {entry!r} must look like name=package.module:Class.")
            added[name] = location
        return added

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ServiceSettings:
        """Read BFCL_* variables; ValueError names the one that is no number."""
        values: dict[str, Any] = {}
        for item in fields(cls):
            variable = _VARIABLES[item.name]
            text = environment.get(variable)
            if not text:
                continue
            kind = type(item.default)
            try:
                values[item.name] = kind(text)
            except ValueError:
                raise ValueError(f"{variable} must be a number, got {text!r}.") from None
        return cls(**values)
