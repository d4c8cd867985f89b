"""Whether a server answers at an address."""

import httpx

PROBE_TIMEOUT_S = 3.0


def get(url: str) -> httpx.Response | None:
    """The answer to a GET; None if no HTTP server is there. Uses no proxy of the environment.

    Raises httpx.HTTPError if a server accepts the connection and does not answer within a few seconds.
    """
    try:
        return httpx.get(url, timeout=PROBE_TIMEOUT_S, trust_env=False, follow_redirects=True)
    except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout):
        return None


def is_healthy(url: str) -> bool:
    """Whether a GET of `url` is answered with 200."""
    try:
        answer = get(url)
    except httpx.HTTPError:
        return False
    return answer is not None and answer.status_code == httpx.codes.OK
