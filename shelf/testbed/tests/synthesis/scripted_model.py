"""An OpenAI-compatible endpoint on loopback that answers as a function of the test says."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.support.loopback import Loopback

MODEL = "scripted"


@dataclass(frozen=True)
class Asked:
    """A request: its X-Request-Id, its body, and how often this id was asked before."""

    name: str
    body: dict
    before: int

    @property
    def messages(self) -> list[dict[str, str]]:
        """The dialogue."""
        return self.body["messages"]

    @property
    def text(self) -> str:
        """All of its messages."""
        return "\n".join(message["content"] for message in self.messages)


@dataclass
class Endpoint:
    """A running endpoint. answered: how often each request was answered with 200, by its id."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)


Script = Callable[[Asked], "str | int | float"]
"""The text of the answer, the status of a refusal, or the seconds for which nothing is answered."""


@contextmanager
def answering(script: Script) -> Iterator[Endpoint]:
    """An endpoint that answers with the script."""
    lock, seen = threading.Lock(), Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._send(200, {"data": [{"id": MODEL}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            name = self.headers["x-request-id"]
            with lock:
                asked = Asked(name, body, seen[name])
                seen[name] += 1
                endpoint.asked.append(asked)
            answer = script(asked)
            if isinstance(answer, float):
                time.sleep(answer)
                return
            if isinstance(answer, int):
                self._send(answer, {"error": {"message": "scripted"}})
                return
            with lock:
                endpoint.answered[name] += 1
            message = {"role": "assistant", "content": answer}
            usage = {"prompt_tokens": len(asked.text) // 4, "completion_tokens": len(answer) // 4 + 1}
            self._send(200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

        def _send(self, status, value):
            text = json.dumps(value).encode()
            self.send_response(status)
            for header, said in (("retry-after-ms", "5"), ("content-length", str(len(text)))):
                self.send_header(header, said)
            self.end_headers()
            try:
                self.wfile.write(text)
            except BrokenPipeError:  # the client was killed
                return

        def log_message(self, *_):
            return None

    with Loopback(Handler) as server:
        endpoint = Endpoint(f"{server.url}/v1")
        yield endpoint
