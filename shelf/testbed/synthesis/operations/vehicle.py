"""Operations of VehicleControlAPI."""

from typing import Any

from shelf.testbed.synthesis.operations.registry import Run, add, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage
from shelf.testbed.synthesis.world import DOORS

CLASS = "VehicleControlAPI"
TANK_GALLONS = 50
ZIP_CODES = {
    "Rivermist": "83214",
    "Stonebrook": "74532",
    "Maplecrest": "56108",
    "Silverpine": "62947",
    "Shadowridge": "71354",
    "Sunset Valley": "83462",
    "Oakendale": "47329",
    "Willowbend": "52013",
    "Crescent Hollow": "69238",
    "Autumnville": "51479",
    "San Francisco": "94016",
}
ROADS = (
    ("Rivermist", "Stonebrook"),
    ("Maplecrest", "Silverpine"),
    ("Shadowridge", "Sunset Valley"),
    ("Oakendale", "Willowbend"),
    ("Crescent Hollow", "Autumnville"),
    ("San Francisco", "Rivermist"),
    ("Silverpine", "Oakendale"),
    ("San Francisco", "Silverpine"),
    ("Stonebrook", "San Francisco"),
)
"""Pairs of cities whose distance the simulator knows."""


def _car(stage: Stage) -> Any:
    return stage.simulator(CLASS)


def _room(stage: Stage) -> int:
    """Whole gallons that the tank still takes."""
    return int(TANK_GALLONS - _car(stage).fuelLevel)


@operation(CLASS)
def fill(stage: Stage) -> Slots | None:
    if _room(stage) <= 2:
        return None
    gallons = stage.values.amount(1, _room(stage))
    stage.call("fillFuelTank", fuelAmount=gallons)
    return {"x": Slot(gallons, "amount")}


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


@operation(CLASS)
def lock_all(stage: Stage) -> Slots | None:
    if not _car(stage).remainingUnlockedDoors:
        return None
    stage.call("lockDoors", unlock=False, door=list(DOORS))
    return {}


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


@operation(CLASS)
def brake_full(stage: Stage) -> Slots | None:
    if _brake_is_pressed(stage):
        return None
    stage.call("pressBrakePedal", pedalPosition=1.0)
    return {}


@operation(CLASS, 0.7)
def brake_part(stage: Stage) -> Slots:
    position = stage.values.integer(1, 9) / 10
    stage.call("pressBrakePedal", pedalPosition=position)
    return {"x": Slot(position)}


@operation(CLASS, 0.7)
def release_brake(stage: Stage) -> Slots | None:
    if not _brake_is_pressed(stage):
        return None
    stage.call("releaseBrakePedal")
    return {}


@operation(CLASS, 2)
def start(stage: Stage) -> Slots | None:
    car = _car(stage)
    if car.engine_state == "running":
        return None
    if car.remainingUnlockedDoors:
        stage.fail("order_of_steps", "startEngine", ignitionMode="START")
        stage.call("lockDoors", unlock=False, door=list(DOORS))
    if not _brake_is_pressed(stage) or car._brakePedalForce != 1000.0:
        stage.fail("order_of_steps", "startEngine", ignitionMode="START")
        stage.call("pressBrakePedal", pedalPosition=1.0)
    stage.call("startEngine", ignitionMode="START")
    return {}


@operation(CLASS)
def park_on(stage: Stage) -> Slots | None:
    if _car(stage).parkingBrakeStatus == "engaged":
        return None
    stage.call("activateParkingBrake", mode="engage")
    return {}


@operation(CLASS, 0.7)
def park_off(stage: Stage) -> Slots | None:
    if _car(stage).parkingBrakeStatus != "engaged":
        return None
    stage.call("activateParkingBrake", mode="release")
    return {}


@operation(CLASS)
def climate(stage: Stage) -> Slots:
    degrees = stage.values.amount(16, 29)
    stage.call("adjustClimateControl", temperature=degrees)
    return {"x": Slot(degrees, "amount")}


@operation(CLASS)
def headlights(stage: Stage) -> Slots:
    mode = "off" if _car(stage).headLightStatus == "on" else "on"
    stage.call("setHeadlights", mode=mode)
    return {"m": Slot(mode)}


@operation(CLASS)
def status(stage: Stage) -> Slots:
    option = stage.values.pick(("fuel", "battery", "doors", "climate", "headlights", "engine"))
    stage.call("displayCarStatus", option=option)
    return {"o": Slot(option)}


@operation(CLASS)
def cruise(stage: Stage) -> Slots | None:
    if _car(stage).engine_state != "running":
        return None
    speed, distance = stage.values.amount(6, 18, 5), stage.values.amount(5, 30, 10)
    stage.call("setCruiseControl", speed=speed, activate=True, distanceToNextVehicle=distance)
    return {"x": Slot(speed, "amount"), "y": Slot(distance, "amount")}


@operation(CLASS)
def zip_(stage: Stage) -> Slots:
    city = stage.values.pick(ZIP_CODES)
    stage.call("get_zipcode_based_on_city", city=city)
    return {"c": Slot(city)}


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


@operation(CLASS)
def feasible(stage: Stage) -> Slots:
    miles = stage.focus("miles") or stage.values.amount(10, 90, 10)
    stage.call("estimate_drive_feasibility_by_mileage", distance=miles)
    return {"x": stage.mention("miles", miles, "amount")}


def _conversion(tool: str, argument: str, high: int) -> Run:
    def run(stage: Stage) -> Slots:
        volume = stage.values.amount(2, high)
        stage.call(tool, **{argument: volume})
        return {"x": Slot(volume, "amount")}

    return run


add("liter", CLASS, _conversion("liter_to_gallon", "liter", 90))
add("gallon", CLASS, _conversion("gallon_to_liter", "gallon", 40))


@operation(CLASS)
def navigate(stage: Stage) -> Slots:
    values = stage.values
    street = f"{values.integer(10, 999)} {values.word().capitalize()} {values.pick(('St', 'Ave', 'Road', 'Lane'))}"
    address = f"{street}, {values.pick(ZIP_CODES)}"
    stage.call("set_navigation", destination=address)
    return {"x": Slot(address, "name")}


@operation(CLASS, 1.3)
def tires(stage: Stage) -> Slots:
    stage.call("check_tire_pressure")
    return {}


@operation(CLASS, 0.8)
def tire_shop(stage: Stage) -> Slots:
    stage.call("find_nearest_tire_shop")
    return {}


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
