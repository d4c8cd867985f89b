"""The benchmark's documents as JSON Schema.

They use their own type names, list every key of an object, and state allowed values and ranges in prose. Every
reference call keeps to that prose.
"""

from collections.abc import Mapping
from typing import Any

from seal.method.diagnosis.constraints import prose
from seal.method.diagnosis.schema import BENCHMARK_TYPES, Schema

_TYPES = frozenset({*BENCHMARK_TYPES.values(), "string", "null"})


def json_schema(node: Mapping[str, Any]) -> Schema:
    """Return a document's node as JSON Schema: type names mapped, unknown keys closed, prose included.

    A default of None (written "None" there) permits null. Types that JSON Schema lacks ("any") allow any value.
    """
    schema: Schema = {}
    kind = BENCHMARK_TYPES.get(node["type"], node["type"])
    if kind in _TYPES:
        schema["type"] = kind
    if "properties" in node:
        schema["properties"] = {name: json_schema(child) for name, child in node["properties"].items()}
        schema["required"] = list(node.get("required", ()))
        schema["additionalProperties"] = False
    if "items" in node:
        schema["items"] = json_schema(node["items"])
    judged = {key: value for constraint in prose(node) for key, value in constraint.schema.items()}
    (schema["items"] if kind == "array" and "items" in schema else schema).update(judged)
    if node.get("default", 0) in (None, "None"):
        return {"anyOf": [{"type": "null"}, schema]}
    return schema
