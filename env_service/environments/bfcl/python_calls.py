"""Calls written as Python: `[f(a=1), g(b='x')]`, read with `ast` and never evaluated.

It matches the package's own reader wherever that only reads: names stand for themselves, positional arguments are
dropped. It refuses what the package would evaluate or run (arithmetic, calls among the arguments).
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from env_service.environments.base import Call

_LOOKS_LIKE_CALLS = re.compile(r"[`'\s]*(\[\s*[A-Za-z_][\w.]*\s*\(|[A-Za-z_][\w.]*\()")


def looks_like_calls(text: str) -> bool:
    """Return True for text that was clearly meant as calls."""
    return _LOOKS_LIKE_CALLS.match(text) is not None


def read_calls(text: str) -> list[Call]:
    """Return the calls of the text; ValueError (a reason without a full stop) unless all of it can be read."""
    source = text.strip("`\n ")
    source = f"[{source.removeprefix('[').removesuffix(']')}]"
    try:
        body = ast.parse(source.strip().strip("'"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is not Python ({getattr(error, 'msg', type(error).__name__)})") from None
    nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    try:
        return [_call(node) for node in nodes]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueError(f"{ast.unparse(node)!r} is not a call")
    arguments: dict[str, Any] = {}
    for item in node.keywords:
        value = _value(item.value)
        if isinstance(value, dict) and all(isinstance(part, dict) for part in value.values()):
            raise ValueError(f"the dictionary given for {item.arg} would be read as a call")
        repr(value)  # the package writes it as source: ValueError for an integer that is too long
        arguments[str(item.arg)] = value
    return _name(node.func), arguments


def _name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return "..." if value is Ellipsis else value
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() | complex() as value)):
            return -value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.Name(id=name):
            return name
        case ast.Call(keywords=[]) | ast.Subscript():
            return ast.unparse(node)
        case ast.Call():
            raise ValueError("a call among the arguments is not run: make it first and pass its result")
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not a plain value")


def _key(node: ast.expr | None) -> Any:
    key = _value(node) if node is not None else None
    if isinstance(key, dict | list):
        raise ValueError("a key of a dictionary must be a plain value")
    return key
