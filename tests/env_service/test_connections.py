"""Connections on which nothing arrives, or from which nothing is taken, are closed; the others are not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from env_service.server import BoundedServer

TRANSFER_S = 0.5
SLOW_ANSWER_S = 1.5
LONG_ANSWER = 32 * 2**20
GET = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


class Impatient(BoundedServer):
    """The server of the service with less time."""

    transfer_s = TRANSFER_S


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the whole body; /slow takes its time, /long answers more than a socket holds."""
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(SLOW_ANSWER_S if scope["path"] == "/slow" else 0)
    body = b"x" * (LONG_ANSWER if scope["path"] == "/long" else 2)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The port of a server of `app`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Impatient(uvicorn.Config(app, http="httptools", lifespan="off", log_level="critical"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that the server still sends; TimeoutError if it does not close the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 5 * TRANSFER_S + 5)
    except ConnectionResetError:
        return b""


BODY = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
TOO_LITTLE = {
    "nothing": b"",
    "half a header": b"POST /a HTTP/1.1\r\nHo",
    "half a body": BODY + b"abc",
    "a line break after an answer": GET % b"a" + b"\r\n",
    "half a second request": GET % b"a" + BODY,
}


@pytest.mark.parametrize("sent", TOO_LITTLE.values(), ids=TOO_LITTLE)
def test_a_request_that_does_not_arrive_ends_its_connection(sent: bytes) -> None:
    async def scenario() -> int:
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            answers = await closed(reader)
            writer.close()
            return answers.count(b"200 OK")

    assert uvloop.run(scenario()) == sent.count(b"GET")


def test_an_answer_that_nobody_takes_ends_its_connection() -> None:
    async def scenario() -> int:
        async with served() as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(GET % b"long")
                await asyncio.sleep(3 * TRANSFER_S + 1)
                client.setblocking(False)
                taken = 0
                while part := await asyncio.get_running_loop().sock_recv(client, 2**20):
                    taken += len(part)
                return taken

    assert uvloop.run(scenario()) < LONG_ANSWER


def test_an_answer_may_take_its_time_behind_another() -> None:
    async def scenario() -> bytes:
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(3 * (GET % b"slow"))
            answers = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return answers

    assert uvloop.run(scenario()).count(b"200 OK") == 3
