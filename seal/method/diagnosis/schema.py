"""Arguments of a call against the tool's own document.

The benchmark's documents are JSON schema except for the names of types; this module maps those and leaves the judging
to jsonschema. Allowed values and ranges that a description states in prose count as part of the schema.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from seal.method.diagnosis.constraints import constraints
from seal.method.diagnosis.evidence import Violation

TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "list": "array",
    "bool": "boolean",
    "int": "integer",
    "str": "string",
}
_NAMES = {
    "object": "an object",
    "array": "a list",
    "number": "a number",
    "integer": "a whole number",
    "string": "a string",
    "boolean": "a boolean",
    "null": "null",
}


def json_schema(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's node as JSON schema: type names mapped, unknown keys closed, prose included.

    A default of None (the documents write "None") permits null. Types that JSON schema lacks ("any") constrain nothing.
    """
    schema: dict[str, Any] = {}
    kind = node.get("type")
    kind = TYPES.get(kind, kind) if isinstance(kind, str) else None  # a list of types constrains nothing
    if kind in _NAMES:
        schema["type"] = kind
    if isinstance(node.get("properties"), Mapping):
        schema["properties"] = {name: json_schema(child) for name, child in node["properties"].items()}
        schema["required"] = list(node.get("required", ()))
        schema["additionalProperties"] = False
    if isinstance(node.get("items"), Mapping):
        schema["items"] = json_schema(node["items"])
    judged = {key: value for constraint in constraints(node) for key, value in constraint.schema.items()}
    (schema["items"] if kind == "array" and "items" in schema else schema).update(judged)
    if node.get("default", 0) in (None, "None"):
        return {"anyOf": [{"type": "null"}, schema]}
    return schema


def with_json_types(node: Mapping[str, Any]) -> dict[str, Any]:
    """A document's node with JSON schema's names of types, and no type for `any`; all else stays."""
    schema, kind = {key: value for key, value in node.items() if key != "type"}, node.get("type", "any")
    if kind != "any":
        schema["type"] = TYPES.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(node.get("properties"), Mapping):
        schema["properties"] = {name: with_json_types(child) for name, child in node["properties"].items()}
    if isinstance(node.get("items"), Mapping):
        schema["items"] = with_json_types(node["items"])
    return schema


@lru_cache(maxsize=1024)
def _validator(parameters: str) -> Draft202012Validator:
    return Draft202012Validator(json_schema(json.loads(parameters)))


def violations(arguments: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return every way in which ``arguments`` break the document's parameters, in a fixed order.

    ``document`` is {"name", "parameters": {"type": "dict", "properties", "required"}}.
    Messages name arguments and what is expected, never the value that was given.
    """
    validator = _validator(json.dumps(document["parameters"], sort_keys=True))
    found = [v for error in validator.iter_errors(dict(arguments)) for v in _read(error)]
    return tuple(sorted(set(found), key=lambda v: (v.path, v.kind, v.message)))


def _path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _read(error: ValidationError) -> list[Violation]:
    where = _path(error.absolute_path)
    expected = error.validator_value
    if error.validator == "anyOf":  # null or the schema proper: what matters is the latter
        return [v for inner in error.context or () if inner.schema_path[0] == 1 for v in _read(inner)]
    if error.validator == "required":
        absent = [name for name in expected if name not in error.instance]
        return [_of("missing", error, name, "required argument {} is missing") for name in absent]
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        extra = [str(name) for name in error.instance if name not in known]
        return [_of("unknown", error, name, "{} is not an argument of this tool") for name in extra]
    if error.validator == "type":
        kind = "structure" if expected in ("object", "array") else "type"
        return [Violation(kind, where, f"{where or 'the arguments'} must be {_NAMES[expected]}")]
    if error.validator == "enum":
        return [Violation("enum", where, f"{where} must be one of: {', '.join(map(str, expected))}")]
    bounds = {"minimum": "at least", "maximum": "at most", "multipleOf": "a multiple of"}
    return [Violation("enum", where, f"{where} must be {bounds[error.validator]} {expected}")]


def _of(kind: str, error: ValidationError, name: str, message: str) -> Violation:
    path = _path((*error.absolute_path, name[:64]))
    return Violation(kind, path, message.format(path or "''"))
