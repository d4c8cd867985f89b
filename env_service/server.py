"""uvicorn's server, extended to close connections that stall, the oldest first when there are too many."""

import resource
import time
from typing import Any

import uvicorn

_DESCRIPTORS = 65536


class BoundedServer(uvicorn.Server):
    """A server that gives a request `transfer_s` seconds to arrive, and its answer as long to be received."""

    transfer_s = 60.0

    def __init__(self, config: uvicorn.Config) -> None:
        """Half of the descriptors are for connections; workers and files need the others."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = max(soft, min(hard, _DESCRIPTORS))
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
        self._most = config.limit_concurrency = descriptors // 2
        self._stalled: dict[tuple[Any, Any], float] = {}
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        """Look at the connections once a second."""
        if counter % 10 == 0:
            now, connections = time.monotonic(), self.server_state.connections
            waiting = [(connection, connection.cycle) for connection in connections if _stalls(connection)]
            self._stalled = {place: self._stalled.get(place, now) for place in waiting}
            too_many = len(connections) - self._most
            for number, place in enumerate(sorted(waiting, key=self._stalled.__getitem__)):
                if number < too_many or now - self._stalled[place] > self.transfer_s:
                    place[0].transport.abort()
        return await super().on_tick(counter)


def _stalls(connection: Any) -> bool:
    """Return whether the client must send or receive something before its request continues."""
    cycle = connection.cycle
    if connection.transport.get_write_buffer_size():
        return True
    if cycle is None or cycle.response_complete:  # with a keep-alive task, uvicorn itself closes the idle connection
        return connection.timeout_keep_alive_task is None
    return cycle.more_body and not connection.flow.read_paused
