"""One tool compares ages with the date: an episode of another day can be played as it went then."""

import datetime

from env_service.environments.base import Guard
from env_service.environments.bfcl import clock
from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.bfcl.verifier import reference

ADULT = {"first_name": "Michael", "last_name": "Thompson", "date_of_birth": "2000-05-17", "passport_number": "US1"}
VERIFY = "verify_traveler_information"


def traveller():
    """A task whose reference verifies a traveller, with that call's arguments as text."""
    for task in load_tasks().values():
        for turn, calls in enumerate(task.reference):
            for index, call in enumerate(calls):
                if call.startswith(VERIFY):
                    return task, turn, index
    raise AssertionError("no reference verifies a traveller")


def test_the_day_decides_whether_a_traveller_is_of_age_in_calls_and_references():
    task, turn, index = traveller()
    now = reference(task)[turn].results[index]
    with clock.as_of(datetime.date(1950, 1, 1)):
        assert clock.today() == datetime.date(1950, 1, 1)
        then = reference(task)[turn].results[index]
    assert "18 years" in then and then != now
    assert clock.today() == datetime.date.today() and reference(task)[turn].results[index] == now


def test_the_last_day_before_a_birthday_and_the_birthday_differ():
    task, _, _ = traveller()
    results = []
    for day in (16, 17):
        with clock.as_of(datetime.date(2018, 5, day)):
            box = Toolbox(task)
            names = box.instances["TravelAPI"].user_first_name, box.instances["TravelAPI"].user_last_name
            own = ADULT | dict(zip(("first_name", "last_name"), names, strict=True))
            results.append(box.call(VERIFY, own).text)
    assert "18 years" in results[0] and "18 years" not in results[1]


def test_an_episode_says_its_day():
    with clock.as_of(datetime.date(2026, 1, 2)):
        info = BfclEnvironment().open("multi_turn_base_0", {"split": "val"}, Guard()).start()["info"]
    assert info["day"] == "2026-01-02"
