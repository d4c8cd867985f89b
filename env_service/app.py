"""The HTTP side: seven verbs, health, version, metrics.

Bodies are read and checked by pydantic straight from their bytes, and a
worker's JSON is passed on as it came, so a request costs little more than its
transport. Every failure is `{"detail": sentence}`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from env_service import protocol
from env_service.episodes import Episodes, reap_forever
from env_service.metrics import Metrics
from env_service.settings import ServiceSettings
from env_service.workers import RequestRefused, WorkerPool

PROTOCOL = 1
SERVICE = "seal-env-service/0.1.0"
_LOG = logging.getLogger(__name__)
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
        return _success(
            await self.episodes.create(request.env_type, request.task_id, request.instance_id, request.params)
        )

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


async def _body(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise RequestRefused(f"The body exceeds {limit} bytes (BFCL_MAX_BODY_BYTES).", 413)
        parts.append(part)
    return b"".join(parts)


def _parse(model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise RequestRefused(f"{where}: {first['msg']}.", 422) from None


def _problem(error: RequestRefused) -> Response:
    detail = str(error).encode("utf-8", "replace").decode()
    return Response(orjson.dumps({"detail": detail}), error.status, media_type="application/json")


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
    app.state.service = service
    _add_verb(app, service, service.get_env_profile, protocol.ProfileRequest, protocol.ProfileAnswer)
    _add_verb(app, service, service.create, protocol.CreateRequest, protocol.CreateAnswer)
    _add_verb(app, service, service.step, protocol.StepRequest, protocol.StepAnswer)
    _add_verb(app, service, service.evaluate, protocol.EvaluateRequest, protocol.EvaluateAnswer)
    _add_verb(app, service, service.get_info, protocol.InstanceRequest, protocol.InfoAnswer)
    _add_verb(app, service, service.release, protocol.InstanceRequest, protocol.ReleaseAnswer)

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

    if settings.token:
        _require_token(app, settings.token)
    _document_requests(app)
    return app


def _add_verb(
    app: FastAPI,
    service: Service,
    verb: Callable[[Any], Awaitable[bytes]],
    request_model: type[BaseModel],
    answer_model: type[BaseModel],
) -> None:
    """POST /<verb's name>, documented with its models though the endpoint handles bytes."""
    name = verb.__name__

    async def endpoint(request: Request) -> Response:
        began = time.perf_counter()
        try:
            body = await _body(request, service.settings.max_body_bytes)
            response = Response(await verb(_parse(request_model, body)), media_type="application/json")
        except RequestRefused as error:
            response = _problem(error)
        service.metrics.observe(name, response.status_code, time.perf_counter() - began)
        return response

    reference = {"$ref": f"#/components/schemas/{request_model.__name__}"}
    app.add_api_route(
        f"/{name}",
        endpoint,
        methods=["POST"],
        name=name,
        description=verb.__doc__,
        response_class=Response,
        responses={
            200: {"model": answer_model},
            **{status: {"model": protocol.Problem} for status in (400, 413, 422, 429)},
        },
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}},
    )


def _document_requests(app: FastAPI) -> None:
    """Put the request models, which the endpoints read from bytes, into the OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        _, models = models_json_schema(
            [(model, "validation") for model in protocol.REQUESTS], ref_template="#/components/schemas/{model}"
        )
        document["components"]["schemas"].update(models["$defs"])
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _require_token(app: FastAPI, token: str) -> None:
    expected = f"Bearer {token}".encode()

    @app.middleware("http")
    async def check(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if request.url.path != "/healthz" and not hmac.compare_digest(given, expected):
            return _problem(RequestRefused("Send the service's token: Authorization: Bearer <BFCL_TOKEN>.", 401))
        return await call_next(request)
