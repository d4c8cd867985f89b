"""Checks a call's arguments against the JSON Schema in the tool's document, with the `jsonschema` package.

A document that is not a valid schema, or that refers to what it does not contain, judges nothing. The prose of a
description judges nothing either, except in the benchmark's documents (`env_service/environments/bfcl/schema.py`).
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from seal.method.diagnosis.evidence import Violation

Schema = dict[str, Any]

BENCHMARK_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "list": "array",
    "bool": "boolean",
    "int": "integer",
    "str": "string",
}
"""The benchmark's type names that differ from JSON Schema's, with JSON Schema's names."""
_NAMES = {
    "object": "an object",
    "array": "a list",
    "number": "a number",
    "integer": "a whole number",
    "string": "a string",
    "boolean": "a boolean",
    "null": "null",
}
_BOUNDS = {"minimum": "at least", "maximum": "at most", "multipleOf": "a multiple of"}
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"),
    *("propertyNames", "not", "if", "then", "else"),
)
_UNJUDGED = (Unresolvable, re.error, RecursionError, TypeError, ValueError, ArithmeticError)
"""Errors of a check that cannot handle a document or a value, such as another language's pattern or a huge number."""


def with_json_types(node: Any) -> Schema:
    """Parameters as JSON Schema of an object: the benchmark's type names are mapped, and `any` has no type."""
    return {**(schema := _each(node, _json_type)), "type": schema.get("type", "object")}  # MCP's clients want a type


