"""A model behind an OpenAI-compatible endpoint on loopback that writes what a script says."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Opening = tuple[str, str]
"""System and first user message of a task: how a request is recognised."""


@contextmanager
def scripted_model(scripts: Mapping[Opening, Sequence[str]], finish: str = "stop") -> Iterator[str]:
    """Serve the scripts; yields the base URL. A dialogue's n-th answer is the n-th message of its task's script."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            system, user = (message["content"] for message in request["messages"][:2])
            said = sum(message["role"] == "assistant" for message in request["messages"])
            script = scripts[system, user]
            message = {"role": "assistant", "content": script[said]}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            answer = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"]}
            body = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
