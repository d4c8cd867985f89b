"""From a call to a simulator's method, without evaluating text.

The official package writes a call as Python source and evaluates it. Here the method is looked up among the documented
tools of the task's classes and called with values. `_as_source_reads_it` reproduces on the values what the detour
through source text does to a call, so results equal the package's.

Each :class:`Toolbox` owns its simulators: nothing that one toolbox does is visible to another in the same process.
"""

import ast
import decimal
import importlib
import inspect
import json
import keyword
import marshal
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import mpmath

from env_service.environments.bfcl.catalog import CLASSES, Task, documents, tool_documents
from env_service.environments.bfcl.schema import json_schema
from env_service.environments.kit.tasks import Outcome
from seal.method.diagnosis.evidence import CallError, Violation
from seal.method.diagnosis.schema import Schema, broken

_CALLED_NAME = re.compile(r"\b([a-zA-Z_]\w*)\s*(?=\()")
_MAX_BRACKETS = 199
_DENIED = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
_DECIMAL_DIGITS, _MPMATH_DIGITS = 28, 15


_WRITES = """
cp echo mkdir mv rm rmdir touch
add_contact delete_message message_login send_message
authenticate_twitter comment follow_user mention post_tweet retweet unfollow_user
close_ticket create_ticket edit_ticket logout resolve_ticket ticket_login
add_to_watchlist cancel_order fund_account place_order remove_stock_from_watchlist trading_login trading_logout
withdraw_funds
authenticate_travel book_flight cancel_booking purchase_insurance register_credit_card set_budget_limit
activateParkingBrake adjustClimateControl fillFuelTank lockDoors pressBrakePedal releaseBrakePedal
setCruiseControl setHeadlights set_navigation startEngine
"""
WRITES: frozenset[str] = frozenset(_WRITES.split())
"""The tools that can change the state that the verifier compares; all others only read it."""


class _SourceError(ValueError):
    """The package's own source text of this call would not compile or evaluate."""


@cache
def simulator_class(class_name: str) -> type:
    from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

    return getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[class_name]), class_name)


@cache
def owners() -> Mapping[str, str]:
    """Tool name -> simulator class."""
    return {document["name"]: name for name in CLASSES for document in documents(name)}


@cache
def _signature(tool: str) -> inspect.Signature:
    signature = inspect.signature(getattr(simulator_class(owners()[tool]), tool))
    return signature.replace(parameters=tuple(signature.parameters.values())[1:])


def parse_reference(call: str) -> tuple[str, dict[str, Any]]:
    """Split a reference call string into a tool name and keyword arguments.

    Positional arguments get their names from the method's signature, as the package would bind them. ValueError unless
    the text is one call of a documented tool with literal arguments.
    """
    try:
        node = ast.parse(call, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"Reference call {call!r} is not Python: {error}.") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in owners():
        raise ValueError(f"Reference call {call!r} is not a call of a documented tool.")
    names = tuple(_signature(node.func.id).parameters)
    if len(node.args) > len(names):
        raise ValueError(f"Reference call {call!r} has more positional arguments than {node.func.id} takes.")
    arguments = {name: ast.literal_eval(value) for name, value in zip(names, node.args, strict=False)}
    arguments |= {item.arg: ast.literal_eval(item.value) for item in node.keywords if item.arg is not None}
    return node.func.id, arguments


