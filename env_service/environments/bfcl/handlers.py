"""The calls in result rows of the official tool, read with the decoder of the handler that wrote them.

Importing the package's registry needs the package of every provider, so this module reads the registry's source and
imports only one handler's module. Some decoders evaluate text of the row as Python; here nothing of a row is run.
"""

import ast
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import data
from env_service.environments.bfcl.tools import parse_reference

Decoder = Callable[[Any], Sequence[str]]
"""From a step of a row to its calls as Python source, which the official tool runs; any error means no calls."""


class Handler(NamedTuple):
    """The class of a model's handler, and whether the model is called with tools (FC) or with a prompt."""

    module: str
    name: str
    is_fc_model: bool


class Decoded(NamedTuple):
    """The calls of a step. ran: the official tool runs part of it, if only a text that is not Python."""

    calls: tuple[Call, ...] = ()
    ran: bool = False


@cache
def handlers() -> Mapping[str, Handler]:
    """The handlers that the package registers, by the folder of their results."""
    source = ast.parse((data().parent / "constants" / "model_config.py").read_text(encoding="utf-8"))
    imports = (node for node in source.body if isinstance(node, ast.ImportFrom))
    modules = {alias.name: str(node.module) for node in imports for alias in node.names}
    found = {}
    for node in ast.walk(source):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(value, ast.Call):
                given = {item.arg: item.value for item in value.keywords}
                name, fc = ast.unparse(given["model_handler"]), ast.literal_eval(given["is_fc_model"])
                found[str(key.value).replace("/", "_")] = Handler(modules[name], name, fc)
    return found


@cache
def decoder(model: str) -> Decoder:
    """The decoder for results in a folder of this name; ValueError, in a sentence, if it needs a missing package."""
    handler = handlers()[model]
    try:
        made = getattr(importlib.import_module(handler.module), handler.name)
        _evaluating()  # imported here to report a missing package; `decode` would take that for a step without calls
    except ImportError as error:
        missing = f"{error.name}: {error.msg}" if error.name and error.name not in error.msg else error.msg
        raise ValueError(
            f"the official handler of {model} cannot be imported ({missing}), and the row has no inference_log with "
            f"its calls: install the handler's package, or write the rows with their inference_log"
        ) from None
    own = made.__new__(made)  # without its constructor, which needs API keys and opens clients
    own.is_fc_model, own.model_name, own.registry_name = handler.is_fc_model, model, model
    return lambda step: own.decode_execute(step, has_tool_call_tag=False)


def decode(step: Any, by: Decoder) -> Decoded:
    """The calls that the official evaluation runs for a step; ValueError if it would evaluate more than calls."""
    try:
        with _nothing_run(), warnings.catch_warnings(action="ignore"):
            texts = list(by(step))
    except _WouldRun as error:
        raise ValueError(f"the official handler evaluates {str(error)[:60]!r} as Python") from None
    except Exception:  # the official evaluation drops a step if its decoder raises anything
        return Decoded()
    return executed(texts)


def executed(texts: Sequence[Any]) -> Decoded:
    """The calls in the source texts that a decoder returned. ValueError for a text that runs more than a call."""
    if not texts or (len(texts) == 1 and not texts[0]):
        return Decoded()
    return Decoded(tuple(call for text in texts if (call := _call(text)) is not None), True)


def _call(text: Any) -> Call | None:
    """The text as a call; None for a text that calls nothing, which the tool turns into an error."""
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
    except (AttributeError, TypeError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"the official handler reads {str(text)[:60]!r} as a call") from None
    if not any(isinstance(node, ast.Call) for node in ast.walk(body)):
        return None
    try:
        return _plain(body) or parse_reference(text.strip())
    except (ValueError, TypeError):
        raise ValueError(f"the official evaluation runs {text[:60]!r}, which is more than a call") from None


def _plain(body: ast.expr) -> Call | None:
    """A call with named literal arguments; None for any other call."""
    if not isinstance(body, ast.Call) or body.args or not isinstance(body.func, ast.Name | ast.Attribute):
        return None
    if any(isinstance(node, ast.Call) for node in ast.walk(body.func)):
        return None
    if any(item.arg is None for item in body.keywords):
        return None
    return ast.unparse(body.func), {str(item.arg): ast.literal_eval(item.value) for item in body.keywords}


class _WouldRun(BaseException):
    """A decoder is about to evaluate more than literals; its own `except Exception` must not catch this."""


_STILL = ast.Expression | ast.expr_context | ast.Constant | ast.Name | ast.List | ast.Tuple | ast.Dict | ast.Set
"""The parts of an expression that runs nothing; a name that is not a literal is an error."""


def _literal(source: str) -> Any:
    try:
        return ast.literal_eval(source)
    except ValueError:
        if all(isinstance(node, _STILL) for node in ast.walk(ast.parse(source.strip(), mode="eval"))):
            raise
        raise _WouldRun(source) from None


@cache
def _evaluating() -> tuple[ModuleType, ...]:
    """The modules of the decoders that call `eval`."""
    names = ("utils", "local_inference.llama_3_1")
    return tuple(importlib.import_module(f"bfcl_eval.model_handler.{name}") for name in names)


@contextmanager
def _nothing_run() -> Iterator[None]:
    """Within the block, `eval` in the decoders' modules reads only literals."""
    modules = _evaluating()
    for module in modules:
        vars(module)["eval"] = _literal
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["eval"]
