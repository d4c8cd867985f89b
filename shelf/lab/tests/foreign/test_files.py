"""Files of other programs: what a reader does not understand is left out and named, and all else is read."""

import gzip
import json
import re

import pytest

from seal.cli.main import execute, load
from seal.records.source import WHOLE as WHOLE_TASK
from seal.records.trajectory import TrajectoryRecord

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["id", "cents"],
}
TOOL = {"type": "function", "function": {"name": "refund", "parameters": SCHEMA}}
ASKED = {"role": "user", "content": "Refund order 7."}
WRONG = {"id": "7", "cents": "all"}
RIGHT = {"id": "7", "cents": 5}


def said(**more) -> dict:
    return {"role": "assistant", "content": None, **more}


def called(arguments: dict, name: str = "c") -> dict:
    made = {"id": name, "type": "function", "function": {"name": "refund", "arguments": json.dumps(arguments)}}
    return said(tool_calls=[made])


def row(*messages: dict, **more) -> dict:
    return {"task_id": "t", "reward": 0.0, "tools": [TOOL], "messages": list(messages), **more}


WHOLE = (ASKED, called(WRONG), {"role": "tool", "tool_call_id": "c", "content": "no"}, said(content="Done."))


def diagnose(tmp_path, *paths, code=0) -> list[TrajectoryRecord]:
    arguments = ["rollouts", *map(str, paths), "--out", str(tmp_path / "out"), "--processes", "1"]
    assert execute(load("diagnose"), arguments, "seal diagnose") == code
    log = tmp_path / "out" / "validation_log" / "0.jsonl"
    return [TrajectoryRecord.from_json(line) for line in log.read_text().splitlines()] if code < 2 else []


def written(tmp_path, *rows) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in rows))
    return str(file)


def test_what_is_left_out_is_named_once_for_each_reason_and_file_with_its_line(tmp_path, capsys):
    rows = [row(*WHOLE)] * 99 + [row()] + [row(*WHOLE, reward="much")] * 3
    rows += [row(ASKED, said(content=f"<tool_call>{text}</tool_call>")) for text in ("a", "b: c", '{"d": \'e')]
    assert len(diagnose(tmp_path, written(tmp_path, *rows), code=1)) == 99
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out")]
    assert len(lines) == 3 and "rows.jsonl:100: " in lines[0]
    assert "rows.jsonl:101 and 2 more lines: " in lines[1] and "rows.jsonl:104 and 2 more lines: " in lines[2]


def test_a_folder_of_files_with_one_fault_is_one_sentence(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"messages": []} if number else row(*WHOLE)))
    assert len(diagnose(tmp_path, tmp_path / "in", code=1)) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out")]
    assert re.search(r"in/1\.json:1 and 38 more lines of 39 files", line)


def test_labels_are_exact_only_where_one_is_the_benchmark_s_and_a_pass_says_whose_word_it_is(tmp_path, capsys):
    (record,) = diagnose(tmp_path, written(tmp_path, row(ASKED, called(RIGHT), reward=1.0)))
    assert record.passed and record.diagnosis[0]["label"] == "pass"
    assert "reward of 1 was read" in record.diagnosis[0]["reason"] and "labels are exact" not in capsys.readouterr().out


@pytest.mark.parametrize("whole", [False, True])
def test_a_number_of_too_many_digits_leaves_out_its_row_alone(tmp_path, capsys, whole):
    huge = json.dumps(row(*WHOLE, seen=0)).replace('"seen": 0', '"seen": ' + "7" * 5000)
    rows = [json.dumps(row(*WHOLE)), json.dumps(row(*WHOLE)), huge]
    file = tmp_path / "rows.jsonl"
    file.write_text(f"[{', '.join(rows)}]" if whole else "\n".join(rows) + "\n")
    assert len(diagnose(tmp_path, file, code=1)) == 2
    said = capsys.readouterr().out
    assert "rows.jsonl:3: " in said and "set_int_max_str_digits" not in said


TEXT = json.dumps
DIALOGUE = list(WHOLE)
ANSWER = said(content="Done.")
ARGS = {"name": "refund", "args": WRONG, "id": "c"}
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Refund order 7."}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "refund", "arguments": WRONG}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "no"}]},
    {"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "Done."}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "Refund order 7."}]},
    {"role": "model", "parts": [{"functionCall": {"name": "refund", "args": WRONG}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "refund", "response": {"result": "no"}}}]},
    {"role": "model", "parts": [{"text": "Done."}]},
]
BEDROCK = [
    {"role": "user", "content": [{"text": "Refund order 7."}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "refund", "input": WRONG}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"json": {"x": 1}}]}}]},
    {"role": "assistant", "content": [{"text": "Done."}]},
]
LANGCHAIN = [
    {"type": "human", "content": "Refund order 7."},
    {
        "type": "ai",
        "content": [{"type": "tool_use", "id": "c", "name": "refund", "input": WRONG}],
        "tool_calls": [ARGS],
    },
    {"type": "tool", "content": "no", "tool_call_id": "c", "status": "success"},
    {"type": "ai", "content": "Done."},
]
SHAREGPT = [
    {"from": "human", "value": "Refund order 7."},
    {"from": "function_call", "value": TEXT({"name": "refund", "arguments": WRONG})},
    {"from": "observation", "value": "no"},
    {"from": "gpt", "value": "Done."},
]
ITEM = {"type": "function_call", "call_id": "c", "name": "refund", "arguments": TEXT(WRONG)}
ENDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
RESPONSE = {"object": "response", "output": [ITEM, ENDS], "tools": [{"type": "function", **TOOL["function"]}]}
ASKED_ALONE = {"messages": [ASKED], "tools": [TOOL], "reward": 0}


