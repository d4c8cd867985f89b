"""The server: one listening socket, and uvicorn on it until it is interrupted."""

from __future__ import annotations

import logging
import socket

import uvicorn

from env_service.app import create_app
from env_service.settings import ServerSettings, variable

_LOG = logging.getLogger(__name__)
_BACKLOG = 2048


def listen(settings: ServerSettings) -> socket.socket:
    """Bind the address; RuntimeError says what to change if that fails."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise RuntimeError(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror}): stop the program that uses it, or "
            f"set {variable('host')} and {variable('port')}."
        ) from None
    return listener


def serve(settings: ServerSettings, listener: socket.socket) -> None:
    """Serve on a bound socket until interrupted."""
    config = uvicorn.Config(
        create_app(settings),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
    )
    host, port = listener.getsockname()[:2]
    _LOG.info("listening on http://%s:%d with %d workers", host, port, settings.worker_count)
    uvicorn.Server(config).run(sockets=[listener])
