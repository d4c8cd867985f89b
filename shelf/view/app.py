"""The viewer's HTTP application: JSON for the pages, and the pages themselves. It only reads.

The texts of models reach the browser as JSON and are shown as text; the content
security policy forbids every script and style that is not the viewer's own file.
"""

import contextlib
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from seal import __version__
from seal.system.net import is_loopback
from shelf.view.index import Indexer
from shelf.view.query import By, Filters, Log
from shelf.view.replayer import Replayer
from shelf.view.runs import ViewedRun
from shelf.view.viewed import Viewed

STATIC = Path(str(files("shelf.view") / "static"))
COOKIE = "seal_view_token"
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


def make_app(runs: Sequence[ViewedRun], host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    """The application over these runs.

    host: where it is served; on a loopback address only requests that name a
    loopback host are answered, so that no web site can reach it through a name of
    its own. token: what a request must carry, as `?token=` once and as a cookie then.
    """
    viewed = {run.name: Viewed(run) for run in runs}
    replayer = Replayer()

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        indexer = Indexer([each.index for each in viewed.values()])
        try:
            yield
        finally:
            indexer.close()
            replayer.close()

    app = FastAPI(
        title="SEAL viewer", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        named = request.url.hostname or ""
        if is_loopback(host) and not is_loopback(named):
            response = Response("This viewer answers on loopback addresses only.", 421)
        elif token is not None and not _admits(request, token):
            response = Response("Open the address that `seal view` printed: it holds the token.", 401)
        elif token is not None and "token" in request.query_params:
            response = Response(status_code=303, headers={"Location": "/"})
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        else:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValueError)
    async def refuse(_request: Request, error: ValueError) -> Response:
        if not isinstance(error, ValidationError | RequestValidationError):
            return _json({"error": str(error)}, 400)
        first = error.errors()[0]
        return _json({"error": f"{first['loc'][-1]} in the address: {first['msg']}."}, 400)

    @app.exception_handler(OSError)
    async def unreadable(_request: Request, error: OSError) -> Response:
        return _json({"error": f"The log cannot be read: {error}."}, 503)

    @app.exception_handler(sqlite3.Error)
    async def unindexed(_request: Request, error: sqlite3.Error) -> Response:
        return _json({"error": f"The index cannot be read: {error}. Load the page again."}, 503)

    def of(run: str) -> Viewed:
        if run not in viewed:
            raise HTTPException(404, f"There is no run {run}: this viewer shows {', '.join(viewed)}.")
        return viewed[run]

    def filters(request: Request) -> Filters:
        return Filters.model_validate({name: value for name, value in request.query_params.items() if value != ""})

    @app.exception_handler(HTTPException)
    async def missing(_request: Request, error: HTTPException) -> Response:
        return _json({"error": str(error.detail)}, error.status_code)

    @app.get("/api/runs")
    def list_runs() -> Response:
        return _json({"runs": [each.listed() for each in viewed.values()], "version": __version__})

    @app.get("/api/overview")
    def show_overview(run: Annotated[list[str], Query()]) -> Response:
        return _json({"runs": [of(name).overview() for name in run]})

    @app.get("/api/validation")
    def show_validation(run: Annotated[list[str], Query()]) -> Response:
        return _json({"runs": [{"name": name, "validation": of(name).validation()} for name in run]})

    @app.get("/api/choices")
    def show_choices(run: str) -> Response:
        return _json(of(run).choices())

    @app.get("/api/failures")
    def show_failures(request: Request, run: str, by: By = "step") -> Response:
        return _json(of(run).failures(filters(request), by))

    @app.get("/api/trajectories")
    def list_trajectories(request: Request, run: str, offset: int = 0, limit: int = 100) -> Response:
        return _json(of(run).trajectories(filters(request), offset, limit))

    @app.get("/api/groups")
    def list_groups(request: Request, run: str, offset: int = 0, limit: int = 100, spread: bool = False) -> Response:
        return _json(of(run).groups(filters(request), offset, limit, spread))

    @app.get("/api/group")
    def show_group(run: str, step: int, source: str, task: str, log: Log = "train") -> Response:
        return _json(of(run).group(log, step, source, task))

    @app.get("/api/trajectory")
    def show_trajectory(run: str, key: str, tokens: bool = False) -> Response:
        return _json(of(run).trajectory(key, tokens))

    @app.get("/api/replay")
    def show_replay(run: str, key: str) -> Response:
        return _json(replayer.replay(*of(run).line(key)))

    @app.get("/api/omega")
    def show_omega(run: str) -> Response:
        return _json(of(run).omega())

    @app.get("/{name:path}", include_in_schema=False)
    def page(name: str) -> Response:
        found = {path.name: path for path in STATIC.iterdir() if path.suffix in _TYPES}.get(name or "index.html")
        if found is None:
            raise HTTPException(404, f"There is no page {name}.")
        return Response(found.read_bytes(), media_type=_TYPES[found.suffix])

    return app


def _json(value: Any, status: int = 200) -> Response:
    # Keys of some answers are numbers; NaN and infinity become null.
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), status, media_type="application/json")


def _admits(request: Request, token: str) -> bool:
    given = request.query_params.get("token") or request.cookies.get(COOKIE) or ""
    return secrets.compare_digest(given.encode(), token.encode())
