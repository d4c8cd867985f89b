"""A small HTTP server that gives fixed answers: something that is not the environment service, or says that it is."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback import Loopback


@contextmanager
def answering(answers: Mapping[str, Any], otherwise: str | None = None, status: int = 200) -> Iterator[str]:
    """The address of a server that gives these answers by path, as JSON; 404 or `otherwise` for other paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            known = path in answers or otherwise is not None
            self.send_response(status if known else 404)
            self.end_headers()
            body = json.dumps(answers[path]) if path in answers else otherwise or ""
            self.wfile.write(body.encode())

        def log_message(self, *_):
            return None

    with Loopback(Handler) as server:
        yield server.url


def service_that_answers(**version: Any):
    """The address of something that says that it is a healthy environment service of this version."""
    return answering({"/version": {"service": "stub", **version}}, otherwise="OK")