def argument_violations(tool: str, arguments: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return how the arguments break the tool's document; () for an unknown tool."""
    if tool not in owners():
        return ()
    try:
        return _violations(tool, marshal.dumps(arguments))
    except (ValueError, RecursionError, TypeError):  # marshal and jsonschema limit the depth; 1j has no order
        return (Violation("structure", "", "the arguments are nested too deeply or hold a complex number"),)


@lru_cache(maxsize=4096)
def _violations(tool: str, arguments: bytes) -> tuple[Violation, ...]:
    # Rollouts of one task repeat each other's calls, and a check costs as much as a call.
    return broken(marshal.loads(arguments), _schema(tool))


@cache
def _schema(tool: str) -> Schema:
    return json_schema(tool_documents()[tool]["parameters"])


class Toolbox:
    """The clean, isolated simulators of one task."""

    def __init__(self, task: Task, label: str = "model", defaults: Mapping[str, list[str]] | None = None) -> None:
        """Load the task's initial state.

        label only distinguishes the names that the package's renaming writes into strings. defaults
        holds the lists that `post_tweet` uses when a call omits them; None creates new lists.
        """
        # The package's own defaults are two lists per process, and `mention` appends to them.
        self.tweet_defaults = {"tags": [], "mentions": []} if defaults is None else defaults
        self.instances: dict[str, Any] = {name: _load(name, task) for name in task.involved_classes}
        self._methods: dict[str, Callable[..., Any]] = {}
        self._instance_names: dict[str, str] = {}
        for class_name, instance in self.instances.items():
            instance_name = re.sub(r"[-./:]", "_", f"{label}_{task.id}_{class_name}_instance")
            for document in documents(class_name):
                self._methods[document["name"]] = getattr(instance, document["name"])
                self._instance_names[document["name"]] = instance_name

    def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Run one call; every failure is an outcome, never an exception of the simulator."""
        method = self._methods.get(name.strip())
        if method is None:
            reason = f"Function call {name} is not allowed." if name in _DENIED else f"name '{name}' is not defined"
            return _failed(reason, "unavailable")
        try:
            values = {_keyword(key): self._as_source_reads_it(value, 1) for key, value in arguments.items()}
        except _SourceError as error:
            return _failed(str(error), "signature")
        if name.strip() == "post_tweet":
            values = {**self.tweet_defaults, **values}
        try:
            _signature(method.__name__).bind(**values)
            error_class: CallError = "execution"
        except TypeError:
            error_class = "signature"
        decimal.getcontext().prec, mpmath.mp.dps = _DECIMAL_DIGITS, _MPMATH_DIGITS
        try:
            result = method(**values)
            text = _render(result)
        except MemoryError:
            raise  # the service sets this limit and answers the error; the package has no limits
        except Exception as error:  # the package turns every exception of a tool into a result
            return _failed(str(error), error_class)
        reported = isinstance(result, dict) and bool(result.get("error"))
        return Outcome(text, "execution" if reported else None)

    def _as_source_reads_it(self, value: Any, depth: int) -> Any:
        """The value after the package's round trip through source text, as a fresh copy.

        There a word loses the blanks before "(", and a tool's name gets its simulator's as a prefix, in strings too.
        """
        if isinstance(value, str):
            return self._renamed(value) if "(" in value else value
        if isinstance(value, float) and not math.isfinite(value):
            raise _SourceError(f"name '{str(value).lstrip('-')}' is not defined")
        if depth > _MAX_BRACKETS and isinstance(value, list | tuple | dict):
            raise _SourceError("too many nested parentheses (<string>, line 1)")
        if isinstance(value, list | tuple):
            return type(value)(self._as_source_reads_it(item, depth + 1) for item in value)
        if isinstance(value, dict):
            return {
                self._as_source_reads_it(key, depth + 1): self._as_source_reads_it(item, depth + 1)
                for key, item in value.items()
            }
        return value

    def _renamed(self, text: str) -> str:
        def rename(match: re.Match[str]) -> str:
            name = match.group(1)
            return f"{self._instance_names[name]}.{name}" if name in self._instance_names else name

        return ast.literal_eval(_CALLED_NAME.sub(rename, repr(text)))


def _load(class_name: str, task: Task) -> Any:
    from bfcl_eval.constants.executable_backend_config import STATELESS_CLASSES

    instance = simulator_class(class_name)()
    if class_name in STATELESS_CLASSES:
        return instance
    # Plain data: marshal makes a fresh copy several times faster than deepcopy.
    state = marshal.loads(marshal.dumps(task.initial_config.get(class_name, {})))
    instance._load_scenario(state, long_context=task.long_context)
    if task.long_context and class_name == "TravelAPI":
        # The inflated scenario inserts the module's own dictionaries: without a copy, episodes would share them.
        instance.credit_card_list = marshal.loads(marshal.dumps(instance.credit_card_list))
        instance.booking_record = marshal.loads(marshal.dumps(instance.booking_record))
    return instance


def _keyword(key: str) -> str:
    """The parameter name that Python source would read in `key`."""
    name = unicodedata.normalize("NFKC", key.strip(" \t\r\n\f"))
    if not name.isidentifier() or keyword.iskeyword(name):
        raise _SourceError("invalid syntax (<string>, line 1)")
    return name


def _render(result: Any) -> str:
    if type(result) is dict:
        with suppress(TypeError, ValueError, RecursionError):
            return json.dumps(result)
    return str(result)


def _failed(reason: str, error: CallError) -> Outcome:
    return Outcome(f"Error during execution: {reason}", error)
