"""Arguments of a call against the tool's own document.

The benchmark's documents are JSON schema but for the names of types; those are
mapped once here and the judging is left to jsonschema. What is said only
in the prose of a description are no part of this judgement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from seal.diagnosis.evidence import Violation

_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "list": "array",
    "bool": "boolean",
    "int": "integer",
    "str": "string",
}
_NAMES = {"object": "an object", "array": "a list", "number": "a number", "integer": "a whole number"}


def json_schema(node: Mapping[str, Any]) -> dict[str, Any]:
    """A document's node as JSON schema: type names mapped, unknown keys closed.

    An argument whose default is None (the documents write "None") may be null.
    Types that JSON schema lacks (such as "any") constrain nothing.
    """
    schema: dict[str, Any] = {}
    kind = _TYPES.get(node.get("type", ""), node.get("type"))
    if kind in ("object", "array", "number", "integer", "string", "boolean", "null"):
        nullable = "default" in node and node["default"] in (None, "None")
        schema["type"] = [kind, "null"] if nullable else kind
    if isinstance(node.get("enum"), list):
        schema["enum"] = node["enum"]
    if isinstance(node.get("properties"), Mapping):
        schema["properties"] = {name: json_schema(child) for name, child in node["properties"].items()}
        schema["required"] = list(node.get("required", ()))
        schema["additionalProperties"] = False
    if isinstance(node.get("items"), Mapping):
        schema["items"] = json_schema(node["items"])
    return schema


@lru_cache(maxsize=1024)
def _validator(parameters: str) -> Draft202012Validator:
    return Draft202012Validator(json_schema(json.loads(parameters)))


def violations(arguments: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Every way in which ``arguments`` break the document's parameters, in a fixed order.

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
    if error.validator == "required":
        names = [name for name in error.validator_value if name not in error.instance]
        return [
            Violation("missing", _path((*error.absolute_path, n)), f"required argument {n} is missing") for n in names
        ]
    if error.validator == "additionalProperties":
        extra = [str(name) for name in error.instance if name not in error.schema.get("properties", {})]
        return [
            Violation("unknown", _path((*error.absolute_path, n)), f"{n} is not an argument of this tool")
            for n in extra
        ]
    if error.validator == "type":
        wanted = error.validator_value if isinstance(error.validator_value, str) else error.validator_value[0]
        kind = "structure" if wanted in ("object", "array") else "type"
        return [Violation(kind, where, f"{where or 'the arguments'} must be {_NAMES.get(wanted, f'a {wanted}')}")]
    if error.validator == "enum":
        values = ", ".join(map(str, error.validator_value))
        return [Violation("enum", where, f"{where} must be one of: {values}")]
    return [Violation("structure", where, f"{where} does not fit the tool's schema")]
