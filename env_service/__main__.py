"""`python -m env_service`: the service, with environment variables as settings; `seal serve` takes options too."""

import asyncio
import logging
import signal
import socket
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import uvicorn
import uvloop

from env_service import BENCHMARK, MODULE, variable
from env_service.app import create_app
from env_service.episodes import Episodes
from env_service.pool import WorkerPool
from env_service.server import BoundedServer
from env_service.settings import ServerSettings, read_settings
from seal.system.net import http_url


def main(**options: Any) -> int:
    """Serve until interrupted; 1, with one sentence on stderr, if it cannot start. options override variables."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Only an ordinary end removes the folder of uploaded tasks; uvicorn handles the signal first, and raises it again.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        if find_spec(MODULE) is None:
            raise RuntimeError(f"The benchmark's package is not installed: pip install --no-deps {BENCHMARK}")
        settings = read_settings(**options)
        with suppress(KeyboardInterrupt):
            uvloop.run(_serve(settings, _listen(settings)))
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _serve(settings: ServerSettings, listener: socket.socket) -> None:
    """Serve while the workers run; RuntimeError or ValueError says why they cannot start."""
    pool = WorkerPool(settings)
    episodes = Episodes(settings, pool)
    config = uvicorn.Config(
        create_app(settings, pool, episodes),
        lifespan="off",
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
    )
    address = http_url(*listener.getsockname()[:2])
    try:
        await pool.start()
        logging.getLogger("env_service").info("listening on %s with %d workers", address, settings.worker_count)
        expiry = asyncio.create_task(episodes.expire())
        await BoundedServer(config).serve([listener])
        expiry.cancel()
    finally:
        await pool.stop()


def _listen(settings: ServerSettings) -> socket.socket:
    """Bind the address; RuntimeError says what to change if that fails."""
    family = socket.AF_INET6 if (wide := ":" in settings.host) else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048, dualstack_ipv6=wide)
    except OSError as error:
        reason = f"stop the program that uses it, or set {variable('host')} and {variable('port')}"
        raise RuntimeError(f"Cannot listen ({error.strerror}): {reason}.") from None


if __name__ == "__main__":
    sys.exit(main())
