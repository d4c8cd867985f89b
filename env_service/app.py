"""The HTTP application: the verbs, health, version, metrics and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from env_service import protocol
from env_service.environments import base
from env_service.protocol import PROTOCOL
from env_service.settings import ServerSettings
from env_service.verb_layer import VerbLayer
from env_service.verbs import Service, Verb, verbs

SERVICE = "seal-env-service/0.1.0"


def create_app(settings: ServerSettings) -> FastAPI:
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
        """Answer OK while the service runs."""
        return "OK"

    @app.get("/version")
    async def version() -> protocol.VersionAnswer:
        """Name the versions that results depend on."""
        answer = await service.pool.query("version", {"env_type": base.DEFAULT})
        return protocol.VersionAnswer(service=SERVICE, protocol=PROTOCOL, **orjson.loads(answer.body))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Give the metrics in Prometheus' text format."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

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
