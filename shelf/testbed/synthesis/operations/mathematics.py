"""Operations of MathAPI."""

from shelf.testbed.synthesis.operations.registry import Run, add, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "MathAPI"
METRIC = ("km", "m", "cm", "mm")
IMPERIAL = (("cm", "in"), ("m", "ft"), ("km", "miles"), ("kg", "lb"), ("in", "cm"), ("ft", "m"))


def _of_numbers(tool: str) -> Run:
    def run(stage: Stage) -> Slots:
        numbers = [stage.values.integer(1, 99) for _ in range(stage.values.integer(3, 5))]
        stage.call(tool, numbers=numbers)
        return {"l": Slot(numbers, "list")}

    return run


add("mean", CLASS, _of_numbers("mean"), 1.5)
add("std", CLASS, _of_numbers("standard_deviation"))
add("sum", CLASS, _of_numbers("sum_values"), 0.8)
add("max", CLASS, _of_numbers("max_value"), 0.8)
add("min", CLASS, _of_numbers("min_value"), 0.8)


def _of_two(tool: str, first: str, second: str, low: int = 1, high: int = 99) -> Run:
    def run(stage: Stage) -> Slots:
        x, y = stage.values.integer(2, high), stage.values.integer(low, high)
        stage.call(tool, **{first: x, second: y})
        return {"x": Slot(x), "y": Slot(y)}

    return run


add("add", CLASS, _of_two("add", "a", "b"), 0.8)
add("subtract", CLASS, _of_two("subtract", "a", "b"), 0.8)
add("multiply", CLASS, _of_two("multiply", "a", "b"), 0.8)
add("divide", CLASS, _of_two("divide", "a", "b"), 0.8)
add("percentage", CLASS, _of_two("percentage", "part", "whole"), 0.8)
add("power", CLASS, _of_two("power", "base", "exponent", low=2, high=9), 0.8)


@operation(CLASS, 0.7)
def round_(stage: Stage) -> Slots:
    number, places = stage.values.integer(10_000, 999_999) / 10_000, stage.values.integer(1, 3)
    stage.call("round_number", number=number, decimal_places=places)
    return {"x": Slot(number), "k": Slot(places)}


def _units(stage: Stage, tool: str, have: str, want: str) -> Slots:
    value = stage.values.integer(2, 500)
    stage.call(tool, value=value, unit_in=have, unit_out=want)
    return {"x": Slot(value), "a": Slot(have), "b": Slot(want)}


@operation(CLASS, 0.7)
def si(stage: Stage) -> Slots:
    return _units(stage, "si_unit_conversion", *stage.values.sample(METRIC, 2))


@operation(CLASS, 0.7)
def imperial(stage: Stage) -> Slots:
    return _units(stage, "imperial_si_conversion", *stage.values.pick(IMPERIAL))


@operation(CLASS, 0.5)
def abs_(stage: Stage) -> Slots:
    number = -stage.values.integer(2, 999)
    stage.call("absolute_value", number=number)
    return {"x": Slot(number)}