def renamed(**names: str) -> list[dict]:
    return [{**each, "role": names.get(each["role"], each["role"])} for each in DIALOGUE]


def answered(**answer) -> dict:
    return {"messages": DIALOGUE[:-1], "tools": [TOOL], "reward": 0, **answer}


NO_CALL = [None, {"id": None, "type": "function", "function": {"name": None, "arguments": None}}]
REQUEST = {"messages": DIALOGUE[:-1], "tools": [TOOL]}
SHAPES = {
    "capitals": row(*renamed(user="User", assistant="Assistant", tool="TOOL")),
    "human and ai": row(*renamed(user="human", assistant="ai")),
    "model": row(*renamed(assistant="model")),
    "OpenTelemetry's parts": row(*PARTS),
    "OpenTelemetry's attributes": {
        "attributes": {"gen_ai.input.messages": TEXT(PARTS[:3]), "gen_ai.output.messages": TEXT(PARTS[3:])},
        "tools": [TOOL],
        "reward": 0,
    },
    "Gemini": row(*GEMINI),
    "Bedrock": row(*BEDROCK),
    "LangChain": row(*LANGCHAIN),
    "LangChain, dumped": row(*({"lc": 1, "id": ["x", "HumanMessage"], "kwargs": each} for each in LANGCHAIN)),
    "LangChain's data": row(*({"type": each["type"], "data": each} for each in LANGCHAIN)),
    "ShareGPT": {"conversations": SHAREGPT, "tools": TEXT([TOOL]), "reward": 0},
    "args": row(ASKED, said(tool_calls=[ARGS]), *DIALOGUE[2:]),
    "a function as text": row(ASKED, said(tool_calls=[{"function": TEXT(ARGS)}]), *DIALOGUE[2:]),
    "AI SDK": row(
        ASKED,
        said(content=[{"type": "tool-call", "toolCallId": "c", "toolName": "refund", "input": WRONG}]),
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c", "output": {"type": "text", "value": "no"}}],
        },
        ANSWER,
    ),
    "an answer in response": answered(response="Done."),
    "an answer in choices": answered(choices=[{"index": 0, "message": ANSWER}]),
    "an answer in a response's choices": answered(response={"choices": [{"message": ANSWER}]}),
    "an answer in completion": {**ASKED_ALONE, "completion": DIALOGUE[1:]},
    "an answer in output": {**ASKED_ALONE, "output": TEXT(DIALOGUE[1:])},
    "an answer that the messages hold": row(*WHOLE, response="Done."),
    "an empty field before the answer": answered(choices=[], completion="", response="Done."),
    "an answer in Anthropic's parts": answered(response={"content": [{"type": "text", "text": "Done."}]}),
    "LiteLLM": {
        "messages": DIALOGUE[:-1],
        "response": {"choices": [{"message": ANSWER, "finish_reason": "stop"}]},
        "model_parameters": {"tools": [TOOL]},
        "error_str": None,
    },
    "Gemini's request and its answer": {
        "contents": GEMINI[:-1],
        "candidates": [{"content": GEMINI[-1], "finishReason": "STOP"}],
        "tools": [{"functionDeclarations": [TOOL["function"]]}, {"googleSearch": {}}],
    },
    "Bedrock's request and its answer": {
        "messages": BEDROCK[:-1],
        "output": {"message": BEDROCK[-1]},
        "toolConfig": {"tools": [{"toolSpec": {"name": "refund", "inputSchema": {"json": SCHEMA}}}]},
    },
    "a batch of one": row([*LANGCHAIN]),
    "a request and a response": {
        "request": {**ASKED_ALONE, "messages": DIALOGUE[:-1]},
        "response": {"message": ANSWER},
    },
    "text": {**row(), "messages": TEXT(DIALOGUE), "tools": TEXT([TOOL])},
    "prompt and completion as text": {
        "prompt": TEXT([ASKED]),
        "completion": TEXT(DIALOGUE[1:]),
        "info": TEXT({"oai_tools": [TOOL]}),
        "reward": 0,
    },
    "a prompt that is the first of the messages": row(*WHOLE, prompt="Refund order 7."),
    "tau-bench": {"task_id": 0, "reward": 0.0, "info": {"task": {}}, "traj": DIALOGUE, "trial": 0, "tools": [TOOL]},
    "a Responses object": {**RESPONSE, "reward": 0},
    "a Responses object beside its input": {"input": [ASKED], "response": RESPONSE, "reward": 0},
    "a Responses object beside messages": {**ASKED_ALONE, "response": RESPONSE},
    "MCP": row(*WHOLE, tools=[{"name": "refund", "inputSchema": SCHEMA}]),
    "Bedrock's tools": row(
        *WHOLE, tools={"tools": [{"toolSpec": {"name": "refund", "inputSchema": {"json": SCHEMA}}}]}
    ),
    "Gemini's tools": row(
        *WHOLE, tools=[{"functionDeclarations": [{"name": "refund", "parametersJsonSchema": SCHEMA}]}]
    ),
    "Cohere's tools": row(
        *WHOLE,
        tools=[{"name": "refund", "parameter_definitions": {"id": {"type": "str"}, "cents": {"type": "int"}}}],
    ),
    "tools by name": row(*WHOLE, tools={"refund": SCHEMA}),
    "AI SDK's tools": row(*WHOLE, tools={"refund": {"description": "Pays.", "inputSchema": {"jsonSchema": SCHEMA}}}),
    "tools with a description by name": row(*WHOLE, tools={"refund": {"description": "Pays.", "parameters": SCHEMA}}),
    "tools by server": row(*WHOLE, tools={"shop": {"tools": [{"name": "refund", "inputSchema": SCHEMA}]}}),
    "LlamaIndex's blocks": row(
        {"role": "user", "blocks": [{"block_type": "text", "text": "Refund order 7."}]},
        {"role": "assistant", "blocks": [{"block_type": "tool_call", "tool_name": "refund", "tool_kwargs": WRONG}]},
        {"role": "tool", "blocks": [{"block_type": "text", "text": "no"}]},
        {"role": "assistant", "blocks": [{"block_type": "text", "text": "Done."}]},
    ),
    "MCP's sampling": row(
        ASKED,
        said(content={"type": "tool_use", "id": "c", "name": "refund", "input": WRONG}),
        {"role": "user", "content": {"type": "tool_result", "toolUseId": "c", "content": []}},
        said(content={"type": "text", "text": "Done."}),
    ),
    "a batch of one of items": row(
        [ASKED, ITEM, {"type": "function_call_output", "call_id": "c", "output": "no"}, ENDS]
    ),
    "items among messages": row(ASKED, ITEM, {"type": "function_call_output", "call_id": "c", "output": "no"}, ENDS),
    "LangChain's first calls": row(
        ASKED, said(additional_kwargs={"function_call": ARGS | {"args": TEXT(WRONG)}}), *DIALOGUE[2:]
    ),
    "AutoGen's results": row(
        ASKED, called(WRONG), {"role": "tool", "tool_responses": [{"tool_call_id": "c", "content": "no"}]}, ANSWER
    ),
    "Cohere's results": row(ASKED, called(WRONG), {"role": "TOOL", "tool_results": [{"outputs": [{"x": 1}]}]}, ANSWER),
    "a table's padding among calls": row(*WHOLE[:3], ANSWER | {"tool_calls": NO_CALL, "function_call": NO_CALL[1]}),
    "no calls as text": row(*WHOLE[:3], ANSWER | {"tool_calls": "[]", "function_call": ""}),
    "a call in a text that its harness left there": row(
        *WHOLE[:3], said(content=f"Done. <tool_call>{TEXT({'name': 'refund', 'arguments': {}})}</tool_call>")
    ),
    "a request of Gemini's": {
        "request": {"contents": GEMINI[:-1], "tools": [{"functionDeclarations": [TOOL["function"]]}]},
        "response": {"candidates": [{"content": GEMINI[-1]}]},
    },
    "a request in a body": {"request": {"body": REQUEST}, "response": {"body": {"choices": [{"message": ANSWER}]}}},
    "a request as text": {"request": TEXT(REQUEST), "response": TEXT({"choices": [{"message": ANSWER}]})},
    "an input as text": {"input": TEXT(REQUEST), "output": TEXT(ANSWER)},
    "bodies": {"request_body": REQUEST, "response_body": {"choices": [{"message": ANSWER}]}},
    "Ollama": {**REQUEST, "message": ANSWER, "done": True},
    "messages beside their prompt and their answer": row(*WHOLE, prompt="Refund order 7.", response="Done."),
    "words on the row": row(*WHOLE, message="It failed."),
    "a level of the row": row(*WHOLE, message={"level": "info"}),
    "a trajectory beside the dialogue": {**ASKED_ALONE, "completion": DIALOGUE[1:], "trajectory": [{"prompt": []}]},
    "a document named schema": row(*WHOLE, tools=[{"name": "refund", "schema": SCHEMA}]),
    "tools as text": row(*WHOLE, tools=[TEXT(TOOL)]),
    "parameters as text": row(*WHOLE, tools=[{"name": "refund", "parameters": TEXT(SCHEMA)}]),
}