def violations(arguments: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return every way in which ``arguments`` break the document's ``parameters``, a JSON Schema, in a fixed order.

    () if they are not a valid schema. Messages name arguments and what is expected, never the value that was given.
    """
    try:
        written = document.get("parameters")
        found = broken(arguments, _each(written, _judged))
        as_written = _validator(_key(written)) if found else None
        return () if as_written is not None and as_written.is_valid(dict(arguments)) else found
    except _UNJUDGED:
        return ()


def judges(parameters: Any) -> bool:
    """Whether a document's parameters are a valid JSON Schema with a keyword that can judge arguments, or empty."""
    known = not (isinstance(parameters, Mapping) and Draft202012Validator.VALIDATORS.keys().isdisjoint(parameters))
    try:
        return (known or not parameters) and _validator(_key(_each(parameters, _judged))) is not None
    except _UNJUDGED:
        return False


def broken(arguments: Mapping[str, Any], schema: Schema) -> tuple[Violation, ...]:
    """The same for a valid JSON Schema; RecursionError or ValueError for values that the check cannot handle."""
    validator = _validator(_key(schema))
    found = [v for error in validator.iter_errors(dict(arguments)) for v in _read(error)] if validator else ()
    return tuple(sorted(set(found), key=lambda v: (v.path, v.kind, v.message)))


def _key(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True)


@lru_cache(maxsize=1024)
def _validator(parameters: str) -> Validator | None:
    """The validator of a schema in the draft that it names; None if it is not valid."""
    schema = json.loads(parameters)
    named = isinstance(schema, dict) and isinstance(schema.get("$schema"), str)
    draft = validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator
    try:
        draft.check_schema(schema)
    except SchemaError:
        return None
    return _exact(draft)(schema, registry=Registry())  # the default one would fetch what a document refers to


@cache
def _exact(draft: type[Validator]) -> type[Validator]:
    """The draft with decimal multiples (as floats, 19.99 is not a multiple of 0.01) and a limit on references."""
    checks = {"multipleOf": _multiple_of, "$ref": partial(_followed, draft.VALIDATORS["$ref"])}
    # 5.0 is whole in every draft, and so is 1e400, which Python reads as infinite.
    whole = draft.TYPE_CHECKER.redefine(
        "integer", lambda _, n: type(n) in (int, float) and (n % 1 == 0 or math.isinf(n))
    )
    return extend(draft, checks, type_checker=whole)


def _followed(
    follow: Callable[..., Iterator[ValidationError]], validator: Validator, *of: Any
) -> Iterator[ValidationError]:
    """Follow a reference; raise RecursionError early, because the reference library panics at the end of the stack."""
    with suppress(ValueError):
        sys._getframe(sys.getrecursionlimit() // 2)
        raise RecursionError
    yield from follow(validator, *of)


def _multiple_of(validator: Validator, of: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(value, "number"):
        return
    if not math.isfinite(value) or Fraction(str(value)) % Fraction(str(of)):
        yield ValidationError("")


def _each(node: Any, change: Callable[[Schema], Schema]) -> Any:
    """The schema with each sub-schema changed, innermost first.

    Arrow's tables hold null for every key that a row lacks, and PHP writes an empty object as []: both say nothing.
    """
    if not isinstance(node, Mapping):
        return {} if node in (None, []) else node
    schema = {key: value for key, value in node.items() if value is not None or key == "default"}
    for name in schema.keys() & _BY_NAME:
        if schema[name] == [] or isinstance(schema[name], Mapping):
            schema[name] = {key: _each(child, change) for key, child in dict(schema[name]).items()}
    for name in schema.keys() & _LISTED:
        if isinstance(schema[name], list) and schema[name]:
            schema[name] = [child if child is None else _each(child, change) for child in schema[name]]
    for name in schema.keys() & _SINGLE:
        if not isinstance(schema[name], list) or not schema[name]:
            schema[name] = _each(schema[name], change)
    return change(schema)


def _json_type(schema: Schema) -> Schema:
    kind = schema.pop("type", "any")
    if kind != "any":
        schema["type"] = BENCHMARK_TYPES.get(kind, kind) if isinstance(kind, str) else kind
    return schema


def _judged(schema: Schema) -> Schema:
    """The schema as tools mean it: OpenAPI's `nullable`, and a default of null, permit null; an enum without a value of
    the schema's own types, which nothing could satisfy, and a pattern of another language permit everything."""
    kinds, values = schema.get("type", [*_NAMES]), schema.get("enum")
    typed = isinstance(values, list) and {*map(str, kinds if isinstance(kinds, list) else [kinds])} <= _NAMES.keys()
    if typed and not any(Draft202012Validator({"type": kinds}).is_valid(value) for value in values):
        del schema["enum"]
    if re.search(r"^/.*/[a-z]*$|\[\[:", str(schema.get("pattern"))):  # Python reads these differently
        del schema["pattern"]
    null = True in (schema.get("nullable"), schema.get("x-nullable")) or schema.get("default", 0) is None
    return {"anyOf": [{"type": "null"}, schema]} if null else schema


def _path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _read(error: ValidationError) -> list[Violation]:
    where = _path(error.absolute_path)
    name, expected, rule = where or "the arguments", error.validator_value, error.validator
    rule = "propertyNames" if "propertyNames" in {*error.schema_path} - {*error.absolute_path} else rule  # of keys
    if rule in ("anyOf", "oneOf"):  # if it is null or one schema, the latter matters
        branches = [
            [inner for inner in error.context if [*inner.schema_path][:1] == [at]] for at in range(len(expected))
        ]
        others = [errors for errors in branches if errors and errors[0].validator_value != "null"]
        if len(others) == 1 and len(branches) == 2:
            return [v for inner in others[0] for v in _read(inner)]
    if rule == "required" and isinstance(expected, list):
        absent = [key for key in expected if key not in error.instance]
        return [_of("missing", error, key, "required argument {} is missing") for key in absent]
    if rule == "additionalProperties" and expected is False:
        known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
        extra = [key for key in error.instance if key not in known and not any(re.search(p, key) for p in patterns)]
        return [_of("unknown", error, key, "{} is not an argument of this tool") for key in extra]
    if rule == "type":
        kinds = [each for each in ([expected] if isinstance(expected, str) else expected) if isinstance(each, str)]
        kind = "structure" if {"object", "array"} & set(kinds) else "type"
        return [Violation(kind, where, f"{name} must be {' or '.join(_NAMES.get(each, each) for each in kinds)}")]
    if rule == "enum":
        return [Violation("enum", where, f"{name} must be one of: {', '.join(map(written, expected))}")]
    if rule in _BOUNDS:
        return [Violation("enum", where, f"{name} must be {_BOUNDS[rule]} {expected}")]
    keyword = f"the {rule} of " if rule else ""  # the schema `false` has none
    return [Violation("structure", where, f"{name} must keep to {keyword}its schema")]


def written(value: Any) -> str:
    """A value of a schema as a sentence shows it: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _of(kind: str, error: ValidationError, name: str, message: str) -> Violation:
    path = _path((*error.absolute_path, str(name)[:64]))  # a key of Python's may be a number
    return Violation(kind, path, message.format(path or "''"))
