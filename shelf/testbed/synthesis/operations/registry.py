"""The operations by name: what can be asked for, on which simulator, and how often."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

Run = Callable[[Stage], Slots | None]
"""Draws arguments, makes the calls on the stage, and returns the slots of the phrases; None if a precondition fails."""


FACTS: Mapping[str, Any] = tomllib.loads(
    resources.files("shelf.testbed.synthesis.operations").joinpath("facts.toml").read_text("utf-8")
)
"""What the simulators know of the world."""


@dataclass(frozen=True)
class Operation:
    """One thing that a user can ask for.

    weight: how often it is drawn beside the others of its class. uses_results: a call
    takes an argument from the result of an earlier one.
    """

    name: str
    class_name: str
    run: Run
    weight: float = 1.0
    uses_results: bool = False


OPERATIONS: dict[str, Operation] = {}


def add(name: str, class_name: str, run: Run, weight: float = 1.0, uses_results: bool = False) -> None:
    """Register an operation."""
    OPERATIONS[name] = Operation(name, class_name, run, weight, uses_results)


def calling(tool: str, when: Callable[[Stage], Any] = lambda stage: True, **arguments: Any) -> Run:
    """An operation that makes one call, always with these arguments; when: its precondition."""

    def run(stage: Stage) -> Slots | None:
        if not when(stage):
            return None
        stage.call(tool, **arguments)
        return {}

    return run


def logging_in(class_name: str, logged_in: Callable[[Any], Any]) -> Run:
    """The login to a simulator; logged_in: whether its user is logged in already."""

    def run(stage: Stage) -> Slots | None:
        if logged_in(stage.simulator(class_name)):
            return None
        login, call = stage.credentials(class_name)
        stage.call(call.name, **call.arguments)
        if not login.password:
            return {"u": Slot(login.user)}
        return {"u": Slot(login.user, "name"), "p": Slot(login.password, "name")}

    return run


def operation(class_name: str, weight: float = 1.0, uses_results: bool = False) -> Callable[[Run], Run]:
    """Register the decorated function under its name; a trailing underscore does not count."""

    def register(run: Run) -> Run:
        add(run.__name__.rstrip("_"), class_name, run, weight, uses_results)
        return run

    return register
