"""An HTTP server of a test, on the loopback interface."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self


class Loopback(ThreadingHTTPServer):
    """Answers on a free port while its `with` lasts.

    It says nothing when a client has gone, which may be in the middle of the next test.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        handler.disable_nagle_algorithm = True  # a body after its headers would wait 40 ms for an acknowledgement
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()  # a thread that serves a closed socket would take a whole core until the process ends
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
