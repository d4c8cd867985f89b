"""The endpoint of a user in a test: by the rules of exp/user/rules.py, or with a fault."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from exp.user.rules import Rules, said
from tests.support.loopback import Loopback

Answer = Callable[[Mapping[str, Any]], Any]
"""From a request's body: a text, a message, or (HTTP status, value)."""


@contextmanager
def user_server(answer: Answer | None = None, seconds: float = 0.0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The base URL of a user's endpoint, and the bodies of its requests."""
    asked: list[dict[str, Any]] = []

    class Handler(Rules):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            time.sleep(seconds)
            value = answer(body) if answer else said(body["messages"], body["seed"])
            if isinstance(value, tuple):
                return self.answer(*value)
            message = {"role": "assistant", "content": value} if isinstance(value, str) else value
            usage = {"prompt_tokens": 20, "completion_tokens": 3}
            return self.answer(200, {"choices": [{"message": message}], "usage": usage})

    with Loopback(Handler) as server:
        yield f"{server.url}/v1", asked
