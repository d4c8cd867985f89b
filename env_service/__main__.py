"""Start the service: `python -m env_service`, settings from BFCL_* variables."""

from __future__ import annotations

import logging
import os
import socket
import sys

import uvicorn

from env_service.app import create_app
from env_service.settings import ServiceSettings
from seal.net import is_loopback


def listen(settings: ServiceSettings) -> socket.socket:
    """Bind the address; RuntimeError says what to change when that fails."""
    if not is_loopback(settings.host) and not settings.token:
        raise RuntimeError(f"BFCL_HOST={settings.host} is reachable from outside: set BFCL_TOKEN, or use 127.0.0.1.")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise RuntimeError(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror}): "
            "stop what uses it, or set BFCL_HOST and BFCL_PORT."
        ) from None
    return listener


def main() -> int:
    """Run until interrupted; 1 with one sentence on stderr when it cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = ServiceSettings.from_environment(os.environ)
        listener = listen(settings)
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
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
    logging.getLogger(__name__).info("listening on http://%s:%d with %d workers", host, port, settings.worker_count)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
