"""The operations by name: what a task can ask for, on which simulator, and how often."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from shelf.testbed.synthesis.path import Slot, Slots, Style
from shelf.testbed.synthesis.stage import Stage

Run = Callable[[Stage], Slots | None]
"""Draws arguments, makes the calls on the stage, and returns the slots of the phrases; None if a precondition fails."""

FACTS: Mapping[str, Any] = tomllib.loads(
    resources.files("shelf.testbed.synthesis.operations").joinpath("facts.toml").read_text("utf-8")
)
"""Facts about the world that the simulators know."""


@dataclass(frozen=True)
class Operation:
    """One thing for which a user can ask.

    weight: how often it is drawn, relative to the others of its class. uses_results: a
    call takes an argument from the result of an earlier call.
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


Draw = Callable[[Stage], Any]
"""Draws a value that fits the current state of the simulators; None if there is none."""


@dataclass(frozen=True)
class Drawn:
    """An argument that is drawn, and the slot of the phrases that says it.

    style: how a message writes it. thing: its kind of thing, if messages may refer back to it.
    """

    slot: str
    draw: Draw
    style: Style = "plain"
    thing: str = ""


def calling(
    tool: str,
    /,
    *,
    when: Draw = lambda stage: True,
    creates: tuple[str, str] | None = None,
    drops: str = "",
    **arguments: Any,
) -> Run:
    """An operation that makes one call; its arguments are drawn (`Drawn`) in order, or are constant.

    when: its precondition. creates: the kind of thing that it makes, and the key of its id in the result. drops: the
    kind of thing that later messages must name again.
    """

    def run(stage: Stage) -> Slots | None:
        if not when(stage):
            return None
        values = dict(arguments)
        drawn = {name: argument for name, argument in arguments.items() if isinstance(argument, Drawn)}
        for name, argument in drawn.items():
            values[name] = argument.draw(stage)
            if values[name] is None:
                return None
        result = stage.call(tool, **values)
        if creates is not None:
            stage.created(creates[0], result[creates[1]])
        slots = {argument.slot: _slot(stage, argument, values[name]) for name, argument in drawn.items()}
        stage.drop_focus(drops)
        return slots

    return run


def _slot(stage: Stage, drawn: Drawn, value: Any) -> Slot:
    return stage.mention(drawn.thing, value, drawn.style) if drawn.thing else Slot(value, drawn.style)


def text(stage: Stage) -> str:
    """Draw a short text."""
    return stage.values.text()


def whole(low: int, high: int) -> Draw:
    """Draw a whole number from low to high."""
    return lambda stage: stage.values.integer(low, high)


def amount(low: int, high: int, unit: int = 1) -> Draw:
    """Draw a multiple of `unit`."""
    return lambda stage: stage.values.amount(low, high, unit)


def money(stage: Stage) -> float:
    """Draw a sum of money."""
    return stage.values.amount(1, 60, stage.values.pick((10, 50, 100, 100)))


def one_of(*items: Any) -> Draw:
    """Draw one of these items."""
    return lambda stage: stage.values.pick(items)


def logging_in(class_name: str, logged_in: Callable[[Any], Any]) -> Run:
    """The login to a simulator. logged_in: says whether its user is already logged in."""

    def run(stage: Stage) -> Slots | None:
        if logged_in(stage.simulator(class_name)):
            return None
        login, call = stage.credentials(class_name)
        stage.call(call.name, **call.arguments)
        if not login.password:
            return {"u": Slot(login.user)}
        return {"u": Slot(login.user, "name"), "p": Slot(login.password, "name")}

    return run


def logging_out(class_name: str, tool: str, logged_in: Callable[[Any], Any]) -> Run:
    """The logout from a simulator, after which the task asks it for nothing more."""

    def run(stage: Stage) -> Slots | None:
        if not logged_in(stage.simulator(class_name)):
            return None
        stage.call(tool)
        stage.finished.add(class_name)
        return {}

    return run


def operation(class_name: str, weight: float = 1.0, uses_results: bool = False) -> Callable[[Run], Run]:
    """Register the decorated function under its name; a trailing underscore does not count."""

    def register(run: Run) -> Run:
        add(run.__name__.rstrip("_"), class_name, run, weight, uses_results)
        return run

    return register
