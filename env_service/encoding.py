"""JSON bytes for the wire, whatever a policy wrote into its arguments.

orjson writes almost everything, dataclasses included. Values that it refuses but a policy can produce (lone surrogates,
integers beyond 64 bits, deep nesting) are simplified first: an answer must never fail because of its content.
"""

import math
from dataclasses import fields, is_dataclass
from typing import Any

import orjson

_DEPTH = 150
_INT64 = 2**63


def encode(value: Any) -> bytes:
    """The value as UTF-8 JSON."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_plain(value, 0))


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEPTH:
        return "..."
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name), depth + 1) for item in fields(value)}
    if isinstance(value, dict):
        return {_plain(str(key), depth): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return str(value)
