"""The HTTP side: seven verbs, health, version, metrics.

The verbs are answered by one small ASGI layer ahead of FastAPI's router: bodies
are checked by pydantic straight from their bytes and a worker's JSON is passed on
as it came, so a request costs little more than its transport. FastAPI serves the
rest and the OpenAPI document. Every failure is `{"detail": sentence}`.
"""

from __future__ import annotations

import asyncio
import hmac
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.types import ASGIApp, Receive, Scope, Send

from env_service import protocol
from env_service.episodes import Episodes, reap_forever
from env_service.metrics import Metrics
from env_service.settings import ServiceSettings
from env_service.workers import EpisodeLog, RequestRefused, WorkerPool

PROTOCOL = 1
SERVICE = "seal-env-service/0.1.0"
Model = TypeVar("Model", bound=BaseModel)


class Service:
    """The verbs, over the open episodes of one worker pool."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Processes start with :meth:`start`."""
        self.settings = settings
        self.metrics = Metrics()
        self.pool = WorkerPool(settings)
        self.episodes = Episodes(settings, self.pool, self.metrics)
        self._reaper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start workers and the reaper."""
        await self.pool.start()
        self._reaper = asyncio.create_task(reap_forever(self.episodes, self.settings.idle_seconds))

    async def stop(self) -> None:
        """End them."""
        if self._reaper is not None:
            self._reaper.cancel()
        await self.pool.stop()

    async def get_env_profile(self, request: protocol.ProfileRequest) -> bytes:
        """The ids of a split's tasks."""
        split = request.params.get("split") or ""
        answer = await self.pool.ask("profile", {"env_type": request.env_type, "split": str(split)})
        return _success(answer.body)

    async def create(self, request: protocol.CreateRequest) -> bytes:
        """Open an episode."""
        if request.task_id is None:
            raise RequestRefused("task_id is missing: name the task to open.")
        name = request.instance_id or uuid.uuid4().hex
        log = EpisodeLog(name, request.env_type, request.task_id, request.params)
        return _success(await self.episodes.create(log, request.create_id))

    async def step(self, request: protocol.StepRequest) -> bytes:
        """Hand on one assistant message."""
        content, step_id = request.messages.content, request.step_id
        return _success(await self.episodes.step(request.instance_id, content, step_id, request.truncated))

    async def evaluate(self, request: protocol.EvaluateRequest) -> bytes:
        """Verdict, figures, labels; changes nothing."""
        return _success(await self.episodes.look("evaluate", request.instance_id, request.params))

    async def get_info(self, request: protocol.InstanceRequest) -> bytes:
        """The tools available now, as text."""
        return _success(await self.episodes.look("describe", request.instance_id, {}))

    async def release(self, request: protocol.InstanceRequest) -> bytes:
        """Close an episode."""
        released = await self.episodes.release(request.instance_id)
        return b'{"success":%s,"data":null}' % (b"true" if released else b"false")


def _success(data: bytes) -> bytes:
    return b'{"success":true,"data":' + data + b"}"


@dataclass(frozen=True)
class Verb:
    """One POST verb: what it takes, what it answers, who does it."""

    request: type[BaseModel]
    answer: type[BaseModel]
    handle: Callable[[Any], Awaitable[bytes]]


def verbs(service: Service) -> dict[str, Verb]:
    """The verbs by name."""
    return {
        "get_env_profile": Verb(protocol.ProfileRequest, protocol.ProfileAnswer, service.get_env_profile),
        "create": Verb(protocol.CreateRequest, protocol.CreateAnswer, service.create),
        "step": Verb(protocol.StepRequest, protocol.StepAnswer, service.step),
        "evaluate": Verb(protocol.EvaluateRequest, protocol.EvaluateAnswer, service.evaluate),
        "get_info": Verb(protocol.InstanceRequest, protocol.InfoAnswer, service.get_info),
        "release": Verb(protocol.InstanceRequest, protocol.ReleaseAnswer, service.release),
    }


class VerbLayer:
    """ASGI middleware that answers the verbs and, where one is set, asks for the token."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        """Everything that is no verb goes on to `app`."""
        self._app = app
        self._service = service
        self._verbs = {f"/{name}": verb for name, verb in verbs(service).items()}
        token = service.settings.token
        self._expected = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        verb = self._verbs.get(path)
        if path != "/healthz" and not self._admitted(scope):
            await _send(send, 401, _problem("Send the service's token: Authorization: Bearer <BFCL_TOKEN>."))
        elif verb is None:
            await self._app(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, 405, _problem(f"{path} takes POST."))
        else:
            began = time.perf_counter()
            status, body = await self._answer(verb, receive)
            self._service.metrics.observe(path[1:], status, time.perf_counter() - began)
            await _send(send, status, body)

    def _admitted(self, scope: Scope) -> bool:
        if self._expected is None:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)

    async def _answer(self, verb: Verb, receive: Receive) -> tuple[int, bytes]:
        try:
            request = _parse(verb.request, await _body(receive, self._service.settings.max_body_bytes))
            return 200, await verb.handle(request)
        except RequestRefused as error:
            return error.status, _problem(str(error), error.code)


async def _body(receive: Receive, limit: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused("The client left before it had sent the whole body.")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise RequestRefused(f"The body exceeds {limit} bytes (BFCL_MAX_BODY_BYTES).", 413)
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _parse(model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise RequestRefused(f"{where}: {first['msg']}.", 422) from None


def _problem(detail: str, code: str | None = None) -> bytes:
    named = {"code": code} if code else {}
    return orjson.dumps({"detail": detail.encode("utf-8", "replace").decode(), **named})


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application; its workers run from startup to shutdown."""
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(title="SEAL environment service", version="0.1.0", lifespan=lifespan)
    app.add_middleware(VerbLayer, service=service)

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """OK while the service answers."""
        return "OK"

    @app.get("/version")
    async def version() -> protocol.VersionAnswer:
        """What results depend on."""
        answer = await service.pool.ask("version", {"env_type": "bfcl"})
        return protocol.VersionAnswer(service=SERVICE, protocol=PROTOCOL, **orjson.loads(answer.body))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Figures in Prometheus' text format."""
        gauges = {"episodes_open": len(service.episodes), "worker_restarts": service.pool.restarts}
        return service.metrics.text(gauges)

    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        _document(document, verbs(service))
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _document(document: dict[str, Any], described: Mapping[str, Verb]) -> None:
    """Add the verbs and their models to FastAPI's OpenAPI document."""
    models = [model for verb in described.values() for model in (verb.request, verb.answer)]
    _, schemas = models_json_schema(
        [(model, "validation") for model in (*models, protocol.Problem)], ref_template="#/components/schemas/{model}"
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
    for name, verb in described.items():
        problems = {str(status): _content(protocol.Problem, "What is wrong.") for status in (400, 413, 422, 429)}
        document["paths"][f"/{name}"] = {
            "post": {
                "operationId": name,
                "summary": verb.handle.__doc__,
                "requestBody": {**_content(verb.request, verb.request.__doc__ or ""), "required": True},
                "responses": {"200": _content(verb.answer, verb.answer.__doc__ or ""), **problems},
            }
        }


def _content(model: type[BaseModel], description: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
