"""The viewer's HTTP application: JSON for the pages, and the pages themselves. It only reads.

Model texts reach the browser as JSON and are shown as text; the content security
policy forbids every script and style that is not the viewer's own file.
"""

import contextlib
import functools
import os
import secrets
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from rich.console import Console
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware

from env_service.encoding import encode
from env_service.server import BoundedServer
from seal import __version__
from seal.system.net import http_url, is_loopback
from shelf.view import query
from shelf.view.index import Indexer
from shelf.view.query import By, Filters, Log, parse_key
from shelf.view.replayer import Replayer
from shelf.view.runs import ViewedRun
from shelf.view.trajectory import trajectory, whole_group
from shelf.view.viewed import Viewed

STATIC = Path(str(files("shelf.view") / "static"))
TOKEN = "SEAL_VIEW_TOKEN"
COOKIE = "seal_view_token"
GRACE_S = 2
"""Seconds that a request may still take after Ctrl-C, because a replay may be waiting for the benchmark to load."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}

api = APIRouter(prefix="/api")


def serve(runs: Sequence[ViewedRun], host: str, port: int, key: str = "") -> None:
    """Serve until interrupted; with a key, the printed address is that of the trajectory's page.

    OSError if the address cannot be used, ValueError for a text that is not a key.
    """
    page = "#/trajectory?key={}:{}:{}".format(*parse_key(key)) if key else ""
    token = os.environ.get(TOKEN) or (None if is_loopback(host) else secrets.token_urlsafe(24))
    with _listening(host, port) as listener:
        config = uvicorn.Config(
            make_app(runs, host, token),
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        console = Console(emoji=False, soft_wrap=True, highlight=False)
        address = f"{http_url(host, listener.getsockname()[1])}/" + (f"?token={quote(token)}" if token else "") + page
        console.print(f"{len(runs)} run{'s' * (len(runs) != 1)} at {address}  (Ctrl-C ends the viewer)", markup=False)
        BoundedServer(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be used ({error.strerror}): choose another --port.") from error


def make_app(runs: Sequence[ViewedRun], host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    """The application over these runs.

    host: where it is served; on loopback, only requests that name a loopback host are answered, so that no web site can
    reach it under the site's name. token: what a request must carry, first as `?token=` and then as a cookie.
    """
    app = FastAPI(
        title="SEAL viewer", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=_indexing
    )
    app.state.viewed = {run.name: Viewed(run) for run in runs}
    app.state.replayer = Replayer()
    app.add_middleware(BaseHTTPMiddleware, dispatch=functools.partial(_guard, host=host, token=token))
    for kind in (HTTPException, RequestValidationError, ValueError, OverflowError, sqlite3.Error, OSError):
        app.add_exception_handler(kind, _refuse)
    app.include_router(api)
    app.add_api_route("/{name:path}", _page, include_in_schema=False)
    return app


@contextlib.asynccontextmanager
async def _indexing(app: FastAPI) -> AsyncIterator[None]:
    indexer = Indexer([viewed.index for viewed in app.state.viewed.values()])
    try:
        yield
    finally:
        indexer.close()
        app.state.replayer.close()


async def _guard(
    request: Request, call_next: Callable[[Request], Awaitable[Response]], host: str, token: str | None
) -> Response:
    given = request.query_params.get("token") or request.cookies.get(COOKIE) or ""
    if is_loopback(host) and not is_loopback(request.url.hostname or ""):
        response = Response("This viewer answers on loopback addresses only.", 421)
    elif token is not None and not secrets.compare_digest(given.encode(), token.encode()):
        response = Response("Open the address that `seal view` printed: it holds the token.", 401)
    elif token is not None and "token" in request.query_params:
        response = Response(status_code=303, headers={"Location": "/"})
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
    else:
        response = await call_next(request)
    response.headers.update(HEADERS)
    return response


async def _refuse(_request: Request, error: Exception) -> Response:
    """Answer a failed request with one sentence."""
    match error:
        case HTTPException():
            status, sentence = error.status_code, str(error.detail)
        case ValidationError() | RequestValidationError():
            first = error.errors()[0]
            status, sentence = 400, f"{first['loc'][-1]} in the address: {first['msg']}."
        case OverflowError():
            status, sentence = 400, "A number in the address is too large."
        case ValueError():
            status, sentence = 400, str(error)
        case sqlite3.Error():
            status, sentence = 503, f"The index cannot be read: {error}. Load the page again."
        case _:
            status, sentence = 503, f"The log cannot be read: {error}."
    return _json({"error": sentence}, status)


def _viewed(request: Request, run: str) -> Viewed:
    viewed = request.app.state.viewed
    if run not in viewed:
        raise HTTPException(404, f"There is no run {run}: this viewer shows {', '.join(viewed)}.")
    folder = viewed[run].run.folder.path
    if not folder.is_dir():
        raise HTTPException(410, f"{folder} is gone: the run was moved or removed.")
    return viewed[run]


def _several(request: Request, run: Annotated[list[str], Query()]) -> list[Viewed]:
    return [_viewed(request, name) for name in run]


def _filters(request: Request) -> Filters:
    return Filters.model_validate({name: value for name, value in request.query_params.items() if value != ""})


Run = Annotated[Viewed, Depends(_viewed)]
Runs = Annotated[list[Viewed], Depends(_several)]
Asked = Annotated[Filters, Depends(_filters)]
Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=query.PAGE)]


@api.get("/runs")
def list_runs(request: Request) -> Response:
    return _json({"runs": [viewed.listed() for viewed in request.app.state.viewed.values()], "version": __version__})


@api.get("/overview")
def show_overview(runs: Runs) -> Response:
    return _json({"runs": [viewed.overview() for viewed in runs]})


@api.get("/validation")
def show_validation(runs: Runs) -> Response:
    return _json({"runs": [viewed.validation() for viewed in runs]})


@api.get("/examples")
def show_examples(run: Run) -> Response:
    return _json(run.examples())


@api.get("/choices")
def show_choices(run: Run) -> Response:
    return _json(run.ask(query.choices))


@api.get("/failures")
def show_failures(run: Run, filters: Asked, by: By = "step") -> Response:
    return _json(run.failures(filters, by))


@api.get("/trajectories")
def list_trajectories(run: Run, filters: Asked, offset: Offset = 0, limit: Limit = 100) -> Response:
    return _json(run.trajectories(filters, offset, limit))


@api.get("/groups")
def list_groups(run: Run, filters: Asked, offset: Offset = 0, limit: Limit = 100, spread: bool = False) -> Response:
    return _json(run.ask(query.groups, filters, offset, limit, spread))


@api.get("/group")
def show_group(run: Run, step: int, source: str, task: str, prompt: int | None = None, log: Log = "train") -> Response:
    return _json(run.ask(whole_group, run.run.folder, log, step, source, task, prompt))


@api.get("/trajectory")
def show_trajectory(run: Run, key: str) -> Response:
    return _json(run.ask(trajectory, run.run.folder, key))


@api.get("/replay")
def show_replay(request: Request, run: Run, key: str) -> Response:
    return _json(request.app.state.replayer.replay(*run.line(key)))


@api.get("/omega")
def show_omega(run: Run) -> Response:
    return _json(run.omega())


def _page(name: str) -> Response:
    pages = {path.name: path for path in STATIC.iterdir() if path.suffix in _TYPES}
    page = pages.get(name or "index.html")
    if page is None:
        raise HTTPException(404, f"There is no page {name}.")
    return Response(page.read_bytes(), media_type=_TYPES[page.suffix])


def _json(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")