def test_the_same_rollout_has_its_label_in_whatever_shape_its_program_writes_it(tmp_path):
    records = diagnose(tmp_path, written(tmp_path, *SHAPES.values()))
    seen = {name: (*record.labels, record.calls) for name, record in zip(SHAPES, records, strict=True)}
    assert seen == dict.fromkeys(SHAPES, ("argument_mismatch", 1))
    replies = {
        name: sum(message["role"] == "assistant" for message in each.messages)
        for name, each in zip(SHAPES, records, strict=True)
    }
    assert set(replies.values()) == {2}, replies


CENTS = {"type": "integer", "enum": None, "items": None}
OK = {"role": "tool", "tool_call_id": "c", "content": "refunded"}
PADDED = {"type": "object", "properties": {"id": {"type": "string", "enum": None}, "cents": CENTS, "unit": None}}
OF_ITEM = {"type": "object", "properties": {"note": {"type": ["string", "null"]}}, "required": ["note"]}
REFERRED = {
    "type": "object",
    "properties": {"item": {"$ref": "#/$defs/Item"}, "to": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]}},
    "required": ["item", "to"],
    "$defs": {"Item": OF_ITEM},
}
FAULTLESS = {
    "nulls of a table in arguments": row(
        ASKED,
        said(tool_calls=[{"function": {"name": "refund", "arguments": {**RIGHT, "unit": None}}}], function_call=None),
        ANSWER,
    ),
    "nulls of a table in tools": row(
        ASKED, called(RIGHT), ANSWER, tools=[{"name": "refund", "parameters": {**PADDED, "required": ["id"]}}]
    ),
    "args": row(ASKED, said(tool_calls=[{**ARGS, "args": RIGHT}]), ANSWER),
    "the tool's text in a dump": {
        "input": "user\nList.\nassistant\n",
        "output": '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>\nuser\n'
        "<tool_response>\nuser\ntool\nassistant\n</tool_response>\nassistant\nDone.",
        "score": 0.0,
        "step": 1,
    },
    "Gemma's heads": {
        "input": "user\nList.\nmodel\n",
        "output": "What?\nuser\nAll.\nmodel\nOne entry.",
        "score": 0,
        "step": 1,
    },
    "a refusal": row(ASKED, said(refusal="I will not.")),
    "a name with its server's": row(
        ASKED,
        said(tool_calls=[{"function": {"name": "mcp__shop__refund", "arguments": RIGHT}}]),
        {"role": "tool", "content": "refunded"},
        ANSWER,
    ),
    "a name with other signs": row(
        ASKED, called(RIGHT), OK, ANSWER, tools=[{"name": "Re-fund", "parameters": SCHEMA}, {"name": "other"}]
    ),
    "a name whose document has its server's": row(
        ASKED, called(RIGHT), OK, ANSWER, tools=[{"name": "mcp__shop__refund", "parameters": SCHEMA}]
    ),
    "a name with two documents": row(
        ASKED, called(RIGHT), ANSWER, tools=[TOOL, {"name": "refund", "parameters": {"required": ["order"]}}]
    ),
    "choices that are none": {"choices": 5, "output": "Done.", "reward": 0},
    "a call in thoughts": row(
        ASKED, said(content=f"<think><tool_call>{TEXT({'name': 'refund', 'arguments': {}})}</tool_call></think>No.")
    ),
    **{
        f"a result that denies an error, {number}": row(ASKED, called(RIGHT), OK | denied, ANSWER)
        for number, denied in enumerate(
            [
                *({"is_error": "false"}, {"error": "None"}, {"error": {"code": 0, "message": None}}, {"error": [{}]}),
                {"error": {"code": 200, "message": "OK"}},
            ]
        )
    },
    "a result after the next call": row(
        *(ASKED, called(RIGHT), called(RIGHT, "d"), OK | {"content": "Error: busy"}, OK | {"tool_call_id": "d"}, ANSWER)
    ),
    "a result that comes twice": row(
        ASKED,
        said(tool_calls=[*called(RIGHT)["tool_calls"], *called(RIGHT, "d")["tool_calls"]]),
        *(OK | {"content": "Error: busy"}, OK | {"content": "Error: busy"}, OK | {"tool_call_id": "d"}, ANSWER),
    ),
    "results in another order, named as others do": row(
        ASKED,
        said(tool_calls=[{"name": "refund", "args": RIGHT}, {"name": "look", "args": {}, "id": "d"}]),
        {"role": "tool", "additional_kwargs": {"tool_call_id": "d"}, "content": "Error: no"},
        {"role": "tool", "tool_name": "refund", "content": "ok"},
        said(tool_calls=[{"name": "look", "args": {}}]),
        tools=[TOOL, {"name": "look"}],
    ),
    "results in another order": row(
        ASKED,
        said(tool_calls=[{"name": "refund", "args": RIGHT}, {"name": "look", "args": {}}]),
        *({"role": "tool", "name": name, "content": text} for name, text in (("look", "Error: no"), ("refund", "ok"))),
        said(tool_calls=[{"name": "look", "args": {}}]),
        tools=[TOOL, {"name": "look"}],
    ),
    "an answer whose result the messages hold": row(
        ASKED, called(RIGHT), OK, output={"choices": [{"message": called(RIGHT)}]}
    ),
    "arguments by name, one of them json": row(
        ASKED, called(RIGHT), ANSWER, tools=[{"name": "refund", "parameters": {"json": {"type": "string"}}}]
    ),
    "a tool of the endpoint's": row(
        ASKED, said(tool_calls=[{"name": "web_search", "args": {}}]), OK, ANSWER, tools=[TOOL, {"type": "web_search"}]
    ),
    "a name with its server's, and no result": row(
        ASKED, said(tool_calls=[{"name": "mcp__shop__refund", "args": RIGHT}])
    ),
    "a result with a type and a value": row(
        ASKED,
        {"role": "model", "parts": [{"functionCall": {"name": "refund", "args": RIGHT}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "refund", "response": {"type": "error_rate", "value": 0.1}}}],
        },
        ANSWER,
    ),
    "a result with the types of parts": row(
        ASKED,
        called(RIGHT),
        OK | {"content": [{"type": "phone_call", "id": 3}, {"thought": "x", "function": {}}]},
        ANSWER,
    ),
    "the same call in three turns, of items whose messages have no type": row(
        *[
            each
            for _ in range(3)
            for each in (
                *(ASKED | {"type": None}, ITEM | {"arguments": TEXT(RIGHT)}),
                *({"type": "function_call_output", "call_id": "c", "output": "ok"}, ENDS),
            )
        ]
    ),
    "nulls that the schema behind a reference requires": row(
        ASKED,
        said(
            content=[{"type": "tool_use", "id": "c", "name": "refund", "input": {"item": {"note": None}, "to": None}}]
        ),
        ANSWER,
        tools=[{"name": "refund", "input_schema": REFERRED}],
    ),
    "a constant with a type in capitals": row(
        ASKED,
        said(tool_calls=[{"name": "refund", "args": {"id": "7", "to": {"type": "Card"}}}]),
        ANSWER,
        tools=[{"name": "refund", "parameters": {"properties": {"to": {"enum": [{"type": "Card"}]}}}}],
    ),
    **{
        f"a tool that is not listed, of which this is the own result, {text}": row(
            ASKED, said(tool_calls=[{"id": "c", "name": "bash", "args": {}}]), OK | {"content": text}, ANSWER
        )
        for text in (
            *("bash: refund: command not found", "name 'rebash' is not defined", "x.map is not a function"),
            *("Unknown command: refund", "Call to undefined function refund()", f"{'x' * 300} Unknown tool: refund"),
        )
    },
    "a call between those of which the policy waits for another's result": row(
        ASKED,
        *(
            each
            for text in (*["pending"] * 4, "done")
            for name, result in (("wait", "ok"), ("look", text))
            for each in (said(tool_calls=[{"id": "c", "name": name, "args": {}}]), OK | {"content": result})
        ),
        tools=[{"name": "wait"}, {"name": "look"}],
    ),
    "free text that is JSON": row(
        ASKED, said(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "run", "input": "[7]"}}]), OK, ANSWER
    ),
    "a result that speaks of tags": row(
        ASKED, called(RIGHT), OK | {"content": "Write <tool_response>Error: no</tool_response>."}, ANSWER
    ),
    "the tool that ends a turn": row(
        ASKED, said(tool_calls=[{"id": "c", "name": "final_answer", "args": {}}]), ASKED, said(content="Again.")
    ),
    "the tool that ends, answered": row(ASKED, said(tool_calls=[{"id": "c", "name": "submit", "args": {}}]), OK),
    "the tool that ends": row(ASKED, said(tool_calls=[{"function": {"name": "final_answer", "arguments": {}}}])),
}


