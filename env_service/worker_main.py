"""A worker process: reads requests from a socket and answers them one after the other.

`worker.py` starts it as `python -m env_service.worker_main SOCKET PAGE MEMORY_MB ENVIRONMENTS
TASK_FILE...`; the first two are inherited file descriptors. It ends when the socket closes.
"""

import json
import logging
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator

import orjson
import psutil

from env_service.channel import ActivityPage, FrameBuffer, frame
from env_service.environments import registry
from env_service.environments.base import Environment
from env_service.host import Host
from env_service.protocol import DEFAULT_ENVIRONMENT
from seal.system.processes import end_with_parent

_LOG = logging.getLogger(__name__)
OUT_OF_MEMORY = 70
"""Exit code of a worker whose call ran out of memory."""
_RECEIVE_BYTES = 2**18
_GATHER_SECONDS = 0.002
_DONE = object()


def limit_memory(megabytes: int) -> None:
    """Let the address space grow by `megabytes` from now on; beyond that, calls raise MemoryError."""
    limit = psutil.Process().memory_info().vms + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def prepared(environments: Iterable[Environment]) -> Iterator[None]:
    """Prepare environments piece by piece; one that cannot be prepared ends no worker: its requests are told why."""
    for environment in environments:
        try:
            yield from environment.prepare()
        except (Exception, SystemExit):  # an environment is third-party code and can raise anything
            _LOG.exception("the environment %s cannot be prepared", environment.name)


def _receive(connection: socket.socket, preparation: Iterator[None]) -> bytes:
    while not select.select((connection,), (), (), 0)[0]:
        if next(preparation, _DONE) is _DONE:
            break
    return connection.recv(_RECEIVE_BYTES)


def serve(connection: socket.socket, activity: ActivityPage, preparation: Iterator[None]) -> None:
    """Answer requests until the other side closes the connection; advance `preparation` while idle.

    Requests that arrive together are answered together. Answers are sent between requests:
    one waits for the others for two milliseconds plus the request then running, at most.
    If that request kills the process, the service sends the unanswered ones to the next.
    """
    host, received, answers, first = Host(activity), FrameBuffer(), [], 0.0
    while data := _receive(connection, preparation):
        for request in received.feed(data):
            activity.begin_request()
            op, episode, arguments = orjson.loads(request)
            header, body = host.handle(op, episode, arguments)
            activity.end_request()
            first = first if answers else time.monotonic()
            answers.append(frame(orjson.dumps(header), b"\n", body))
            if time.monotonic() - first > _GATHER_SECONDS:
                connection.sendall(b"".join(answers))
                answers = []
        if answers:
            connection.sendall(b"".join(answers))
            answers = []


def main(arguments: list[str]) -> None:
    socket_descriptor, page_descriptor, megabytes, environments, *task_files = arguments
    end_with_parent(signal.SIGKILL)  # even in the middle of a call
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service stops its workers itself
    locations = json.loads(environments)
    for name, location in locations.items():
        registry.register(name, location)
    with socket.socket(fileno=int(socket_descriptor)) as connection:
        try:  # environments of installed packages are imported on first use, because there may be many
            named = {name: registry.get_environment(name) for name in (DEFAULT_ENVIRONMENT, *locations)}
            for path in task_files:
                named[DEFAULT_ENVIRONMENT].load_task_file(path)
        except (OSError, ValueError) as error:  # the answer to the first request
            connection.recv(_RECEIVE_BYTES)
            connection.sendall(frame(orjson.dumps({"ok": False}), b"\n", str(error).encode("utf-8", "replace")))
            return
        limit_memory(int(megabytes))
        try:
            serve(connection, ActivityPage(int(page_descriptor)), prepared(named.values()))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # the page still names the call: the service notes it and starts another worker


if __name__ == "__main__":
    main(sys.argv[1:])
