"""Operations of MathAPI."""

from shelf.testbed.synthesis.operations.registry import Drawn, add, calling, operation, whole
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "MathAPI"
METRIC = ("km", "m", "cm", "mm")
IMPERIAL = (("cm", "in"), ("m", "ft"), ("km", "miles"), ("kg", "lb"), ("in", "cm"), ("ft", "m"))


def _numbers(stage: Stage) -> list[int]:
    return [stage.values.integer(1, 99) for _ in range(stage.values.integer(3, 5))]


NUMBERS = Drawn("l", _numbers, "list")

add("mean", CLASS, calling("mean", numbers=NUMBERS), 1.5)
add("std", CLASS, calling("standard_deviation", numbers=NUMBERS))
add("sum", CLASS, calling("sum_values", numbers=NUMBERS), 0.8)
add("max", CLASS, calling("max_value", numbers=NUMBERS), 0.8)
add("min", CLASS, calling("min_value", numbers=NUMBERS), 0.8)

FIRST, SECOND, SMALL = Drawn("x", whole(2, 99)), Drawn("y", whole(1, 99)), Drawn("x", whole(2, 9))

add("add", CLASS, calling("add", a=FIRST, b=SECOND), 0.8)
add("subtract", CLASS, calling("subtract", a=FIRST, b=SECOND), 0.8)
add("multiply", CLASS, calling("multiply", a=FIRST, b=SECOND), 0.8)
add("divide", CLASS, calling("divide", a=FIRST, b=SECOND), 0.8)
add("percentage", CLASS, calling("percentage", part=FIRST, whole=SECOND), 0.8)
add("power", CLASS, calling("power", base=SMALL, exponent=Drawn("y", whole(2, 9))), 0.8)

FRACTION = Drawn("x", lambda stage: stage.values.integer(10_000, 999_999) / 10_000)
NEGATIVE = Drawn("x", lambda stage: -stage.values.integer(2, 999))

add("round", CLASS, calling("round_number", number=FRACTION, decimal_places=Drawn("k", whole(1, 3))), 0.7)


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


add("abs", CLASS, calling("absolute_value", number=NEGATIVE), 0.5)
