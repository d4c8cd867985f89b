"""Starts the viewer and says where it is."""

import os
import secrets
import socket
from collections.abc import Sequence
from urllib.parse import quote

import uvicorn
from rich.console import Console

from env_service.server import BoundedServer
from seal.system.net import http_url, is_loopback
from shelf.view.app import make_app
from shelf.view.query import parse_key
from shelf.view.runs import ViewedRun

TOKEN = "SEAL_VIEW_TOKEN"
GRACE_S = 2
"""Seconds that a request may still take after Ctrl-C: a replay may be waiting for the benchmark to load."""


def serve(runs: Sequence[ViewedRun], host: str, port: int, key: str = "") -> None:
    """Serve until interrupted; the address is that of a trajectory's page if its key is given.

    OSError if the address cannot be used, ValueError for a text that is no key.
    """
    page = "#/trajectory?key={}:{}:{}".format(*parse_key(key)) if key else ""
    token = os.environ.get(TOKEN) or (None if is_loopback(host) else secrets.token_urlsafe(24))
    with _listening(host, port) as listener:
        config = uvicorn.Config(
            make_app(runs, host, token),
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        console = Console(soft_wrap=True, highlight=False)
        address = f"{http_url(host, listener.getsockname()[1])}/" + (f"?token={quote(token)}" if token else "") + page
        console.print(f"{len(runs)} run{'s' * (len(runs) != 1)} at {address}  (Ctrl-C ends the viewer)", markup=False)
        BoundedServer(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be used ({error.strerror}): choose another --port.") from error
