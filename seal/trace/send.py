"""Traces sent to whatever takes OTLP over HTTP with JSON: a collector, Jaeger, Langfuse."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from seal.trace.otlp import text

TIMEOUT_S = 30.0
PATH = "/v1/traces"


def send(traces: Iterable[Mapping[str, Any]], url: str, headers: Mapping[str, str]) -> int:
    """Send each `TracesData` to a receiver; returns how many.

    url: with or without the path of traces. ValueError for something that is not an address,
    and for a receiver that does not answer or takes no traces.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"{url!r} is not the address of an OTLP receiver: give one like http://127.0.0.1:4318.")
    target = url if parts.path.strip("/") else url.rstrip("/") + PATH
    count = 0
    with httpx.Client(timeout=TIMEOUT_S, headers={**headers, "Content-Type": "application/json"}) as client:
        for data in traces:
            try:
                answer = client.post(target, content=text(data).encode())
            except httpx.HTTPError as error:
                raise ValueError(f"{target} does not answer ({error}): is the receiver running there?") from error
            if answer.is_error:
                reason = answer.text[:200].strip() or answer.reason_phrase
                raise ValueError(f"{target} refused the traces ({answer.status_code}: {reason}).")
            count += 1
    return count
