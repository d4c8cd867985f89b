"""The ASGI layer that answers the verbs, ahead of FastAPI's router.

pydantic checks bodies directly from their bytes, and a worker's JSON is passed on as it is, so that a request costs
little more than its transport. Every failure is `{"detail": sentence}`.
"""

import hmac
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

import orjson
from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from env_service import variable
from env_service.episodes import Episodes
from env_service.protocol import VERBS, RequestRefused, first_error
from env_service.settings import ServerSettings
from seal.system.net import is_loopback


class VerbLayer:
    """ASGI middleware that answers the verbs and requires the token, if one is set."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, episodes: Episodes) -> None:
        """Pass requests for other paths on to `app`. Settings without a token have a loopback host."""
        self._app = app
        self._episodes = episodes
        self._max_body_bytes = settings.max_body_bytes
        self._expected = f"Bearer {settings.token}".encode() if settings.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if "//" in path:  # the client of the public release doubles the slash
            path = re.sub("/+", "/", path)
            scope = {**scope, "path": path}
        verb = path.removeprefix("/")
        if path != "/healthz" and (refusal := self._refuse(scope["headers"])):
            answer = _response(*refusal)
        elif verb not in VERBS:
            answer = self._app
        elif scope["method"] != "POST":
            answer = _response(405, _problem(f"{path} takes POST."), {"allow": "POST"})
        else:
            answer = _response(*await self._answer(verb, receive))
        await answer(scope, receive, send)

    def _refuse(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, bytes] | None:
        """Status and problem of a request to refuse: it lacks the token or, if none is set, names a foreign host."""
        if self._expected is None:
            asked = (value for name, value in headers if name in (b"host", b"origin"))
            foreign = next((value.decode("latin-1") for value in asked if not _is_local(value)), None)
            detail = f"{foreign!r} is not a loopback address, and only those are answered: set {variable('token')}."
            return None if foreign is None else (421, _problem(detail))
        given = next((value[:7].title() + value[7:] for name, value in headers if name == b"authorization"), b"")
        detail = f"Send the service's token: Authorization: Bearer <{variable('token')}>."
        return None if hmac.compare_digest(given, self._expected) else (401, _problem(detail))

    async def _answer(self, verb: str, receive: Receive) -> tuple[int, bytes]:
        try:
            request = VERBS[verb].request.model_validate_json(await _body(receive, self._max_body_bytes))
            return 200, await getattr(self._episodes, verb)(request)
        except ValidationError as error:
            return 422, _problem(f"{first_error(error)}.")
        except RequestRefused as error:
            return error.status, _problem(str(error), error.code)


@lru_cache
def _is_local(address: bytes) -> bool:
    """Return whether a Host or Origin header names a loopback address."""
    try:
        return is_loopback(urlsplit(f"//{address.decode().rpartition('//')[2]}").hostname or "")
    except ValueError:
        return False


async def _body(receive: Receive, limit: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused("The client disconnected before it had sent the whole body.")
        body += message.get("body", b"")
        if len(body) > limit:
            raise RequestRefused(f"The body exceeds {limit} bytes ({variable('max_body_bytes')}).", 413)
        more = message.get("more_body", False)
    return bytes(body)


def _problem(detail: str, code: str | None = None) -> bytes:
    return orjson.dumps({"detail": detail.encode("utf-8", "replace").decode(), **({"code": code} if code else {})})


def _response(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
