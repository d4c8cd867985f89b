"""The environment services of a run: which one an episode is played on.

An episode's key selects one of them (rendezvous hashing), so that the load is even and the loss of a service moves only
its own episodes. A service that failed is not used until it reports that it is healthy again.
"""

import asyncio
import functools
import hashlib
import logging
import time
from collections.abc import Iterable, Sequence

from env_service.client import AsyncServiceClient, ServiceError
from seal.settings import EnvServiceSettings

logger = logging.getLogger(__name__)

PROBE_EVERY_S = 1.0
"""The interval between probes of a failed service while no other one is up."""
REPROBE_EVERY_S = 15.0
"""The interval while another one is up, so that a hanging service delays few episodes."""


def addresses(env_url: str | Iterable[str]) -> tuple[str, ...]:
    """`env_service.env_url`, one address or a list of them, as a tuple."""
    return (env_url,) if isinstance(env_url, str) else tuple(env_url)


def rank(key: str, urls: Iterable[str]) -> list[str]:
    """The addresses in the order in which an episode tries them; each key has its own, the same in every process."""
    return sorted(urls, key=lambda url: hashlib.blake2b(f"{url} {key}".encode(), digest_size=8).digest(), reverse=True)


class Services:
    """The services of one process, and which of them are up; while none is, a wait lasts `restart_wait_s` at most."""

    def __init__(self, clients: Sequence[AsyncServiceClient], restart_wait_s: float):
        self._clients = {client.url: client for client in clients}
        self._down: dict[str, float] = {}  # address to the time of the last failure or probe
        self._restart_wait_s = restart_wait_s

    async def choose(self, key: str) -> AsyncServiceClient:
        """The first service in the key's order that is up; waits for one if all are down."""
        order = rank(key, self._clients)
        deadline = time.monotonic() + self._restart_wait_s
        while True:
            for url in order:
                if url not in self._down or await self._is_back(url):
                    return self._clients[url]
            if time.monotonic() > deadline:
                raise ServiceError(
                    "environment_unreachable",
                    f"no environment service ({', '.join(self._clients)}) was healthy again within "
                    f"env_service.restart_wait_s={self._restart_wait_s:g}",
                )
            await asyncio.sleep(PROBE_EVERY_S)

    def failed(self, client: AsyncServiceClient, fault: ServiceError) -> None:
        """Stop using a service until it answers again."""
        if client.url not in self._down:
            logger.warning("environment service not used until it answers again: %s", fault)
        self._down[client.url] = time.monotonic()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def _is_back(self, url: str) -> bool:
        pause = REPROBE_EVERY_S if len(self._down) < len(self._clients) else PROBE_EVERY_S
        if time.monotonic() - self._down[url] < pause:
            return False
        self._down[url] = time.monotonic()  # before the answer, so that one episode probes for all
        if not await self._clients[url].healthy():
            return False
        if self._down.pop(url, None) is not None:
            logger.warning("environment service %s answers again", url)
        return True


@functools.cache
def shared_services(settings: EnvServiceSettings) -> Services:
    """The process's services; the agent loops of one worker share connections and their knowledge of failures."""
    clients = [
        AsyncServiceClient(url, settings.env_type, deadline_s=settings.timeout_s, attempts=settings.attempts)
        for url in addresses(settings.env_url)
    ]
    return Services(clients, settings.restart_wait_s)
