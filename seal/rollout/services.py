"""The environment services of a run: which one an episode is played on.

An episode's key draws one of them (rendezvous hashing), so that the load is
even and the loss of a service moves only its own episodes. A service that
failed is left out until it says again that it is well.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seal.rollout.env_client import EnvironmentClient, EnvironmentFault
from seal.settings import EnvServiceSettings

logger = logging.getLogger(__name__)

PROBE_EVERY_S = 1.0
"""How often a service that failed is asked after its health while no other one is up."""
REPROBE_EVERY_S = 15.0
"""The same while another one is up, so that a hanging service holds up few episodes."""


def addresses(env_url: str | Iterable[str]) -> tuple[str, ...]:
    """`env_service.env_url`, one address or a list of them, as a tuple."""
    return (env_url,) if isinstance(env_url, str) else tuple(env_url)


def ranked(key: str, urls: Iterable[str]) -> list[str]:
    """The addresses in the order in which an episode tries them; each key has its own, the same in every process."""
    return sorted(urls, key=lambda url: hashlib.blake2b(f"{url} {key}".encode(), digest_size=8).digest(), reverse=True)


@dataclass
class _Place:
    client: EnvironmentClient
    up: bool = True
    asked: float = 0.0


class Services:
    """The services of one process, and which of them failed last.

    restart_wait_s: how long to wait while none is up, before a fault says so.
    """

    def __init__(self, clients: Sequence[EnvironmentClient], restart_wait_s: float):
        self._places = {client.url: _Place(client) for client in clients}
        self._restart_wait_s = restart_wait_s

    async def choose(self, key: str) -> EnvironmentClient:
        """The first service in the key's order that is up; waits for one when all are down."""
        order = [self._places[url] for url in ranked(key, self._places)]
        deadline = time.monotonic() + self._restart_wait_s
        while True:
            for place in order:
                if place.up or await self._is_back(place):
                    return place.client
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    "unreachable",
                    f"no environment service ({', '.join(self._places)}) was well again within "
                    f"env_service.restart_wait_s={self._restart_wait_s:g}",
                )
            await asyncio.sleep(PROBE_EVERY_S)

    def failed(self, client: EnvironmentClient, fault: EnvironmentFault) -> None:
        """Leave a service out until it answers again."""
        place = self._places[client.url]
        if place.up:
            logger.warning("environment service left out until it answers again: %s", fault)
        place.up, place.asked = False, time.monotonic()

    async def close(self) -> None:
        """Close all connections."""
        for place in self._places.values():
            await place.client.close()

    async def _is_back(self, place: _Place) -> bool:
        pause = REPROBE_EVERY_S if any(other.up for other in self._places.values()) else PROBE_EVERY_S
        if time.monotonic() - place.asked < pause:
            return False
        place.asked = time.monotonic()  # before the answer, so that one episode asks for all
        if not await place.client.healthy():
            return False
        if not place.up:
            logger.warning("environment service %s answers again", place.client.url)
        place.up = True
        return True


@functools.cache
def shared_services(settings: EnvServiceSettings) -> Services:
    """The process's services; the agent loops of one worker share connections and what they know of failures."""
    clients = [
        EnvironmentClient(url, settings.env_type, settings.timeout_s, settings.attempts)
        for url in addresses(settings.env_url)
    ]
    return Services(clients, settings.restart_wait_s)