def test_a_null_is_padding_only_where_the_file_pads(tmp_path):
    """Arrow gives each message the keys of all others; without that sign a null is what the policy wrote."""
    tools = [
        {
            "name": "refund",
            "parameters": {"type": "object", "properties": {**PADDED["properties"], "unit": {"type": "string"}}},
        }
    ]
    asked = said(tool_calls=[{"function": {"name": "refund", "arguments": {**RIGHT, "unit": None}}}])
    plain = row(ASKED, asked, ANSWER, tools=tools)
    keys = dict.fromkeys(key for message in plain["messages"] for key in message)
    padded = {**plain, "messages": [keys | message for message in plain["messages"]]}
    own, file = diagnose(tmp_path, written(tmp_path, plain, padded))
    assert "argument_mismatch" in own.labels and {*file.labels} == {"checker_error"}


def test_nothing_that_only_a_file_s_form_adds_is_a_fault(tmp_path):
    records = diagnose(tmp_path, written(tmp_path, *FAULTLESS.values()))
    labelled = [name for name, each in zip(FAULTLESS, records, strict=True) if {*each.labels} != {"checker_error"}]
    assert not labelled
    found = dict(zip(FAULTLESS, (each.calls for each in records), strict=True))
    silent = {"Gemma's heads", "a refusal", "a call in thoughts", "choices that are none"}
    assert {name for name, calls in found.items() if not calls} == silent


