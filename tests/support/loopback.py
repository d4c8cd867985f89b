"""An HTTP server of a test, on the loopback interface."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Loopback(ThreadingHTTPServer):
    """Listens on a free port; says nothing when a client has gone, which may be in the middle of the next test."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        handler.disable_nagle_algorithm = True  # a body after its headers would wait 40 ms for an acknowledgement
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
