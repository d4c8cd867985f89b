"""Arguments against documents: kinds, paths, and the benchmark's own documents and references."""

import json
from pathlib import Path

import bfcl_eval
import pytest

from env_service.environments.bfcl.catalog import load_tasks, tool_documents
from env_service.environments.bfcl.tools import argument_violations, parse_reference
from seal.method.diagnosis.constraints import constraints, prose
from seal.method.diagnosis.schema import violations, with_json_types

TOOLS = tool_documents()


def kinds(tool, arguments):
    return [(v.kind, v.path) for v in argument_violations(tool, arguments)]


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
    (found,) = argument_violations("setHeadlights", {"mode": "zebra"})
    assert found.message == "mode must be one of: on, off, auto"


def test_an_enum_of_its_own_is_respected():
    document = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string", "enum": ["a"]}}}}
    assert [v.kind for v in violations({"x": "b"}, document)] == ["enum"]
    assert violations({"x": "a"}, document) == ()


def test_references_keep_to_the_documents_and_to_what_their_prose_says():
    broken = []
    for task in load_tasks().values():
        for text in (text for turn in task.reference for text in turn):
            name, arguments = parse_reference(text)
            broken += [(name, v.kind) for v in argument_violations(name, arguments)]
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
    assert list(constraints(node, benchmark=True)) == expected


def test_every_marked_list_of_values_is_lifted():
    nodes = [node for tool in TOOLS.values() for node in tool["parameters"]["properties"].values()]
    marked = [node for node in nodes if "[Enum]" in node["description"]]
    assert len(marked) == 10
    assert all(any("enum" in c.schema and len(c.schema["enum"]) > 1 for c in prose(node)) for node in marked)


def single_turn_answers():
    """(arguments, document) of each official answer to the benchmark's single-turn tasks, by the file's name."""
    data = Path(bfcl_eval.__file__).parent / "data"
    for path in sorted((data / "possible_answer").glob("BFCL_v4_*.json")):
        if any(name in path.name for name in ("multi_turn", "memory", "web_search", "java")):
            continue
        tasks, answers = (
            [json.loads(line) for line in file.read_text().splitlines()] for file in (data / path.name, path)
        )
        for task, answer in zip(tasks, answers, strict=True):
            documents = {document["name"]: document for document in task["function"]}
            calls = [item for call in answer["ground_truth"] for item in call.items()]
            yield [(_first(arguments), documents[name]) for name, arguments in calls]


def _first(options):
    """The first value that is permitted for each argument; "" permits to leave it out."""
    given = {name: [value for value in values if value != ""] for name, values in options.items()}
    return {name: values[0] for name, values in given.items() if values}


def test_no_official_answer_breaks_its_own_document():
    answers = list(single_turn_answers())
    assert len(answers) == 2351
    assert [call for calls in answers for call in calls if violations(*call)] == []


def of(schema, required=("x",), **more):
    """A document with one argument of this schema."""
    parameters = {"type": "object", "properties": {"x": schema}, "required": list(required), **more}
    return {"name": "f", "parameters": parameters}


