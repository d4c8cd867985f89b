"""The HTTP application: the verbs, health, version, metrics and the OpenAPI document."""

import orjson
from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse

from env_service import protocol
from env_service.episodes import Episodes
from env_service.pool import WorkerPool
from env_service.settings import ServerSettings
from env_service.verb_layer import VerbLayer
from seal import __version__

SERVICE = f"seal-env-service/{__version__}"


def create_app(settings: ServerSettings, pool: WorkerPool, episodes: Episodes) -> FastAPI:
    """The application over workers that somebody else starts and stops."""
    app = FastAPI(title="SEAL environment service", version=__version__)
    app.add_middleware(VerbLayer, settings=settings, episodes=episodes)

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """Answer OK while the service runs and enforces its deadlines."""
        if not pool.enforces_deadlines:
            raise HTTPException(503, "The watch over deadlines has ended: restart the service.")
        return "OK"

    @app.get("/version")
    async def version(env_type: str = protocol.DEFAULT_ENVIRONMENT) -> protocol.VersionAnswer:
        """Name the versions on which results of an environment depend."""
        try:
            answer = await pool.query("version", {"env_type": env_type})
        except protocol.RequestRefused as error:
            raise HTTPException(error.status, str(error)) from None
        own = {"service": SERVICE, "protocol": protocol.PROTOCOL, "owner": settings.owner}
        return protocol.VersionAnswer(**own, **orjson.loads(answer))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Count the open episodes, their messages, and the workers that were replaced, in Prometheus' text format."""
        figures = {**episodes.figures(), "worker_restarts": pool.restarts}
        return "".join(f"env_service_{name} {value}\n" for name, value in figures.items())

    for name, verb in protocol.VERBS.items():  # for the OpenAPI document: the layer answers before the router
        problems = {status: {"model": protocol.Problem} for status in (400, 413, 422, 429)}
        app.post(f"/{name}", response_model=verb.answer, responses=problems)(getattr(episodes, name))
    return app
