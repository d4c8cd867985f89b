"""The gateway of one agent-loop worker: the policy, and each rollout's episode, over HTTP on loopback.

POST /v1/chat/completions      the policy, for any OpenAI client; the key names the rollout
GET, POST /KEY/task            the episode as text: what it opened with; one message of the policy
/KEY/task/mcp                  the episode's tools and its user, over MCP (streamable HTTP)
"""

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
from typing import Any

import uvicorn
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from env_service.server import BoundedServer
from seal.rollout import chat, mcp
from seal.rollout.chains import OutOfBudget, Policy
from seal.rollout.dialogue import Dialogue
from seal.rollout.speaker import SpeakerFault
from seal.rollout.task import Address, Event, Task
from seal.system.net import LOOPBACK, http_url

MAX_REQUESTS = 2_000
"""Of one rollout; a harness that sends more is broken."""
MAX_BODY_BYTES = 8 * 2**20
_SECRET = secrets.token_bytes(32)


class Refused(Exception):
    """A request that is answered with an error: status, sentence, and a code that clients know."""

    def __init__(self, status: int, sentence: str, code: str | None = None):
        super().__init__(sentence)
        self.status, self.code = status, code


class Session:
    """One rollout at the gateway. model: the policy in training, or the address of one that is not asked here."""

    def __init__(self, model: Policy | Address):
        self.model = model
        self.task: Task | None = None
        self.requests = 0
        self.answering: set[asyncio.Task[Any]] = set()
        name = secrets.token_hex(8)
        self.key = f"{name}-{_signature(name)}"

    @property
    def events(self) -> asyncio.Queue[Event]:
        """What the harness does, in order."""
        return self.task.events

    async def open(self, dialogue: Dialogue, deadline_s: float) -> None:
        """Take an episode that has opened; from now on the key is answered."""
        gateway = await shared_gateway()
        address = self.model
        if not isinstance(address, Address):
            address.cues = dialogue.info.get("native", {}).get("cues", "")
            address = Address(f"{gateway.url}/v1", self.key, chat.MODEL)
        self.task = Task(dialogue, address, f"{gateway.url}/{self.key}/task", deadline_s)
        gateway.sessions[self.key] = self

    async def close(self) -> None:
        """Answer the key no more; a request that is still being answered breaks off."""
        (await shared_gateway()).sessions.pop(self.key, None)
        for answer in self.answering:
            answer.cancel()


def _signature(name: str) -> str:
    return hmac.digest(_SECRET, name.encode(), "sha256").hex()[:32]


class Gateway:
    """The ASGI application, and the sessions by their key."""

    def __init__(self) -> None:
        self.url = ""
        self.sessions: dict[str, Session] = {}
        self._mcp = mcp.manager()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        session, answering = None, asyncio.current_task()
        try:
            place = scope["path"].removeprefix("/").split("/", 2)
            openai = place[0] == "v1"
            session = self._session(_bearer(scope) if openai else place[0])
            session.answering.add(answering)
            session.requests += 1
            if session.requests > MAX_REQUESTS:
                fault = SpeakerFault("harness", f"the harness sent more than {MAX_REQUESTS} requests")
                session.events.put_nowait(Event("fault", fault))
                raise Refused(429, f"{fault}.")
            if place[1:] == ["task", "mcp"]:
                await self._mcp.handle_request({**scope, mcp.TASK: session.task}, receive, send)
                return
            body = await _body(receive) if scope["method"] == "POST" else None
            answer = await self._answer("/".join(place if openai else place[1:]), session, body)
        except Refused as refused:
            error = {"message": str(refused), "type": "invalid_request_error", "param": None, "code": refused.code}
            answer = JSONResponse({"error": error}, refused.status)
        finally:
            if session is not None:
                session.answering.discard(answering)
        await answer(scope, receive, send)

    async def serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        """Answer until the process ends."""
        async with self._mcp.run():
            await server.serve(sockets=[listener])

    def _session(self, key: str) -> Session:
        if (session := self.sessions.get(key)) is not None:
            return session
        name, _, signature = key.partition("-")
        if hmac.compare_digest(signature.encode(), _signature(name).encode()):
            raise Refused(410, "This rollout has ended.", "rollout_ended")
        raise Refused(401, "Send the key of the rollout: task.api_key, or OPENAI_API_KEY.", "invalid_api_key")

    async def _answer(self, path: str, session: Session, body: Any) -> Response:
        task = session.task
        if path == "v1/models" and body is None:
            return JSONResponse({"object": "list", "data": [{"id": chat.MODEL, "object": "model", "owned_by": "seal"}]})
        if path == "v1/chat/completions" and body is not None:
            return await _complete(session, body)
        if path == "task" and body is None:
            return JSONResponse({"messages": task.messages, "deadline_s": task.deadline_s})
        if path == "task":
            if not isinstance(text := body.get("text"), str):
                raise Refused(400, 'Send the message as {"text": "..."}.')
            messages = await task.say(text)
            return JSONResponse({"messages": messages, "ended": task.ended})
        raise Refused(404, "The gateway has v1/chat/completions, v1/models, KEY/task and KEY/task/mcp.")


async def _complete(session: Session, body: dict[str, Any]) -> Response:
    if isinstance(session.model, Address):
        raise Refused(404, "This harness is scored, not trained: ask the model at task.base_url.")
    try:
        answer = await session.model.complete(body)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    except OutOfBudget as limit:
        session.events.put_nowait(Event("limit", str(limit)))
        raise Refused(400, f"The rollout has used up its budget: {limit}.", "context_length_exceeded") from None
    except SpeakerFault as fault:
        session.events.put_nowait(Event("fault", fault))
        raise Refused(400, f"The policy cannot answer: {fault}.", fault.cause) from None
    if not body.get("stream"):
        return JSONResponse(answer)
    return StreamingResponse(chat.chunks(answer), media_type="text/event-stream")


def _bearer(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    return given.decode("latin-1").removeprefix("Bearer ")


async def _body(receive: Receive) -> dict[str, Any]:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The client disconnected before it had sent the whole body.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise Refused(413, f"The body exceeds {MAX_BODY_BYTES} bytes.")
        more = message.get("more_body", False)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refused(400, "The body must be a JSON object.")
    return value


class _Server(BoundedServer):
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:
        """Leave the signals to the process that the gateway is a part of."""
        return contextlib.nullcontext()


_GATEWAYS: dict[asyncio.AbstractEventLoop, asyncio.Future[Gateway]] = {}


async def shared_gateway() -> Gateway:
    """This worker's gateway; the first rollout starts it."""
    loop = asyncio.get_running_loop()
    if loop not in _GATEWAYS:
        _GATEWAYS.clear()
        _GATEWAYS[loop] = asyncio.ensure_future(_started())
    return await asyncio.shield(_GATEWAYS[loop])


async def _started() -> Gateway:
    gateway = Gateway()
    listener = socket.create_server((LOOPBACK, 0), backlog=2048)
    # asyncio sets it only on sockets that name their protocol; without it, each answer waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    gateway.url = http_url(*listener.getsockname()[:2])
    config = uvicorn.Config(
        gateway, http="httptools", ws="none", lifespan="off", log_level="warning", access_log=False, proxy_headers=False
    )
    gateway.serving = asyncio.ensure_future(gateway.serve(_Server(config), listener))
    return gateway
