"""The server: `seal-openenv --port 8000`, or `uvicorn seal_openenv.server.app:app`; README.md lists its variables."""

import argparse
import os
import sys

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_app

from env_service.client import ServiceClient, ServiceError
from env_service.local_service import address

from ..models import SealAction, SealObservation, SealState
from .environment import SealEnvironment

NAME = "seal"
_STATUS = {"environment_refused": 400, "environment_lost": 400, "environment_busy": 429}


def application() -> FastAPI:
    """The OpenEnv application over the service that the environment variables name; ServiceError if there is none."""
    client = ServiceClient(address(), os.environ.get("SEAL_ENVIRONMENT", "bfcl"))
    client.version()
    app = create_app(
        lambda: SealEnvironment(client),
        SealAction,
        SealObservation,
        env_name=NAME,
        max_concurrent_envs=int(os.environ.get("SEAL_OPENENV_SESSIONS", "64")),
        state_cls=SealState,
    )

    @app.exception_handler(ServiceError)
    async def refuse(_: Request, error: ServiceError) -> JSONResponse:
        """Pass the service's own sentence to callers of the HTTP routes."""
        return JSONResponse({"detail": str(error)}, _STATUS.get(error.cause, 503))

    return app


def main() -> int:
    """Serve until interrupted; 1, with one sentence on stderr, if there is no service to play on."""
    parser = argparse.ArgumentParser(prog="seal-openenv", description="Serve SEAL's environments to OpenEnv clients.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    try:
        app = application()
    except (ServiceError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    uvicorn.run(app, host=options.host, port=options.port)
    return 0


def __getattr__(name: str) -> FastAPI:
    """`app` for servers that import it by name, made on first access."""
    if name != "app":
        raise AttributeError(name)
    globals()["app"] = made = application()
    return made


if __name__ == "__main__":
    sys.exit(main())