UNREAD = {
    "a role that is not known": row(ASKED, {"role": "critic", "content": "Bad."}, ANSWER),
    "a message under other names": row(ASKED, {"role": "assistant", "body": "Done."}),
    "a user's message under other names": row({"role": "user", "items": [{"text": "Refund."}]}, *WHOLE[1:]),
    "a result under another name": row(*WHOLE[:2], {"role": "tool", "tool_call_id": "c", "data": "no"}, ANSWER),
    "tools of servers by their address": row(*WHOLE, tools={"shop": {"url": "http://x", "description": "A shop."}}),
    "a call under other names": row(ASKED, said(tool_calls=[{"id": "c", "fn": "refund", "with": WRONG}])),
    "arguments under another name": row(ASKED, said(tool_calls=[{"name": "refund", "payload": WRONG}])),
    "no message of the policy": row(ASKED),
    "an answer of another form": {**ASKED_ALONE, "response": {"blob": "x"}},
    "two answers": {**ASKED_ALONE, "choices": [{"message": ANSWER}, {"message": ANSWER}]},
    "arguments as Python has them, and no result": row(
        ASKED, said(tool_calls=[{"id": "c", "function": {"name": "refund", "arguments": "{'id': '7', 'cents': 5}"}}])
    ),
    "a call as deep as JSON is read": row(
        ASKED, said(tool_calls=[{"function": {"name": "refund", "arguments": f'{{"id": {"[" * 700}{"]" * 700}}}'}}])
    ),
    "a part of a streamed call": row(
        ASKED,
        said(tool_calls=[*called(RIGHT)["tool_calls"], {"index": 0, "function": {"name": None, "arguments": "}"}}]),
    ),
    "a number of calls": row(ASKED, said(content="I do.", tool_calls=2), ANSWER),
    "names of calls": row(ASKED, said(content="I do.", tool_calls=["refund"]), ANSWER),
    "arguments as a list, and no result": row(ASKED, said(tool_calls=[{"name": "refund", "args": ["7", 5]}]), ANSWER),
    "a call as a JSON value": row(ASKED, said(content=TEXT({"thought": "I do.", "action": "refund", "with": {}}))),
    "a call within a tag": row(ASKED, said(content="<tool_name>refund</tool_name>\n<id>7</id>")),
    "arguments that only its tool understood": row(
        ASKED,
        said(tool_calls=[{"id": "c", "function": {"name": "refund", "arguments": "{'id': '7', 'cents': 5}"}}]),
        {"role": "tool", "tool_call_id": "c", "content": "refunded"},
    ),
    "half of a surrogate pair": row(ASKED, said(content="\ud800")),
    "half of a surrogate pair in a call": row(ASKED, called({**RIGHT, "id": "\ud800"})),
    "calls in a field of its own": row(ASKED, said(content="", toolInvocations=[ARGS]), ANSWER),
    "calls in a field of its own, beside text": row(ASKED, said(content="I do.", toolCalls=[ARGS]), ANSWER),
    "calls in a field of its row": row(ASKED, said(content="I do."), tool_calls=[ARGS]),
    "steps in a field of its row": {"input": "Refund.", "output": "Done.", "intermediate_steps": [[ARGS, "ok"]]},
    "a message to a tool": row(ASKED, said(content=TEXT(WRONG), recipient="functions.refund"), ANSWER),
    "a call as a tag": row(ASKED, said(content="<refund>\n<id>7</id>\n</refund>"), ANSWER),
    "a call as code": row(ASKED, said(content="Thought: I do.\n<code>\ndone = refund(id='7')\n</code>"), ANSWER),
    "a request without messages": {"request": {"url": "/chat"}, "response": "Done."},
    "arguments of a tool under another name": row(*WHOLE, tools=[{"name": "refund", "inputs": SCHEMA["properties"]}]),
    "half of a surrogate pair in an error": row(*WHOLE, error="\ud800"),
    "results that name no call of several": {
        "conversations": [*SHAREGPT[:2], SHAREGPT[1], SHAREGPT[2], SHAREGPT[2], SHAREGPT[3]],
        "tools": [TOOL],
    },
    "OpenInference": {"name": "llm", "attributes": {"llm.input_messages.0.message.role": "user"}},
    "DSPy": {"trajectory": {"tool_name_0": "refund", "tool_args_0": WRONG}},
    "a call that the endpoint could not read": {
        "contents": GEMINI[:1],
        "candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "content": {}}],
    },
    "an answer that its filter took": {
        **ASKED_ALONE,
        "choices": [{"finish_reason": "content_filter", "message": said()}],
    },
    "a part that may be a call": row(ASKED, said(content=[{"type": "tool-refund", "input": WRONG}])),
    "a tool without a name": row(*WHOLE, tools=[{"title": "refund", "schema": SCHEMA}]),
    "text that is no JSON": {**row(), "messages": "[{'role': 'user'"},
    "calls of another template": row(ASKED, said(content='<function=refund>{"id": "7"}</function>')),
    "a call as JSON in a text": row(ASKED, said(content=TEXT({"name": "refund", "parameters": WRONG}))),
    "a dump of Mistral's template": {
        "input": "List the folder.",
        "output": "ls{}homeOne entry.",
        "score": 0,
        "step": 1,
    },
    "a dump of Llama's": {
        "input": "user\n\nList.assistant\n\n",
        "output": '{"name": "ls", "parameters": {}}ipython\n\nhomeassistant\n\nOne entry.',
        "score": 0,
        "step": 1,
    },
    "a call that a tool answered, among others": row(
        ASKED, said(content="CALL refund 7"), OK | {"tool_call_id": None}, called(RIGHT), OK, ANSWER
    ),
    "a text with two calls, one of another form": row(
        ASKED,
        said(content=f"<tool_call>{TEXT({'name': 'refund', 'arguments': RIGHT})}</tool_call> <tool_call>7</tool_call>"),
        {"role": "user", "content": "<tool_response>\nok\n</tool_response>\n<tool_response>\nok\n</tool_response>"},
        ANSWER,
    ),
    "a call that an interface shows": row(ASKED, said(content='<details type="tool_calls" name="refund"></details>')),
    **{
        f"a text of {template}'s template": {"prompt": f"{user}Hi.{own}", "completion": f"Who?{user}I.{own}Done."}
        for template, user, own in [
            (
                "Llama",
                "<|start_header_id|>user<|end_header_id|>\n\n",
                "<|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            ("Mistral", "[INST] ", " [/INST]"),
            ("DeepSeek", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
            ("Kimi", "<|im_user|>user<|im_middle|>", "<|im_assistant|>assistant<|im_middle|>"),
            ("GLM", "<|user|>\n", "<|assistant|>\n"),
            ("gpt-oss", "<|start|>user<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
        ]
    },
    "half of a surrogate pair in a name": row(*WHOLE, tools=[{"\ud800": 1}]),
    "a Responses object that holds nothing": {"input": "Hi.", "response": {"object": "response", "output": []}},
    "OpenTelemetry's export": {"resourceSpans": []},
    "Langfuse": {"id": "x", "input": "a", "output": "b", "observations": []},
    "LangSmith": {"run_type": "llm", "inputs": {"messages": DIALOGUE}, "outputs": {}},
    "SWE-agent": {"trajectory": [], "history": DIALOGUE, "info": {}},
}


def test_what_is_not_understood_is_left_out_with_its_line_and_all_else_is_read(tmp_path, capsys):
    rows = [row(*WHOLE), *UNREAD.values()]
    (record,) = diagnose(tmp_path, written(tmp_path, *rows), code=1)
    assert record.labels == ("argument_mismatch",)
    said = capsys.readouterr().out
    more = sum(map(int, re.findall(r"and (\d+) more line", said)))
    assert len({*re.findall(r"rows\.jsonl:(\d+)", said)}) + more == len(UNREAD)


CUT = said(tool_calls=[{"id": "c", "function": {"name": "refund", "arguments": '{"id": "7", "ce'}}])
PART = said(tool_calls=[{"id": "c", "name": "refund", "args": {"id": "7"}}])


@pytest.mark.parametrize(
    "cut",
    [
        row(ASKED, CUT, finish_reason="length"),
        row(ASKED, CUT | {"stop_reason": "max_tokens"}),
        row(ASKED, CUT | {"response_metadata": {"finish_reason": "length"}}),
        {"messages": [ASKED], "output": {"message": CUT}, "stopReason": "max_tokens", "reward": 0},
        row(ASKED, PART | {"response_metadata": {"finish_reason": "length"}}),
        row(
            ASKED,
            said(content=[{"type": "tool_use", "id": "c", "name": "refund", "input": {}}], stop_reason="max_tokens"),
        ),
        {**ASKED_ALONE, "choices": [{"finish_reason": "length", "message": PART}]},
        row(ASKED, CUT, stop_reason="model_context_window_exceeded"),
        row(ASKED, CUT | {"finish_reason": "content_filter"}),
        row(ASKED, CUT | {"finish_reason": "abort"}),
        row(ASKED, CUT | {"finish_reason": "insufficient_system_resource"}),
        row(ASKED, CUT | {"finish_reason": "repetition"}),
        {**ASKED_ALONE, "choices": [{"finish_reason": "content_filter", "message": PART}]},
        {
            "contents": GEMINI[:1],
            "candidates": [{"finishReason": "SAFETY", "content": GEMINI[1]}],
            "tools": [{"functionDeclarations": [TOOL["function"]]}],
            "reward": 0,
        },
        {
            "input": [ASKED],
            "response": {**RESPONSE, "output": [ITEM], "incomplete_details": {"reason": "content_filter"}},
            "reward": 0,
        },
    ],
    ids=[
        *("row", "message", "LangChain", "Bedrock", "a part of the arguments", "Anthropic", "a part in choices"),
        *(
            "the context",
            "a filter",
            "a failure",
            "DeepSeek's failure",
            "vLLM's repetition",
            "a part of a filter's",
            "Gemini's filter",
            "a filter of the Responses API",
        ),
    ],
)
def test_a_call_that_a_budget_or_a_filter_cut_is_nobody_s_fault(tmp_path, cut):
    (record,) = diagnose(tmp_path, written(tmp_path, cut))
    assert record.labels == ("budget_cut",)


def test_a_cut_call_is_nobody_s_fault_if_the_rollout_went_on_and_the_calls_before_it_count(tmp_path):
    after = (OK | {"content": "Error: no valid call"}, called(RIGHT, "d"), OK | {"tool_call_id": "d"}, ANSWER)
    two = said(tool_calls=[*called(WRONG, "a")["tool_calls"], *PART["tool_calls"]])
    rows = [row(ASKED, cut | {"finish_reason": "length"}, *after) for cut in (CUT, PART, two)]
    records = diagnose(tmp_path, written(tmp_path, *rows))
    assert [record.labels for record in records] == [("checker_error",)] * 2 + [("argument_mismatch",)]


def test_a_cut_answer_ends_its_turn_by_a_limit_though_the_user_goes_on(tmp_path):
    (record,) = diagnose(tmp_path, written(tmp_path, row(ASKED, said(content="I", finish_reason="length"), *WHOLE)))
    assert record.labels == ("budget_cut", "argument_mismatch")
    assert [turn["stop"] for turn in record.evidence] == ["length", "answered"]


def test_what_its_program_could_not_parse_is_no_call(tmp_path):
    unparsed = {"id": "c", "function": "refund", "arguments": {}, "parse_error": "Error parsing: {'"}
    made = {"id": "c", "function": {"name": "refund", "arguments": "{'"}}
    twice = {
        "invalid_tool_calls": [{"id": "c", "name": "refund", "args": "{'"}],
        "additional_kwargs": {"tool_calls": [made]},
    }
    failed = OK | {"content": "error"}
    rows = [row(ASKED, each, failed) for each in (said(tool_calls=[unparsed]), said(**twice))]
    for record in diagnose(tmp_path, written(tmp_path, *rows)):
        assert record.labels == ("invalid_tool_call",)
        assert record.messages[1]["content"].count("<tool_call>") == 1


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.json.gz"])
def test_compressed_files_are_read(tmp_path, name):
    text = TEXT(row(*WHOLE)) + "\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(gzip.compress((text if "jsonl" in name else f"[{text}]").encode()))
    assert len(diagnose(tmp_path, tmp_path / "in")) == 1


@pytest.mark.parametrize(
    "spoilt", [lambda packed: packed[:-20], lambda packed: b"{" + packed, lambda packed: packed[:20] + b"\0" * 99]
)
def test_a_compressed_file_that_cannot_be_unpacked_is_named_and_all_else_is_read(tmp_path, capsys, spoilt):
    (bad := tmp_path / "cut.jsonl.gz").write_bytes(spoilt(gzip.compress(TEXT(row(*WHOLE)).encode())))
    assert len(diagnose(tmp_path, bad, written(tmp_path, row(*WHOLE)), code=1)) == 1
    assert "cut.jsonl.gz:1: cannot be unpacked" in capsys.readouterr().out


def test_what_comes_before_an_answer_is_the_user_s(tmp_path):
    asked = [{"input": "Refund."}, {"inputs": "Refund."}, {"input": [ASKED | {"content": "Refund."}]}]
    records = diagnose(
        tmp_path, written(tmp_path, *({**each, "output": {"choices": [{"message": ANSWER}]}} for each in asked))
    )
    assert [[message["content"] for message in each.messages] for each in records] == [["Refund.", "Done."]] * 3


def test_lines_of_another_encoding_and_rows_too_deep_are_left_out(tmp_path, capsys):
    deep = SCHEMA
    for _ in range(300):
        deep = {"type": "object", "properties": {"x": deep}}
    written(tmp_path, row(*WHOLE, tools=[{"name": "refund", "parameters": deep}]), row(*WHOLE))
    rows = tmp_path / "rows.jsonl"
    (wide := tmp_path / "wide.jsonl").write_text(rows.read_text(), encoding="utf-16")
    (whole := tmp_path / "deep.json").write_text(f"[{','.join(rows.read_text().splitlines())}]")
    assert len(diagnose(tmp_path, wide, whole, code=1)) == 1
    said = capsys.readouterr().out
    assert "wide.jsonl:1: " in said and "deep.json:1: " in said


def test_documents_that_judge_nothing_and_rewards_of_another_scale_are_named(tmp_path, capsys):
    types = {"id": {"type": "str"}, "cents": {"type": "int"}}
    tools = [[{"name": "refund", "parameters": each}] for each in (types, {"type": "dict"}, {})]
    diagnose(tmp_path, written(tmp_path, *(row(*WHOLE, tools=each, reward=7) for each in tools)))
    lines = [line for line in capsys.readouterr().out.splitlines() if "rows.jsonl:1" in line]
    assert [re.search(r"\b[23]\b", line)[0] for line in lines] == ["2", "3"]


def test_the_words_of_a_file_stay_as_they_are_and_command_no_terminal(tmp_path, capsys):
    odd = "[bold]a[/x] :100:"
    (tmp_path / f"{odd.replace('/', '')}.jsonl").write_text(
        TEXT(row(*WHOLE)) + "\n" + TEXT(row(*WHOLE, error=f"\x1b[31mboom\x1b]0;t\x07 {odd}\nagain")) + "\n"
    )
    diagnose(tmp_path, next(tmp_path.glob("*.jsonl")), code=1)
    said = capsys.readouterr().out
    assert "foreign/[bold]a[x] :100:" in said and f"boom {odd} again" in said and "\x1b" not in said


@pytest.mark.parametrize("name", ["pass@8", "run@home"])
def test_the_name_of_a_file_makes_no_prefix_of_its_rollouts(tmp_path, name):
    (file := tmp_path / f"{name}.jsonl").write_text(TEXT(row(*WHOLE)) + "\n")
    (record,) = diagnose(tmp_path, file)
    assert record.prefix == WHOLE_TASK and record.environment == "foreign"


def test_simulations_in_a_folder_are_those_of_one_file(tmp_path):
    world = {"environment_info": {"policy": "Be kind.", "tool_defs": {"refund": {"name": "refund", "params": SCHEMA}}}}
    greeting = said(content="Hi!")
    runs = [
        {
            "id": name,
            "task_id": name,
            "termination_reason": "user_stop",
            "reward_info": {"reward": 0.0},
            "messages": [greeting, ASKED, said(tool_calls=[{"id": "c", "name": tool, "arguments": WRONG}]), ANSWER],
        }
        for name, tool in (("s0", "refund"), ("s1", "other"))
    ]
    folder = tmp_path / "in" / "simulations"
    folder.mkdir(parents=True)
    (tmp_path / "in" / "results.json").write_text(json.dumps({"info": world, "tasks": [], "simulation_index": [{}]}))
    for run in runs:
        (folder / f"{run['id']}.json").write_text(json.dumps(run))
    records = diagnose(tmp_path, tmp_path / "in" / "results.json", folder)
    assert [each.labels for each in records] == [("argument_mismatch",), ("invalid_tool_call",)]
    assert {each.category for each in records} == {"foreign/results"} and "Be kind." in records[0].messages[0][
        "content"
    ]
