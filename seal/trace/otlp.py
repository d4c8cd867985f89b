"""Spans as OTLP/JSON: a line of a file, which the collector's `otlpjsonfile` receiver reads, is also a request's body.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are
hexadecimal, 64-bit numbers are texts, enumerations are numbers.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from seal import __version__
from seal.trace.spans import NANO, Span, Value

INTERNAL = 1
"""SPAN_KIND_INTERNAL."""
OK, ERROR = 1, 2
"""STATUS_CODE_OK, STATUS_CODE_ERROR."""


def traces_data(spans: Iterable[Span], run: str) -> dict[str, Any]:
    """The spans of one or several traces as an OTLP `TracesData`."""
    resource = _attributes({"service.name": "seal", "service.version": __version__, "openinference.project.name": run})
    scope = {"name": "seal.trace", "version": __version__}
    every = [_span(span) for span in spans]
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": every}]}]}


def text(data: Mapping[str, Any]) -> str:
    """As JSON on one line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _span(span: Span) -> dict[str, Any]:
    parent = {"parentSpanId": span.parent} if span.parent else {}
    status = {"code": ERROR, "message": span.error} if span.error else {"code": OK}
    return {
        "traceId": span.trace,
        "spanId": span.id,
        **parent,
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(round(span.start * NANO)),
        "endTimeUnixNano": str(round(span.end * NANO)),
        "attributes": _attributes({"openinference.span.kind": span.kind, **span.attributes}),
        "status": status,
    }


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [_value(each) for each in value]}}