ANY_JSON = (None, True, 1, 2.5, "a", [1], {"a": 1})
ACCEPTED = {
    "whole numbers in enum": (of({"type": "integer", "enum": [10, 25]}), {"x": 25}),
    "a boolean in enum": (of({"enum": [True]}), {"x": True}),
    "an enum of another type": (of({"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]}), {"x": ["a"]}),
    "an enum of another type than the benchmark's": (of({"type": "dict", "enum": ["a"]}), {"x": {}}),
    "an enum of none of several types": (of({"type": ["integer", "null"], "enum": ["1", "2"]}), {"x": 1}),
    "an empty enum": (of({"enum": []}), {"x": 1}),
    "null in enum": (of({"type": ["string", "null"], "enum": ["asc", None]}), {"x": None}),
    "nullable": (of({"type": "string", "nullable": True}), {"x": None}),
    "nullable with enum": (of({"type": "string", "nullable": True, "enum": ["a"]}), {"x": None}),
    "nullable reference": (
        of({"$ref": "#/$defs/T", "nullable": True}, **{"$defs": {"T": {"type": "string"}}}),
        {"x": None},
    ),
    "Swagger's nullable": (of({"type": "string", "x-nullable": True}), {"x": None}),
    "a default of null": (of({"type": "string", "default": None}), {"x": None}),
    "a list of types": (of({"type": ["string", "null"]}), {"x": None}),
    "open arguments": (of({"type": "string"}), {"x": "a", "mode": "fast"}),
    "further arguments": (of({"type": "string"}, additionalProperties={"type": "integer"}), {"x": "a", "y": 1}),
    "a free object": (of({"type": "object", "properties": {}}), {"x": {"state": "open"}}),
    "a map": (of({"type": "object", "additionalProperties": {"type": "string"}}), {"x": {"team": "red"}}),
    "keys by pattern": (
        of({"type": "object", "patternProperties": {"^[A-Z]+$": {}}, "additionalProperties": False}),
        {"x": {"HOME": 1}},
    ),
    "allOf": (of({}, allOf=[{"properties": {"y": {"type": "string"}}, "required": ["y"]}]), {"x": 1, "y": "a"}),
    "$defs": (of({"$ref": "#/$defs/T"}, **{"$defs": {"T": {"type": "integer"}}}), {"x": 1}),
    "PHP's empty objects": (of({"type": "object", "properties": []}, patternProperties=[]), {"x": {"a": 1}}),
    "PHP's empty parameters": ({"name": "f", "parameters": []}, {"x": 1}),
    "Arrow's nulls": (
        of({"type": "string", "description": None, "enum": None, "items": None, "anyOf": None, "$ref": None}),
        {"x": "a"},
    ),
    "Arrow's null required": ({"name": "f", "parameters": {"type": "object", "required": None}}, {}),
    "an argument of other rows": (of({"type": "string"}, properties={"x": {}, "y": None}), {"x": "a", "y": None}),
    "prose: a date": (of({"type": "string", "description": "Birth (DD/MM/YYYY)."}), {"x": "24/11/1990"}),
    "prose: options": (of({"type": "string", "description": "Options: a, b or c"}), {"x": "c"}),
    "prose: a range": (of({"type": "integer", "description": "Pages hold between 1 and 50 rows."}), {"x": 73}),
    "prose: a multiple": (of({"type": "integer", "description": "A multiple of 10 is free."}), {"x": 15}),
    "prose: values": (of({"type": "string", "description": "'ls' for lists, 'cat' for text"}), {"x": "grep"}),
    "no valid schema: the benchmark's types": ({"name": "f", "parameters": {"type": "dict"}}, {"x": 1}),
    "no valid schema: a word": (of("string"), {"x": 1}),
    "no valid schema: draft 3": (of({"type": "string", "required": True}), {"x": 1}),
    "a reference to nothing": (of({"$ref": "#/$defs/Lost"}), {"x": 1}),
    "a reference to the network": (of({"$ref": "http://127.0.0.1:9/schema.json"}), {"x": 1}),
    "a reference to itself": (of({"$ref": "#/properties/x"}), {"x": 1}),
    "a pattern of JavaScript": (of({"type": "string", "pattern": "^(?<year>[0-9]+)$"}), {"x": "a"}),
    "a pattern between slashes": (of({"type": "string", "pattern": "/^[a-z]+$/i"}), {"x": "ABC"}),
    "a pattern of POSIX": (of({"type": "string", "pattern": "^[[:alpha:]]+$"}), {"x": "abc"}),
    "a whole number beyond floats": (of({"type": "integer"}), {"x": float("1e400")}),
    "a whole number with a point": (
        of({"type": "integer"}, **{"$schema": "http://json-schema.org/draft-04/schema#"}),
        {"x": 5.0},
    ),
    "null for a schema": (of({"oneOf": [{"type": "string"}, None]}), {"x": "a"}),
    "a number of 5,000 digits": (of({"type": "string"}), {"x": 10**5000}),
    "a multiple in decimals": (of({"type": "number", "multipleOf": 0.01}), {"x": 19.99}),
    "no parameters": ({"name": "f"}, {"x": 1}),
    "no JSON": (of({"type": "string", "examples": {"a"}}), {"x": 1}),
    "null in one branch and as a default": (
        of({"oneOf": [{"type": "string", "default": None}, {"type": "null"}]}),
        {"x": None},
    ),
    "no nullable text": (of({"not": {"type": "string", "nullable": True}}), {"x": None}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_call_that_its_document_permits_breaks_nothing(name):
    document, arguments = ACCEPTED[name]
    assert violations(arguments, document) == ()


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({}, {"type": "object"}),
        ([], {"type": "object"}),
        ({"properties": {"x": {"type": "float"}}}, {"properties": {"x": {"type": "number"}}, "type": "object"}),
        ({"type": "dict", "properties": {"x": {"type": "any"}}}, {"properties": {"x": {}}, "type": "object"}),
        ({"type": ["object", "null"]}, {"type": ["object", "null"]}),
    ],
)
def test_other_programs_get_a_schema_of_an_object_in_the_order_of_the_document(parameters, shown):
    assert list(with_json_types(parameters).items()) == list(shown.items())


def test_references_without_an_end_judge_nothing_wherever_the_stack_ends():
    document = of({"$ref": "#/$defs/T"}, **{"$defs": {"T": {"if": {"$ref": "#/$defs/T"}}}})

    def within(frames):
        return within(frames - 1) if frames else violations({"x": 1}, document)

    assert {within(frames) for frames in range(10)} == {()}


@pytest.mark.parametrize("value", ANY_JSON, ids=str)
@pytest.mark.parametrize("schema", [True, {}, None, []], ids=str)
def test_a_schema_that_says_nothing_permits_every_value(schema, value):
    assert violations({"x": value}, of(schema)) == ()


@pytest.mark.parametrize(
    ("document", "arguments", "kind", "message"),
    [
        (of({"type": "integer", "enum": [10, 25]}), {"x": 30}, "enum", "x must be one of: 10, 25"),
        (of({"type": ["string", "null"]}), {"x": 3}, "type", "x must be a string or null"),
        (of({"type": "string", "nullable": True}), {"x": 3}, "type", "x must be a string"),
        (of({"anyOf": [{"type": "string"}, {"type": "null"}]}), {"x": 3}, "type", "x must be a string"),
        (of({"anyOf": [{"type": "string"}, {"type": "array"}]}), {"x": 3}, "structure", "x must keep to the anyOf"),
        (of({}, additionalProperties=False), {"x": 1, "y": 2}, "unknown", "y is not an argument of this tool"),
        (of({}, additionalProperties={"type": "string"}), {"x": 1, "y": 2}, "type", "y must be a string"),
        (of({"type": "object", "minProperties": 1}), {"x": {}}, "structure", "x must keep to the minProperties"),
        (of({"type": "string", "pattern": "^a"}), {"x": "b"}, "structure", "x must keep to the pattern"),
        (of(False), {"x": 1}, "structure", "the arguments must keep to its schema"),
        (of({"$ref": "#/$defs/T"}, **{"$defs": {"T": {"type": "integer"}}}), {"x": "a"}, "type", "x must be a whole"),
        (of({}), {}, "missing", "required argument x is missing"),
        (of({"propertyNames": {"enum": ["a"]}}), {"x": {"c": 1}}, "structure", "x must keep to the propertyNames"),
        (of({"anyOf": [False, {"type": "string"}]}), {"x": 1}, "type", "x must be a string"),
        (of({"type": "number", "multipleOf": 5}), {"x": float("inf")}, "enum", "x must be a multiple of 5"),
        (of({"type": "integer"}), {"x": float("nan")}, "type", "x must be a whole number"),
        (of({"type": "integer"}), {"x": True}, "type", "x must be a whole number"),
        (of({"type": ["integer", "null"], "enum": [1, None]}), {"x": 2}, "enum", "x must be one of: 1, null"),
        (of({"type": "string", "pattern": "^/v1/"}), {"x": "b"}, "structure", "x must keep to the pattern"),
        (
            of(
                {"type": "number", "maximum": 3, "exclusiveMaximum": True},
                **{"$schema": "http://json-schema.org/draft-04/schema#"},
            ),
            {"x": 4},
            "enum",
            "x must be at most 3",
        ),
    ],
)
def test_what_a_document_refuses_is_named(document, arguments, kind, message):
    (found,) = violations(arguments, document)
    assert (found.kind, found.message[: len(message)]) == (kind, message)
