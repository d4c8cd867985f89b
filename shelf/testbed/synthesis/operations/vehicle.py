"""Operations of VehicleControlAPI."""

from typing import Any

from shelf.testbed.synthesis.operations.registry import FACTS, Drawn, Run, add, amount, calling, one_of, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage
from shelf.testbed.synthesis.world import DOORS

CLASS = "VehicleControlAPI"
TANK_GALLONS = 50
ZIP_CODES, ROADS = FACTS["zip_codes"], FACTS["roads"]


def _car(stage: Stage) -> Any:
    return stage.simulator(CLASS)


def _room(stage: Stage) -> int:
    """The whole gallons for which the tank still has room."""
    return int(TANK_GALLONS - _car(stage).fuelLevel)


FITTING = Drawn("x", lambda stage: stage.values.amount(1, _room(stage)), "amount")

add("fill", CLASS, calling("fillFuelTank", when=lambda stage: _room(stage) > 2, fuelAmount=FITTING))


@operation(CLASS, 2.5)
def fill_alt(stage: Stage) -> Slots | None:
    room, values = _room(stage), stage.values
    if room <= 4:
        return None
    other, too_much = values.amount(1, room - 1), values.chance(0.6)
    wanted = values.amount(room + 1, TANK_GALLONS + 10) if too_much else values.amount(int(other) + 1, room)
    if too_much:
        stage.fail("capacity", "fillFuelTank", fuelAmount=wanted)
        stage.call("fillFuelTank", fuelAmount=other)
    else:
        stage.call("fillFuelTank", fuelAmount=wanted)
    return {"x": Slot(wanted, "amount"), "y": Slot(other, "amount")}


@operation(CLASS, uses_results=True)
def fill_liter(stage: Stage) -> Slots | None:
    if _room(stage) <= 3:
        return None
    liters = stage.values.amount(4, _room(stage) * 3)
    gallons = stage.call("liter_to_gallon", liter=liters)["gallon"]
    stage.call("fillFuelTank", fuelAmount=gallons)
    return {"x": Slot(liters, "amount")}


def _some_door_is_open(stage: Stage) -> Any:
    return _car(stage).remainingUnlockedDoors


add("lock_all", CLASS, calling("lockDoors", when=_some_door_is_open, unlock=False, door=list(DOORS)))


def _one_door(unlock: bool, state: str) -> Run:
    def run(stage: Stage) -> Slots | None:
        door = stage.values.pick([door for door in DOORS if _car(stage).doorStatus[door] == state])
        if door is None:
            return None
        stage.call("lockDoors", unlock=unlock, door=[door])
        return {"d": Slot(door.replace("_", " "))}

    return run


add("lock_some", CLASS, _one_door(False, "unlocked"), 0.7)
add("unlock_some", CLASS, _one_door(True, "locked"), 0.7)


def _brake_is_pressed(stage: Stage) -> bool:
    return _car(stage).brakePedalStatus == "pressed"


add("brake_full", CLASS, calling("pressBrakePedal", when=lambda stage: not _brake_is_pressed(stage), pedalPosition=1.0))

TENTHS = Drawn("x", lambda stage: stage.values.integer(1, 9) / 10)

add("brake_part", CLASS, calling("pressBrakePedal", pedalPosition=TENTHS), 0.7)
add("release_brake", CLASS, calling("releaseBrakePedal", when=_brake_is_pressed), 0.7)


@operation(CLASS, 2)
def start(stage: Stage) -> Slots | None:
    car = _car(stage)
    if car.engine_state == "running":
        return None
    if _some_door_is_open(stage):
        stage.fail("order_of_steps", "startEngine", ignitionMode="START")
        stage.call("lockDoors", unlock=False, door=list(DOORS))
    if not _brake_is_pressed(stage) or car._brakePedalForce != 1000.0:
        stage.fail("order_of_steps", "startEngine", ignitionMode="START")
        stage.call("pressBrakePedal", pedalPosition=1.0)
    stage.call("startEngine", ignitionMode="START")
    return {}


def _is_parked(stage: Stage) -> bool:
    return _car(stage).parkingBrakeStatus == "engaged"


add("park_on", CLASS, calling("activateParkingBrake", when=lambda stage: not _is_parked(stage), mode="engage"))
add("park_off", CLASS, calling("activateParkingBrake", when=_is_parked, mode="release"), 0.7)
add("climate", CLASS, calling("adjustClimateControl", temperature=Drawn("x", amount(16, 29), "amount")))

MODE = Drawn("m", lambda stage: "off" if _car(stage).headLightStatus == "on" else "on")
SPEED, GAP = Drawn("x", amount(6, 18, 5), "amount"), Drawn("y", amount(5, 30, 10), "amount")
PART = Drawn("o", one_of("fuel", "battery", "doors", "climate", "headlights", "engine"))
CRUISE = {"speed": SPEED, "activate": True, "distanceToNextVehicle": GAP}

add("headlights", CLASS, calling("setHeadlights", mode=MODE))
add("status", CLASS, calling("displayCarStatus", option=PART))
add("cruise", CLASS, calling("setCruiseControl", when=lambda stage: _car(stage).engine_state == "running", **CRUISE))
add("zip", CLASS, calling("get_zipcode_based_on_city", city=Drawn("c", one_of(*ZIP_CODES))))


def _distance(stage: Stage, here: str, there: str) -> None:
    answer = stage.call("estimate_distance", cityA=ZIP_CODES[here], cityB=ZIP_CODES[there])
    stage.put_in_focus("miles", answer["distance"])


@operation(CLASS)
def distance_zip(stage: Stage) -> Slots:
    here, there = stage.values.sample(stage.values.pick(ROADS), 2)
    _distance(stage, here, there)
    return {"x": Slot(ZIP_CODES[here]), "y": Slot(ZIP_CODES[there])}


@operation(CLASS, 1.3, uses_results=True)
def distance_city(stage: Stage) -> Slots:
    here, there = stage.values.sample(stage.values.pick(ROADS), 2)
    for city in (here, there):
        stage.call("get_zipcode_based_on_city", city=city)
    _distance(stage, here, there)
    return {"x": Slot(here), "y": Slot(there)}


def _address(stage: Stage) -> str:
    values = stage.values
    street = f"{values.integer(10, 999)} {values.word().capitalize()} {values.pick(('St', 'Ave', 'Road', 'Lane'))}"
    return f"{street}, {values.pick(ZIP_CODES)}"


MILES = Drawn("x", lambda stage: stage.focus("miles") or stage.values.amount(10, 90, 10), "amount", "miles")

add("feasible", CLASS, calling("estimate_drive_feasibility_by_mileage", distance=MILES))
add("liter", CLASS, calling("liter_to_gallon", liter=Drawn("x", amount(2, 90), "amount")))
add("gallon", CLASS, calling("gallon_to_liter", gallon=Drawn("x", amount(2, 40), "amount")))
add("navigate", CLASS, calling("set_navigation", destination=Drawn("x", _address, "name")))
add("tires", CLASS, calling("check_tire_pressure"), 1.3)
add("tire_shop", CLASS, calling("find_nearest_tire_shop"), 0.8)


@operation(CLASS, uses_results=True)
def tire_nav(stage: Stage) -> Slots:
    address = stage.call("find_nearest_tire_shop")["shopLocation"]
    stage.call("set_navigation", destination=address)
    return {}


@operation(CLASS, 0.7)
def log(stage: Stage) -> Slots:
    text = stage.values.text()
    stage.call("display_log", messages=[text])
    return {"t": Slot(text, "text")}
