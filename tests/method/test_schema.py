"""Arguments against documents: kinds, paths, and the benchmark's own documents and references."""

import pytest

from env_service.environments.bfcl.catalog import CLASSES, documents, load_tasks
from env_service.environments.bfcl.tools import parse_reference
from seal.method.diagnosis.constraints import constraints
from seal.method.diagnosis.schema import violations

TOOLS = {document["name"]: document for name in CLASSES for document in documents(name)}


def kinds(tool, arguments):
    return [(v.kind, v.path) for v in violations(arguments, TOOLS[tool])]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("cp", {"source": "a", "destination": "b"}, []),
        ("cp", {"source": "a"}, [("missing", "destination")]),
        ("cp", {}, [("missing", "destination"), ("missing", "source")]),
        ("cp", {"source": "a", "destination": "b", "force": True}, [("unknown", "force")]),
        ("cp", {"source": 1, "destination": "b"}, [("type", "source")]),
        ("add", {"a": 1, "b": 2.5}, []),
        ("add", {"a": "1", "b": True}, [("type", "a"), ("type", "b")]),
        ("tail", {"file_name": "a", "lines": 2.5}, [("type", "lines")]),
        ("mean", {"numbers": "1, 2"}, [("structure", "numbers")]),
        ("mean", {"numbers": [1, "2"]}, [("type", "numbers[1]")]),
        ("edit_ticket", {"ticket_id": 1, "updates": {"priority": 2}}, []),
        ("edit_ticket", {"ticket_id": 1, "updates": {"owner": "x"}}, [("unknown", "updates.owner")]),
        ("edit_ticket", {"ticket_id": 1, "updates": "x"}, [("structure", "updates")]),
        ("setHeadlights", {"mode": "on"}, []),
        ("setHeadlights", {"mode": "On"}, [("enum", "mode")]),
        ("lockDoors", {"unlock": True, "door": ["driver", "boot"]}, [("enum", "door[1]")]),
        ("create_ticket", {"title": "t", "priority": 9}, [("enum", "priority")]),
        ("setCruiseControl", {"speed": 62, "activate": True, "distanceToNextVehicle": 10}, [("enum", "speed")]),
        ("echo", {"content": "x", "file_name": None}, []),
        ("echo", {"content": None}, [("type", "content")]),
        ("echo", {"content": "x", "file_name": 3}, [("type", "file_name")]),
    ],
)
def test_kinds_and_paths(tool, arguments, expected):
    assert kinds(tool, arguments) == expected


def test_messages_tell_what_is_expected_and_never_the_value():
    (found,) = violations({"mode": "zebra"}, TOOLS["setHeadlights"])
    assert found.message == "mode must be one of: on, off, auto"


def test_an_enum_of_its_own_is_respected():
    document = {"name": "f", "parameters": {"type": "dict", "properties": {"x": {"type": "string", "enum": ["a"]}}}}
    assert [v.kind for v in violations({"x": "b"}, document)] == ["enum"]
    assert violations({"x": "a"}, document) == ()


def test_references_keep_to_the_documents_and_to_what_their_prose_says():
    broken = []
    for task in load_tasks().values():
        for text in (text for turn in task.reference for text in turn):
            name, arguments = parse_reference(text)
            broken += [(name, v.kind) for v in violations(arguments, TOOLS[name])]
    assert broken == [("close_ticket", "type")] * 4


@pytest.mark.parametrize(
    ("tool", "argument", "expected"),
    [
        ("authenticate_travel", "grant_type", ["one of read_write, read, write"]),
        ("get_flight_cost", "travel_class", ["one of economy, business, first"]),
        ("place_order", "order_type", ["one of Buy, Sell"]),
        ("wc", "mode", ["one of l, w, c"]),
        ("setCruiseControl", "speed", ["0 to 120", "a multiple of 5", "in m/h"]),
        ("pressBrakePedal", "pedalPosition", ["0 to 1"]),
        ("get_flight_cost", "travel_date", ["format YYYY-MM-DD"]),
        ("register_credit_card", "expiration_date", ["format MM/YYYY"]),
        ("mv", "destination", ["a bare name, no path"]),
        ("fillFuelTank", "fuelAmount", ["in gallons"]),
        ("ls", "a", []),
    ],
)
def test_constraints_in_prose_are_lifted(tool, argument, expected):
    node = TOOLS[tool]["parameters"]["properties"][argument]
    assert [constraint.text for constraint in constraints(node)] == expected


def test_every_marked_list_of_values_is_lifted():
    nodes = [node for tool in TOOLS.values() for node in tool["parameters"]["properties"].values()]
    marked = [node for node in nodes if "[Enum]" in node["description"]]
    assert len(marked) == 10
    assert all(any("enum" in c.schema and len(c.schema["enum"]) > 1 for c in constraints(node)) for node in marked)
