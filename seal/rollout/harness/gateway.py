"""The gateway of one agent-loop worker: the policy, and each rollout's episode, over HTTP on loopback.

POST v1/chat/completions, messages, responses, GET v1/models    the policy, for its SDK; the key names the rollout
GET, POST KEY/task                         the episode as text: what it opened with; one message of the policy
POST KEY/task/fail                         the rollout ends as the policy's failure
KEY/task/mcp                               the episode's tools and its user, over MCP (streamable HTTP)
GET KEY/next                               the variables of the rollout that a command's process plays next
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import uvicorn
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from env_service.protocol import first_error
from env_service.server import BoundedServer
from seal.rollout.harness import mcp
from seal.rollout.harness.chains import OutOfBudget
from seal.rollout.harness.command import Place, Places
from seal.rollout.harness.dialect import anthropic, chat, responses
from seal.rollout.harness.dialect.wire import Asked
from seal.rollout.harness.messages import MODEL
from seal.rollout.harness.sessions import ENDED, Refused, Session, Sessions
from seal.rollout.harness.task import Address, Event, Text
from seal.rollout.speaker import SpeakerFault
from seal.system.net import LOOPBACK, http_url

MAX_BODY_BYTES = 8 * 2**20
IDLE_S = 60
"""Seconds that a connection stays open without a request: a tool or the user takes longer than uvicorn's five."""

Body = TypeVar("Body", bound=BaseModel)

_DIALECTS: dict[str, type[Asked]] = {
    "POST chat/completions": chat.Request,
    "POST messages": anthropic.Request,
    "POST responses": responses.Request,
}
_PATHS = [*(f"v1/{verb.split()[1]}" for verb in _DIALECTS), "v1/models", "KEY/task", "KEY/task/fail", "KEY/task/mcp"]


class _Server(BoundedServer):
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:
        """Leave the signals to the process that the gateway is a part of."""
        return contextlib.nullcontext()


class Gateway:
    """The ASGI application, and its sessions."""

    def __init__(self) -> None:
        listener = socket.create_server((LOOPBACK, 0), backlog=2048)
        # asyncio sets it only on sockets that name their protocol; without it, each answer waits 40 ms for an ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        named = {host.strip() for name in ("no_proxy", "NO_PROXY") for host in os.environ.get(name, "").split(",")}
        if "*" not in named:  # no proxy stands between a harness and its gateway
            hosts = ",".join(sorted({*named, LOOPBACK} - {""}))
            os.environ.update(no_proxy=hosts, NO_PROXY=hosts)
        self.sessions = Sessions(http_url(*listener.getsockname()[:2]))
        self.places = Places(self.sessions.url)
        self._mcp = mcp.manager()
        more = {"log_level": "warning", "access_log": False, "timeout_keep_alive": IDLE_S}
        config = uvicorn.Config(self, ws="none", lifespan="off", proxy_headers=False, **more)
        self._serving = asyncio.ensure_future(self._serve(_Server(config), listener))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        path = scope["path"][1:]
        key, _, name = path.partition("/")
        if path == "messages":  # Node's AI SDK reads ANTHROPIC_BASE_URL too, but adds no v1
            key, name = "v1", path
        if key == "v1":
            given = request.headers.get("authorization") or request.headers.get("x-api-key", "")
            key = given[7:] if given[:7].title() == "Bearer " else given  # a scheme has no case
        try:
            if name == "next" and (place := self.places.get(key)) is not None:
                return await _next(place, send)
            session = self._session(key)
            with session.request():
                answer = await self._answer(f"{request.method} {name}", session, request)
                await answer({**scope, mcp.TASK: session.task}, receive, send)
        except Refused as refused:
            body = {"message": str(refused), "type": "invalid_request_error", "param": None, "code": refused.code}
            own = anthropic.error(refused.status, str(refused), refused.code)
            told = own if name.startswith("messages") else {"error": body}
            await JSONResponse(told, refused.status)(scope, receive, send)

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            async with self._mcp.run():
                await server.serve(sockets=[listener])
        finally:
            await self.places.close()

    def _session(self, key: str) -> Session:
        if key not in self.sessions:
            raise Refused(401, "Send task.api_key, which is OPENAI_API_KEY and ANTHROPIC_API_KEY.", "invalid_api_key")
        if (session := self.sessions[key]) is None:
            raise Refused(*ENDED)
        return session

    async def _answer(self, verb: str, session: Session, request: Request) -> ASGIApp:
        task = session.task
        if verb == "POST task/mcp":
            return self._mcp.handle_request
        if verb.endswith(" task/mcp"):  # a stream for requests of its own, of which it has none
            raise Refused(405, "The server only answers: POST.")
        if verb in ("GET models", f"GET models/{MODEL}"):
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "seal"}
            return JSONResponse({"object": "list", "data": [model]} if verb == "GET models" else model)
        if verb in _DIALECTS:
            session.unanswered, gone = request, partial(_gone, request.receive)
            answer = await _complete(session, await _read(_DIALECTS[verb], request, session.kept), gone)
            if not await gone() and session.unanswered is request:  # a later one may still wait
                session.unanswered = None
            return answer
        if verb == "GET task":
            return JSONResponse({"messages": task.messages, "deadline_s": task.deadline_s})
        if verb == "POST task":
            messages = await task.say((await _read(Text, request)).text)
            return JSONResponse({"messages": messages, "ended": task.ended})
        if verb == "POST task/fail":
            await task.fail((await _read(Text, request)).text)
            return JSONResponse({"ended": True})
        session.unanswered = request
        raise Refused(404, f"The gateway has {', '.join(_PATHS)}.")


