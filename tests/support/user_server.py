"""The endpoint of a user in a test: by the rules of exp/user/rules.py, or with a fault."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from exp.user.rules import Rules, said
from tests.support.loopback import Loopback

Answer = Callable[[Mapping[str, Any]], Any]
"""From a request's body: a text, a message, or (HTTP status, value), perhaps with headers as the third."""


def broken_off(reason: str, tokens: int) -> dict[str, Any]:
    """An answer that ends in the middle of a sentence."""
    choice = {"message": {"role": "assistant", "content": "I want milk, but not"}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": tokens}}


MILK = '<tool_call>{"name":"add","arguments":{"item":"milk"}}</tool_call>'
"""A call of the policy's tool."""
FAULTS: dict[str, tuple[str, Answer]] = {
    "dies": ("user", lambda body: (500, {"error": "the model is gone"})),
    "refuses": ("user", lambda body: (401, {"error": "no key"})),
    "says nothing": ("user", lambda body: ""),
    "floods": ("user", lambda body: "milk " * 200_000),
    "sends no JSON message": ("user", lambda body: (200, {"choices": []})),
    "is cut": ("user", lambda body: (200, broken_off("length", body["max_tokens"]))),
    "is filtered": ("user", lambda body: (200, broken_off("content_filter", 3))),
    "another role": ("user_role", lambda body: {"role": "user", "content": "I want milk."}),
    "the policy's part": ("user_role", lambda body: MILK),
    "a helpful assistant": ("user_role", lambda body: "I'm always happy to help. What can I do for you today?"),
    "thinks aloud": ("user_role", lambda body: "<think>I want milk but must not say so."),
    "a tool it lacks": (
        "user_role",
        lambda body: {"content": "", "tool_calls": [{"function": {"name": "add", "arguments": '{"item":"milk"}'}}]},
    ),
    "ends at once": ("user_role", lambda body: "###STOP###"),
}
"""The cause that a rollout names, and what the endpoint answers."""


@contextmanager
def user_server(answer: Answer | None = None, seconds: float = 0.0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The base URL of a user's endpoint, and the bodies of its requests."""
    asked: list[dict[str, Any]] = []

    class Handler(Rules):
        def end_headers(self) -> None:
            for header in getattr(self, "more", {}).items():
                self.send_header(*header)
            super().end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.partition("?")[0] != "/v1/chat/completions":
                return self.answer(404, {})
            asked.append(body)
            time.sleep(seconds)
            value = answer(body) if answer else said(body["messages"], body["seed"])
            if isinstance(value, tuple):
                status, content, *headers = value
                self.more = dict(*headers)
                return self.answer(status, content)
            message = {"role": "assistant", "content": value} if isinstance(value, str) else value
            usage = {"prompt_tokens": 20, "completion_tokens": 3}
            return self.answer(200, {"choices": [{"message": message}], "usage": usage})

    with Loopback(Handler) as server:
        yield f"{server.url}/v1", asked
