"""Synchronous questions to servers of a run: is one there, is it healthy, which version is it?

The launcher and the evaluation ask these before and after rollouts; requests of
rollouts go through `env_client`.
"""

from typing import Any

import httpx

from seal.rollout.env_client import authorization
from seal.system.errors import LaunchError

PROBE_TIMEOUT_S = 3.0
IMPORT_TIMEOUT_S = 60.0
"""For a question that makes a worker import an environment."""


class TokenRequired(LaunchError):
    """The service asks for a token other than BFCL_TOKEN of this process."""


def get(url: str, **headers: str) -> httpx.Response | None:
    """The answer to a GET; None if no HTTP server is there.

    Uses no proxy of the environment, like rollouts. Raises httpx.HTTPError if a server
    accepts the connection and does not answer within a few seconds.
    """
    try:
        return httpx.get(url, headers=headers, timeout=PROBE_TIMEOUT_S, trust_env=False, follow_redirects=True)
    except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout):
        return None


def is_healthy(url: str) -> bool:
    """Whether a GET of `url` is answered with 200."""
    try:
        answer = get(url)
    except httpx.HTTPError:
        return False
    return answer is not None and answer.status_code == httpx.codes.OK


def served_tasks(url: str) -> frozenset[str]:
    """The ids of the synthesised tasks that the service at `url` serves.

    Raises httpx.HTTPError if it does not answer as a service of this version.
    """
    request = {"params": {"split": "synth"}}
    answer = httpx.post(
        f"{url}/get_env_profile", json=request, headers=authorization(), timeout=PROBE_TIMEOUT_S, trust_env=False
    )
    return frozenset(answer.raise_for_status().json()["data"])


def environment_version(url: str, name: str) -> dict[str, Any]:
    """What the service at `url` says of an environment's version.

    Raises httpx.HTTPError if it does not answer, or does not know the environment.
    """
    answer = httpx.get(
        f"{url}/version",
        params={"env_type": name},
        headers=authorization(),
        timeout=IMPORT_TIMEOUT_S,
        trust_env=False,
    )
    return answer.raise_for_status().json()


def service_version(url: str) -> dict[str, Any] | None:
    """The version answer of the service at `url`: {} if something else answers there, None if nothing does.

    Raises TokenRequired if the service does not accept BFCL_TOKEN of this process.
    """
    try:
        health = get(f"{url}/healthz")
        version = get(f"{url}/version", **authorization())
        if health is None or version is None:
            return None
        if health.is_success and version.status_code == httpx.codes.UNAUTHORIZED:
            raise TokenRequired(
                f"The environment service at {url} asks for its token: set BFCL_TOKEN here, or in .env, to the one "
                "that it was started with."
            )
        answer = version.json() if health.is_success and version.is_success else {}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return {}
    return answer if isinstance(answer, dict) and "data_hash" in answer else {}
