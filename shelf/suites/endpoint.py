"""A model at an OpenAI-compatible endpoint: whether it can be asked, before a suite starts and between attempts."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from seal.system.net import is_loopback
from shelf.suites.bfcl.serving import served_checkpoint, status
from shelf.suites.chat import OPENAI_KEY, ChatClient, EndpointRefused

POLL_S = 1.0
CHECK_TIMEOUT_S = 10.0
TOOL_PARSER = "--enable-auto-tool-choice --tool-call-parser hermes"
"""Options that vLLM needs to read calls out of a Qwen model's text; it only does so for requests that offer tools."""


@dataclass(frozen=True)
class Served:
    """Where a model answers, its name there, the environment variable that holds the key, and how it samples if known.

    lists_models: the tool waits without end unless ``/models`` answers anyone with 200.
    """

    base_url: str
    model: str
    key_variable: str = OPENAI_KEY
    lists_models: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key, or a placeholder: a local server needs none."""
        return os.environ.get(self.key_variable) or "none"

    def require(self) -> None:
        """EndpointRefused if nothing answers, if the endpoint lists models without ours, or if it must list them."""
        asyncio.run(self._check())
        if self.lists_models and status(self._models) != httpx.codes.OK:
            raise EndpointRefused(
                f"{self._models} must answer 200, also without a key: the official tool waits for that."
            )

    def answers_within(self, wait_s: float) -> bool:
        """Return whether the endpoint answers without an error of its own, at the latest after wait_s seconds."""
        deadline = time.monotonic() + wait_s
        while status(self._models) >= httpx.codes.INTERNAL_SERVER_ERROR:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    @property
    def _models(self) -> str:
        return f"{self.base_url.rstrip('/')}/models"

    async def _check(self) -> None:
        client = ChatClient(self.base_url, self.model, CHECK_TIMEOUT_S, attempts=1, key_variable=self.key_variable)
        try:
            await client.check()
        finally:
            await client.close()


def without_proxy(*urls: str) -> dict[str, str]:
    """Variables that keep requests to this machine's own addresses away from the environment's proxies."""
    hosts = {host for url in urls if is_loopback(host := urlsplit(url).hostname or "")}
    known = {each for each in os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")).split(",") if each}
    value = ",".join(sorted(known | hosts))
    return {"NO_PROXY": value, "no_proxy": value} if hosts else {}


@dataclass(frozen=True)
class EvaluatedModel:
    """The model to evaluate: at an endpoint, or an HF folder that vLLM serves here.

    name: at the endpoint, or the folder's name. serve_args: further options of ``vllm serve``.
    """

    name: str
    base_url: str | None = None
    checkpoint: Path | None = None
    serve_args: str = ""

    @classmethod
    def named(cls, name: str | None, base_url: str | None, checkpoint: Path | None, serve_args: str) -> Self:
        """The model that a command line names; ValueError if it names none or two."""
        if bool(base_url) == bool(checkpoint):
            raise ValueError("Give either --base-url (with --model) or --checkpoint.")
        if base_url and not name:
            raise ValueError("--base-url needs --model: the name under which the endpoint serves the model.")
        return cls(name or (checkpoint.resolve().name if checkpoint else ""), base_url, checkpoint, serve_args)

    @contextmanager
    def served(self, log: Path) -> Iterator[str]:
        """The address of the model, as long as the block lasts.

        The server of a folder reads tool calls out of answers to requests that offer tools.
        ValueError if the folder cannot be served.
        """
        if self.base_url or self.checkpoint is None:
            yield self.base_url or ""
            return
        arguments = self.serve_args if "--tool-call-parser" in self.serve_args else f"{TOOL_PARSER} {self.serve_args}"
        with served_checkpoint(self.checkpoint, self.name, arguments, log) as url:
            yield url