async def _next(place: Place, send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    with contextlib.suppress(asyncio.CancelledError):  # the worker ends
        async for piece in place.next():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> bool:
    """Whether a client has left since its request was read; `Request.is_disconnected` takes ten times as long."""
    waiting = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    left = waiting.done() and waiting.result()["type"] == "http.disconnect"
    waiting.cancel()
    return left


async def _complete(session: Session, request: Asked, gone: Callable[[], Awaitable[bool]]) -> Response:
    if isinstance(session.model, Address):
        raise Refused(404, "This harness is scored, not trained: ask the model at task.base_url.")
    try:
        answer = await session.model.complete(request.asked(), gone)
    except OutOfBudget as limit:
        session.task.events.put_nowait(Event("limit", str(limit)))
        raise Refused(400, f"The rollout has used up its budget: {limit}.", "context_length_exceeded") from None
    except SpeakerFault as fault:
        session.task.events.put_nowait(Event("fault", fault))
        raise Refused(400, f"The policy cannot answer: {fault}.", fault.cause) from None
    if answer is None:
        raise Refused(*ENDED)
    body = request.body(answer)
    session.kept |= request.keeps(body)
    if request.stream:
        return Response(request.events(body), media_type="text/event-stream")
    return Response(json.dumps(body), media_type="application/json")  # JSONResponse refuses a NaN in a call


async def _read(model: type[Body], request: Request, kept: Mapping[str, Any] | None = None) -> Body:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise Refused(413, f"The body exceeds {MAX_BODY_BYTES} bytes.")
        return model.model_validate_json(body, context=kept)
    except ValidationError as error:
        raise Refused(400, f"{first_error(error)}.", error.errors()[0]["type"]) from None
    except ClientDisconnect:
        raise Refused(400, "The client disconnected before it had sent the whole body.") from None


_GATEWAYS: dict[asyncio.AbstractEventLoop, Gateway] = {}


def shared_gateway() -> Gateway:
    """This worker's gateway; the first rollout starts it."""
    loop = asyncio.get_running_loop()
    if loop not in _GATEWAYS:
        _GATEWAYS.clear()
        _GATEWAYS[loop] = Gateway()
    return _GATEWAYS[loop]
