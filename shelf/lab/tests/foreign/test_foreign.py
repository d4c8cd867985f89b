"""Rollouts of other programs: what is played again gets exact labels, what is not says so, and ATIF goes both ways."""

import json
from collections import Counter

import pytest
from atif import Agent, FinalMetrics, Metrics, Observation, ObservationResult, Step, ToolCall, Trajectory

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.tools import parse_reference
from seal.cli.main import execute, load
from seal.records.trajectory import TrajectoryRecord
from shelf.lab.foreign.atif import atif
from tests.support.errand_rollout import errand_rollout
from tests.support.one_service import one_service
from tests.support.played_run import SMALL, write_run

TASK = "multi_turn_base_1"


@pytest.fixture(scope="module", autouse=True)
def service():
    with one_service():
        yield


def steps(task: str = TASK) -> list[list]:
    """A perfect run in the official tool's result format for models that call functions."""
    return [
        [*([{name: json.dumps(arguments)}] for name, arguments in map(parse_reference, calls)), "Done."]
        for calls in load_tasks()[task].reference
    ]


def chat(turns: list[list], **more) -> dict:
    """The same as OpenAI's messages, without results."""
    messages = [{"role": "system", "content": "Help."}]
    for turn in turns:
        messages.append({"role": "user", "content": "Go on."})
        for step in turn:
            calls = (
                []
                if isinstance(step, str)
                else [
                    {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
                    for call in step
                    for name, arguments in call.items()
                ]
            )
            text = step if isinstance(step, str) else None
            messages.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "None"} for call in calls]
    return {"messages": messages, **more}


def diagnosed(tmp_path, *rollouts, code=0) -> list[TrajectoryRecord]:
    """The records that `seal diagnose rollouts` writes for the objects of one file."""
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in rollouts))
    return read(tmp_path, file, code)


def read(tmp_path, file, code=0) -> list[TrajectoryRecord]:
    arguments = ["rollouts", str(file), "--out", str(tmp_path / "out"), "--processes", "1"]
    assert execute(load("diagnose"), arguments, "seal diagnose") == code
    lines = (tmp_path / "out" / "validation_log" / "0.jsonl").read_text().split("\n")[:-1]
    return [TrajectoryRecord.from_json(line) for line in lines]


def test_results_of_the_official_tool_get_exact_labels_and_whose_fault_they_are(tmp_path, capsys):
    spoilt = steps()
    spoilt[0] = ["I will not."]
    written = [[f"[{call}]" for call in calls] + ["Done."] for calls in load_tasks()[TASK].reference]
    text, perfect, failed = diagnosed(
        tmp_path,
        *({"id": TASK, "result": each} for each in (written, steps(), spoilt)),
        {"id": TASK, "result": "Error"},
        code=1,
    )
    assert perfect.passed and set(perfect.labels) <= {"pass", "correct_abstention"} and text.labels == perfect.labels
    assert text.prompt_mode == "toolace_official_prompt" and [text.sample, perfect.sample, failed.sample] == [0, 1, 2]
    assert not failed.passed and failed.labels[0] == "missing_tool_call" and failed.diagnosis[0]["blame"] == "own"
    out = capsys.readouterr().out
    assert "3 of 3 rollouts were played again" in out and "rollouts.jsonl:4: result is 'Error'" in out


def test_a_row_of_failed_inference_is_not_run_and_counts_in_no_rate(tmp_path, capsys):
    row = {"id": TASK, "result": "Error during inference: 503 overloaded", "traceback": "Traceback ..."}
    lost, lost_too, played = diagnosed(tmp_path, row, row, {"id": TASK, "result": steps()}, code=1)
    assert lost.infra == lost_too.infra == "inference" and not lost.labels and played.passed
    out = capsys.readouterr().out
    assert "2 count as not run, by their file: Error during inference: 503 overloaded" in out and "not run" in out
    assert "1 of 3 rollouts were played again" in out


def test_a_turn_may_have_more_messages_than_the_runner_allows_and_one_that_it_cut_is_nobody_s_fault(tmp_path):
    long, ended = steps(), steps()
    long[0][:0] = [[{"pwd": "{}"}]] * 25
    ended[0] = long[0][:21]
    results = (long, ended[:1], [])
    whole, cut, nothing = diagnosed(tmp_path, *({"id": TASK, "result": result} for result in results))
    assert whole.passed and cut.labels == ("budget_cut",) and not (cut.passed or nothing.passed)


def test_an_odd_row_is_left_out_and_one_of_which_nothing_can_be_played_is_judged(tmp_path, capsys):
    refused = {"id": TASK, "result": [[["cd(folder='x')"]]]}
    digits = json.dumps({"id": TASK, "result": [["9"]]}).replace('"9"', "9" * 5000)
    file = tmp_path / "rollouts.jsonl"
    file.write_text("\n".join([json.dumps(refused), digits, json.dumps({"id": TASK, "result": steps()})]))
    none, perfect = read(tmp_path, file, code=1)
    assert not none.passed and none.infra is None and perfect.passed
    assert "rollouts.jsonl:2: " in capsys.readouterr().out


def test_a_chat_is_played_again_and_compared_with_its_file(tmp_path, capsys):
    prose = chat(steps(), task_id=TASK, reward=0)
    prose["messages"].insert(2, {"role": "assistant", "content": "Let me look."})
    (record,) = diagnosed(tmp_path, prose)
    assert record.passed and len(record.labels) == len(load_tasks()[TASK].users)
    assert "the file's reward is 0 and the replay's 1" in capsys.readouterr().out


ERROR = "Error: the call cannot be read"


def dialogue(*said: dict, rest: bool = True) -> dict:
    """A chat of the task whose second turn has these messages first, then the reference's if `rest`."""
    played = chat(steps(), task_id=TASK)
    users = [at for at, message in enumerate(played["messages"]) if message["role"] == "user"]
    for at, text in zip(users, load_tasks()[TASK].users, strict=True):
        played["messages"][at]["content"] = text
    for message in played["messages"]:
        message["content"] = "" if message["role"] == "tool" else message["content"]
    first, after = users[1] + 1, users[2] - 1
    played["messages"][first : first if rest else after] = said
    return played


def tried(arguments, name="cd", **more) -> list[dict]:
    """A call that its harness could not read, and what it answered."""
    made = {"id": "x", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [made], **more},
        {"role": "tool", "tool_call_id": "x", "content": ERROR},
    ]


READABLE = {"id": "y", "function": {"name": "pwd", "arguments": "{}"}}
MALFORMED = {
    "cut": tried('{"folder": "docu'),
    "list": tried(["document"]),
    "text of a list": tried('["document"]'),
    "number": tried(3),
    "null": tried(None),
    "text of null": tried("null"),
    "text in text": tried(json.dumps(json.dumps({"folder": "document"}))),
    "no name": tried("{}", name=None),
    "no call": [{"role": "assistant", "tool_calls": ["cd"]}, {"role": "tool", "content": ERROR}],
    "with text": tried('{"folder": "docu', content="I go there."),
    "legacy": [
        {"role": "assistant", "content": None, "function_call": {"name": "cd", "arguments": '{"folder": '}},
        {"role": "function", "name": "cd", "content": ERROR},
    ],
    "parallel": [
        {"role": "assistant", "tool_calls": [READABLE, {"id": "x", "function": {"name": "cd", "arguments": "[]"}}]},
        {"role": "tool", "tool_call_id": "y", "content": '{"current_working_directory": "/alex"}'},
        {"role": "tool", "tool_call_id": "x", "content": ERROR},
    ],
    "all refused": [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "y", "function": {"name": "rm", "arguments": '{"file_name": "workspace"}'}},
                {"id": "x", "function": {"name": "cd", "arguments": "[]"}},
            ],
        },
        {"role": "tool", "tool_call_id": "y", "content": ERROR},
        {"role": "tool", "tool_call_id": "x", "content": ERROR},
    ],
    "written in a text": [
        {"role": "assistant", "content": '<tool_call>\n{"name": "cd", "arg\n</tool_call>'},
        {"role": "user", "content": ERROR},
    ],
}


def halves(records: list) -> tuple[list, list]:
    return records[: len(records) // 2], records[len(records) // 2 :]


def test_a_call_that_its_harness_could_not_read_is_a_failed_action_and_the_rollout_goes_on(tmp_path, capsys):
    mended = [dialogue(*said) for said in MALFORMED.values()]
    records = diagnosed(tmp_path, *mended, *(dialogue(*said, rest=False) for said in MALFORMED.values()))
    assert "differ" not in capsys.readouterr().out
    for name, good, spoilt in zip(MALFORMED, *halves(records), strict=True):
        assert good.passed and set(good.labels) == {"pass"}, name
        assert spoilt.labels[1] == "invalid_tool_call" and spoilt.diagnosis[1]["blame"] == "own", name
        for record in (good, spoilt):
            action = record.evidence[1]["actions"][0]
            assert action["refusals"] and [call["name"] for call in action["calls"]] in ([], ["pwd"]), name
            shown = [message["role"] for message in record.messages].index("assistant", 6)
            assert ERROR in record.messages[shown + 1]["content"], name


PASSED_OVER = {
    "unknown tool": (tried('{"folder": "document"}', name="go"), "invalid_tool_call"),
    "empty": ([{"role": "assistant", "content": ""}], "missing_tool_call"),
    "empty, answered": (
        [{"role": "assistant", "content": ""}, {"role": "user", "content": "Go on, please."}],
        "missing_tool_call",
    ),
    "text": ([{"role": "assistant", "content": "Let me see."}, *tried("{}", name="pwd")], "missing_tool_call"),
    "no arguments": (tried("", name="pwd"), "missing_tool_call"),
    "null for none": (tried(None, name="pwd"), "missing_tool_call"),
    "cut by a limit": (tried('{"folder": "docu', finish_reason="length"), "missing_tool_call"),
    "parallel, with text": (
        [{"role": "assistant", "content": "I look.", "tool_calls": [READABLE, {**READABLE, "id": "z"}]}],
        "missing_tool_call",
    ),
}


def test_what_a_harness_lets_pass_does_not_end_a_turn(tmp_path):
    said = [said for said, _ in PASSED_OVER.values()]
    every = (dialogue(*each, rest=rest) for rest in (True, False) for each in said)
    records = diagnosed(tmp_path, *every)
    for (name, (_, label)), good, spoilt in zip(PASSED_OVER.items(), *halves(records), strict=True):
        assert good.passed and set(good.labels) == {"pass"} and spoilt.labels[1] == label, name


def test_a_tool_that_ran_under_its_server_s_name_is_the_benchmark_s(tmp_path):
    played, failed, denied = (dialogue() for _ in range(3))
    for chat_, result in ((played, "None"), (failed, '{"error": "It is full."}'), (denied, "Unknown tool: {}")):
        for message in chat_["messages"]:
            for made in message.get("tool_calls", ()):
                name = made["function"]["name"] = f"mcp__files__{made['function']['name']}"
            message["content"] = result.replace("{}", name) if message["role"] == "tool" else message["content"]
    played, failed, denied = diagnosed(tmp_path, played, failed, denied)
    assert played.passed and failed.passed and {*denied.labels} == {"invalid_tool_call"}


def test_a_harness_that_reads_text_in_text_made_the_call(tmp_path):
    said = tried(json.dumps(json.dumps({"folder": "workspace"})))
    said[1]["content"] = '{"current_working_directory": "workspace"}'
    (record,) = diagnosed(tmp_path, dialogue(*said, rest=False))
    assert record.evidence[1]["actions"][0]["calls"][0]["arguments"] == {"folder": "workspace"}


def test_a_rollout_that_reads_calls_which_no_mode_reads_is_not_judged_and_every_one_is_named(tmp_path, capsys):
    foreign = {"id": TASK, "result": [["Action: ls", "Done."], *([each] for each in ["a", "b", "c"])]}
    records = diagnosed(tmp_path, foreign, foreign, {"id": TASK, "result": steps()}, code=1)
    assert [record.infra for record in records] == ["misread", "misread", None] and not records[0].labels
    named = [line for line in capsys.readouterr().out.split("\n") if "message 0 of turn 0, 'Action: ls'" in line]
    assert [line.split(" ")[0].rpartition("/")[2] for line in named] == ["rollouts.jsonl:1", "rollouts.jsonl:2"]


TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {
            "type": "object",
            "properties": {"seat": {"type": "integer"}, "note": {"type": ["string", "null"]}},
            "required": ["seat"],
        },
    },
}


def call(name: str, result: str = "ok", **arguments) -> list[dict]:
    made = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [{"role": "assistant", "tool_calls": [made]}, {"role": "tool", "tool_call_id": "1", "content": result}]


def named(name: str, *of: str, **arguments) -> list[dict]:
    """A call with this id, and its result."""
    said, answer = call(*of, **arguments)
    said["tool_calls"][0]["id"] = answer["tool_call_id"] = name
    return [said, answer]


def unreadable(result: str) -> list[dict]:
    """A call whose arguments are not JSON."""
    said, answer = call("book", result)
    said["tool_calls"][0]["function"]["arguments"] = '{"seat": '
    return [said, answer]


@pytest.mark.parametrize(
    ("messages", "reward", "labels"),
    [
        (call("book", seat=1), 1, ["pass"]),
        (call("book", seat=1, note=None), 0, ["checker_error"]),
        (call("book", seat="window"), 0, ["argument_mismatch"]),
        (call("cook"), 0, ["checker_error"]),
        (call("cook", "It is not yet done."), 0, ["checker_error"]),
        (call("cook", "Recipe 7 not found: its name is invalid."), 0, ["checker_error"]),
        (call("cook", "Error: the oven is unavailable."), 0, ["checker_error"]),
        (call("cook", "Error: cook is not a valid tool, try one of [book]."), 0, ["invalid_tool_call"]),
        (call("cook", "Unknown tool: cook"), 0, ["invalid_tool_call"]),
        (call("cook", "The tool cook does not exist."), 0, ["invalid_tool_call"]),
        (call("cook", "There is no tool called cook."), 0, ["invalid_tool_call"]),
        (call("cook", "Error: Function cook not found."), 0, ["invalid_tool_call"]),
        (call("cook", "cook is not a valid command."), 0, ["invalid_tool_call"]),
        (call("cook", ""), 0, ["invalid_tool_call"]),
        (call("transfer_to_billing", "")[:1], 0, ["checker_error"]),
        (call("book", '{"error": "full"}', seat=1) * 2, 0, ["recovery_failure"]),
        (call("book", '{"error": "full"}', seat=1) + call("book", seat=2), 0, ["checker_error"]),
        (call("book", seat=1) * 3, None, ["spurious_tool_call"]),
        (call("book", "pending", seat=1) * 3 + call("book", seat=1), None, ["checker_error"]),
        ([each for n in range(3) for each in (*call("cook", n=n), *call("test", "red"))], None, ["checker_error"]),
        ((call("cook") + call("test", "red")) * 3, None, ["spurious_tool_call"]),
        ([*call("book", seat="a"), {"role": "user", "content": "And now?"}], None, ["argument_mismatch"]),
    ],
)
def test_without_an_environment_a_turn_has_the_label_that_the_dialogue_shows(tmp_path, messages, reward, labels):
    dialogue = [{"role": "user", "content": "Book a seat."}, *messages]
    (record,) = diagnosed(tmp_path, {"messages": dialogue, "tools": [TOOL], "reward": reward})
    assert list(record.labels) == labels
    assert record.category == ("unscored/rollouts" if reward is None else "foreign/rollouts")


EXAMPLE = [
    {"role": "user", "content": "Example: book seat 1."},
    *call("book", seat="one"),
    {"role": "assistant", "content": "Done."},
]
BOOK = {"role": "user", "content": "Book seat 3."}
FLAT = TOOL["function"]


def trace(*messages, given=(), **more) -> dict:
    """A line of verifiers' traces.jsonl, where only the policy's messages are sampled. given: messages before those."""
    flat = [{"message": each, "sampled": False} for each in given]
    flat += [{"message": each, "sampled": each["role"] == "assistant"} for each in messages]
    rewards = {"rewards": {"passed": {"score": 0.0}}}
    return {"nodes": [{**node, "parent": None} for node in flat], **rewards, **more}


def responses(*output, reward=0.0, given=(), response=None, **more) -> dict:
    """A line of NeMo Gym's rollouts."""
    asked = {"input": [*given, {"role": "user", "content": "Book seat 3."}], "tools": [FLAT]}
    return {
        "responses_create_params": asked,
        "response": {"output": list(output), **(response or {})},
        "reward": reward,
        **more,
    }


def item(kind: str, **more) -> dict:
    return {"type": kind, "call_id": "c", **more}


def row_of_verifiers(completion: list[dict]) -> dict:
    """A row of verifiers' results.jsonl."""
    return {"example_id": 0, "prompt": [BOOK], "completion": [*completion, EXAMPLE[-1]], "reward": 0.0, "error": None}


def as_text(messages: list[dict]) -> list[dict]:
    """The messages with each call as JSON."""
    return [
        {**each, "tool_calls": [json.dumps(made) for made in each["tool_calls"]]} if "tool_calls" in each else each
        for each in messages
    ]


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
FULL = '{"error": "the hall is full"}'
ONE = {"name": "book", "arguments": '{"seat": 3}'}
USE = {"type": "tool_use", "id": "t", "name": "book"}
USED = {"type": "tool_result", "tool_use_id": "t"}
REMINDER = {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"}
SAYS_NOTHING = ["checker_error"]

TWICE, _ = call("book", seat=3)
TWICE["tool_calls"][0]["function"]["arguments"] = json.dumps(TWICE["tool_calls"][0]["function"]["arguments"])
SHOWN = {
    "chat: an example in the prompt": (
        {"prompt": [*EXAMPLE, BOOK], "completion": call("book", seat=3), "tools": [TOOL], "reward": 0},
        SAYS_NOTHING,
    ),
    "chat: a text and its completion": ({"prompt": "2+2?", "completion": "5", "reward": 0}, SAYS_NOTHING),
    "cohere: an answer with its text and its calls side by side": (
        {
            "prompt": "Book.",
            "response": {"text": "", "tool_calls": [{"name": "book", "parameters": {"seat": "a"}}]},
            "tools": [TOOL],
            "reward": 0,
        },
        ["argument_mismatch"],
    ),
    "chat: arguments that were encoded twice, without a result": (
        {"messages": [BOOK, TWICE], "tools": [TOOL], "reward": 0},
        SAYS_NOTHING,
    ),
    "chat: the user tells what was missing": (
        {
            "messages": [BOOK, *call("book", FULL, seat=3), EXAMPLE[-1], BOOK, *call("book", seat=4)],
            "tools": [TOOL],
            "reward": 0,
        },
        ["checker_error", "checker_error"],
    ),
    "chat: its harness tried a call again": (
        {
            "messages": [BOOK, *call("book", FULL, seat=3), call("book")[1], EXAMPLE[-1]],
            "tools": [TOOL],
            "reward": 0,
        },
        SAYS_NOTHING,
    ),
    "chat: the user speaks before a result is there": (
        {
            "messages": [
                BOOK,
                named("a", "buy")[0],
                BOOK,
                *named("b", "book", seat=3),
                named("a", "buy")[1],
            ],
            "tools": [TOOL],
            "reward": 0,
        },
        ["checker_error", "checker_error"],
    ),
    "chat: it passed, after a call that its harness could not read": (
        {
            "messages": [BOOK, *unreadable("Invalid JSON."), EXAMPLE[-1], BOOK, *call("book", seat=3)],
            "tools": [TOOL],
            "reward": 1,
        },
        ["checker_error", "pass"],
    ),
    "verifiers: nodes that were not sampled": (
        trace(BOOK, *call("book", seat=3), given=EXAMPLE, tools=[FLAT]),
        SAYS_NOTHING,
    ),
    "verifiers: a message of its harness between two of the policy's": (
        {
            "nodes": [
                {"message": message, "sampled": sampled}
                for sampled, message in [(False, BOOK), *((True, each) for each in call("book", seat=3))]
                + [(False, each) for each in call("book", seat="one")]
                + [(True, {"role": "assistant", "content": "Done."})]
            ],
            "rewards": {"passed": {"score": 0.0}},
            "tools": [FLAT],
        },
        SAYS_NOTHING,
    ),
    "verifiers: a call that a limit cut": (
        {
            **trace(tools=[FLAT]),
            "nodes": [{"message": BOOK}, {"message": unreadable("")[0], "sampled": True, "finish_reason": "length"}],
        },
        ["budget_cut"],
    ),
    "verifiers: a result, which is not sampled, is its call's": (
        trace(*call("book", FULL, seat=3), EXAMPLE[-1], given=[BOOK], tools=[FLAT]),
        ["recovery_failure"],
    ),
    "verifiers: a tool that is not listed gave a result, which is not sampled": (
        trace(*call("buy"), given=[BOOK], tools=[FLAT]),
        SAYS_NOTHING,
    ),
    "verifiers: tools of the trace": (
        trace(BOOK, *call("buy", "No such tool."), tools=[FLAT]),
        ["invalid_tool_call"],
    ),
    "nemo: history in the input": (
        responses(
            item("function_call", **ONE),
            SAID,
            given=[
                {"role": "user", "content": "Hi."},
                item("function_call", name="book", arguments='{"seat": "one"}'),
                {"role": "assistant", "content": "Hello."},
            ],
        ),
        SAYS_NOTHING,
    ),
    "nemo: a result of parts": (
        responses(
            item("function_call", **ONE),
            item("function_call_output", output=[{"type": "input_text", "text": FULL}]),
            SAID,
        ),
        ["recovery_failure"],
    ),
    "nemo: a tool that takes free text": (
        responses(
            item("custom_tool_call", name="shell", input="ls"),
            item("custom_tool_call_output", output="Error: no such file"),
            SAID,
        ),
        ["recovery_failure"],
    ),
    "nemo: a server's tool that failed": (
        responses({"type": "mcp_call", "id": "m", "name": "find", "arguments": "{}", "error": "gone"}, SAID),
        ["recovery_failure"],
    ),
    "nemo: a server's tool that did not": (
        responses({"type": "mcp_call", "id": "m", "name": "find", "arguments": "{}", "output": "it"}, SAID),
        SAYS_NOTHING,
    ),
    "nemo: only thoughts, cut by the budget": (
        responses(item("reasoning"), response={"incomplete_details": {"reason": "max_output_tokens"}}),
        ["budget_cut"],
    ),
    "nemo: only thoughts": (responses(item("reasoning")), SAYS_NOTHING),
    "nemo: a call that was cut, without the reason": (
        responses(item("function_call", name="book", arguments='{"sea'), response={"status": "incomplete"}),
        ["budget_cut"],
    ),
    "nemo: a call that the budget cut": (
        responses(
            item("function_call", name="book", arguments='{"sea'),
            response={"incomplete_details": {"reason": "max_output_tokens"}},
        ),
        ["budget_cut"],
    ),
    "anthropic": (
        {
            "messages": [
                BOOK,
                {"role": "assistant", "content": [{"type": "text", "text": "Ok."}, {**USE, "input": {"seat": "a"}}]},
                {"role": "user", "content": [{**USED, "content": "bad seat", "is_error": True}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Sorry."}]},
            ],
            "tools": [{"name": "book", "input_schema": FLAT["parameters"]}],
            "reward": 0,
        },
        ["argument_mismatch"],
    ),
    "anthropic: a call that failed": (
        {
            "messages": [
                BOOK,
                {"role": "assistant", "content": [{**USE, "input": {"seat": 3}}]},
                {"role": "user", "content": [{**USED, "content": [{"type": "text", "text": "no"}], "is_error": True}]},
                {"role": "assistant", "content": "Sorry."},
            ],
            "reward": 0,
        },
        ["recovery_failure"],
    ),
    "anthropic: a harness reminds beside a result": (
        {
            "messages": [
                BOOK,
                {"role": "assistant", "content": [{**USE, "input": {"seat": 3}}]},
                {"role": "user", "content": [{**USED, "content": "no", "is_error": True}, REMINDER]},
                EXAMPLE[-1],
                {"role": "user", "content": [REMINDER]},
                EXAMPLE[-1],
            ],
            "reward": 0,
        },
        ["recovery_failure", "checker_error"],
    ),
    "results that the file lacks": (
        {
            "messages": [BOOK, *call("book", seat=3)[:1] * 3, {"role": "user", "content": "ok"}, EXAMPLE[-1]],
            "reward": 0,
        },
        SAYS_NOTHING * 2,
    ),
    "pictures that are not the same": (
        {
            "messages": [
                BOOK,
                *(
                    message
                    for number in range(3)
                    for message in (
                        call("look")[0],
                        {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": f"data:{number}"}}]},
                    )
                ),
            ],
            "reward": 0,
        },
        SAYS_NOTHING,
    ),
    "results that are null": (
        {"messages": [BOOK, *[*call("book", seat=3)[:1], {"role": "tool", "content": None}] * 3], "reward": 0},
        SAYS_NOTHING,
    ),
    "results that are there and empty": (
        {"messages": [BOOK, *call("book", "", seat=3) * 3], "reward": 0},
        ["spurious_tool_call"],
    ),
    "verifiers: calls as JSON, tools as tool_defs": (
        {**row_of_verifiers(as_text(call("buy", "No such tool.", seat=3))), "tool_defs": [FLAT]},
        ["invalid_tool_call"],
    ),
    "verifiers: the tools of earlier rows": (
        {**row_of_verifiers(as_text(call("book", seat="a"))), "info": {"oai_tools": json.dumps([TOOL])}},
        ["argument_mismatch"],
    ),
    "verifiers: a row that a limit cut": (
        {
            **row_of_verifiers([]),
            "completion": call("book", FULL, seat=3),
            "is_truncated": True,
            "stop_condition": "max_turns_reached",
        },
        ["budget_cut"],
    ),
    "verifiers: a trace that a limit cut": (
        trace(BOOK, *call("book", FULL, seat=3), stop_condition="max_turns"),
        ["budget_cut"],
    ),
    "verifiers: a last message that a limit cut": (
        trace(BOOK, EXAMPLE[-1], calls=[{"finish_reason": "length"}]),
        ["budget_cut"],
    ),
    "verifiers: another branch": (
        {
            "nodes": [
                {"message": message, "parent": parent}
                for parent, message in zip(
                    (None, 0, None, 2, 3), [BOOK, call("book", seat="a")[0], BOOK, *call("book", seat=3)], strict=True
                )
            ],
            "rewards": {"passed": {"score": 0.0}},
            "tools": [FLAT],
        },
        SAYS_NOTHING,
    ),
    "verl: other keys, one that is null, and another template": (
        {
            "prompt": "user\n\nBook.assistant\n\n",
            "response": '<tool_call>{"name": "book", "arguments": {"seat": 3}}</tool_call>ipython\n\n'
            + FULL
            + "assistant\n\nDone.",
            "reward": 0.0,
            "messages": None,
        },
        ["recovery_failure"],
    ),
    "verl": (
        {
            "input": "system\nBook.\n<tools>\n" + json.dumps(TOOL) + "\n</tools>\nuser\nBook seat 3.\nassistant\n",
            "output": '<tool_call>\n{"name": "book", "arguments": {"seat": 3}}\n</tool_call>user\n<tool_response>\n'
            + FULL
            + "\n</tool_response>\nassistant\nDone, dear user.",
            "gts": None,
            "score": 0.0,
            "step": 1,
        },
        ["recovery_failure"],
    ),
}


def test_a_dialogue_shows_only_what_the_policy_wrote_and_the_file_has(tmp_path):
    records = diagnosed(tmp_path, *(rollout for rollout, _ in SHOWN.values()))
    assert {name: list(record.labels) for name, record in zip(SHOWN, records, strict=True)} == {
        name: labels for name, (_, labels) in SHOWN.items()
    }
    example = records[0]
    assert example.calls == 1 and "Example: book seat 1." in example.messages[0]["content"]
    assert [message["role"] for message in records[-1].messages] == ["system", "user", "assistant", "tool", "assistant"]


LOST = {
    "verifiers": (trace(ok=False, errors=[{"type": "RateLimitError", "message": "429"}]), "RateLimitError: 429"),
    "nemo": (responses(mask_sample=True, failure_reason="sandbox lost"), "sandbox lost"),
    "nemo: without a response": (
        {**responses(mask_sample=True, failure_reason="no sandbox"), "response": None},
        "no sandbox",
    ),
    "nemo: cancelled": (responses(SAID, response={"status": "cancelled"}), "the response is cancelled"),
    "verifiers: a row": (
        {**row_of_verifiers([]), "completion": None, "error": {"error": "E", "error_chain_str": "E: 429"}},
        "E: 429",
    ),
    "chat": ({"messages": [BOOK], "reward": 0, "error": {"message": "overloaded"}}, "overloaded"),
}


def test_what_its_own_program_lost_is_in_no_rate_and_counted_with_its_reason(tmp_path, capsys):
    passed = {"messages": [BOOK, *call("book", seat=3)], "tools": [TOOL], "reward": 1}
    *lost, played = diagnosed(tmp_path, *(rollout for rollout, _ in LOST.values()), passed, code=1)
    assert [(each.infra, each.infra_message) for each in lost] == [("inference", why) for _, why in LOST.values()]
    assert played.passed and "1/1" in capsys.readouterr().out


def test_turns_without_a_label_and_rollouts_without_a_reward_are_in_no_rate(tmp_path, capsys):
    plain = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    diagnosed(tmp_path, {**plain, "reward": 1}, {**plain, "reward": 0}, *[plain] * 3)
    rows = [line.split() for line in capsys.readouterr().out.split("\n")]
    for name in ("foreign/rollouts", "average"):
        assert ["0", name, "50.0", "[9.5,", "90.5]", "1/2", "-"] in rows
    assert ["0", "unscored/rollouts", "-", "0/0", "-"] in rows


def test_what_is_not_read_is_counted(tmp_path, capsys):
    picture = {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {}}]}
    diagnosed(
        tmp_path,
        {"messages": [picture, *call("book", seat=3)], "reward": 0},
        responses(item("web_search_call"), item("web_search_call"), SAID),
    )
    assert "were not read: 2 web_search_call, 1 image_url." in capsys.readouterr().out


def test_simulations_of_tau2_bench_are_read(tmp_path):
    greeting = {"role": "assistant", "content": "Hi! How can I help you today?"}
    asked = [greeting, {"role": "user", "content": "Book seat 3."}]
    made = {"id": "1", "name": "book", "arguments": {"seat": 3}, "requestor": "assistant"}
    dials = {"id": "2", "name": "dial", "arguments": {}, "requestor": "user"}
    messages = [
        *asked,
        {"role": "assistant", "tool_calls": [made]},
        {"role": "tool", "id": "1", "content": "full", "error": True, "requestor": "assistant"},
        {"role": "user", "tool_calls": [dials]},
        {"role": "tool", "id": "2", "content": "Error: no line", "requestor": "user"},
        {"role": "assistant", "content": "Sorry."},
        {"role": "user", "content": "###STOP###"},
    ]
    verdicts = {"user_stop": 0.0, "max_steps": 0.0, "user_error": 0.0, "agent_stop": 1.0, "infrastructure_error": 0.0}
    runs = [
        {
            "id": reason,
            "task_id": "3",
            "messages": said,
            "termination_reason": reason,
            "reward_info": {"reward": reward},
            "info": None,
        }
        for (reason, reward), said in zip(verdicts.items(), [messages, asked, messages, messages, None], strict=True)
    ]
    world = {"policy": "Be kind.", "tool_defs": {"book": {"name": "book", "doc": "", "params": FLAT["parameters"]}}}
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"info": {"environment_info": world}, "tasks": [], "simulations": runs}))
    records = read(tmp_path, file, code=1)
    assert [record.labels for record in records] == [("recovery_failure",), ("budget_cut",), (), ("pass",), ()]
    assert [record.infra for record in records] == [None, None, "inference", None, "inference"] and records[
        0
    ].calls == 1
    assert "Be kind." in records[0].messages[0]["content"] and "Hi!" in records[0].messages[0]["content"]


def test_a_chat_that_begins_within_a_task_of_the_benchmark_is_not_judged(tmp_path):
    whole = dialogue()["messages"]
    at = [number for number, message in enumerate(whole) if message["role"] == "user"][1] + 1
    (record,) = diagnosed(tmp_path, {"task_id": TASK, "prompt": whole[:at], "completion": whole[at:]}, code=1)
    assert record.infra and "the policy did not write the first turns" in record.infra_message


def test_nemo_gym_s_and_verifiers_rollouts_are_read(tmp_path):
    items = [
        {"type": "function_call", "name": "book", "arguments": '{"seat": "a"}', "call_id": "c"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call_output", "call_id": "c", "output": "no"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sorry."}]},
    ]
    nemo = {
        "responses_create_params": {"input": [{"role": "user", "content": "Hi"}], "tools": [TOOL["function"]]},
        "response": {"output": items},
        "reward": 0.0,
    }
    flat = {"id": "c", "name": "book", "arguments": '{"seat": 3}'}
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [flat]}]
    nodes = [{"message": message, "parent": None} for message in said]
    trace = {"nodes": nodes, "rewards": {"passed": {"score": 1.0, "weight": 1.0}}, "task": {"data": {"id": "seats"}}}
    first, second = diagnosed(tmp_path, nemo, trace)
    assert first.labels == ("argument_mismatch",) and [message["role"] for message in first.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert second.labels == ("pass",) and second.task_id == "seats"


def test_a_run_written_as_atif_and_read_again_has_the_same_verdicts_and_labels(tmp_path):
    run = write_run(tmp_path / "run", *SMALL, steps=2, validations=(0,), seed=4, lost=0.2)
    arguments = [str(run), "--atif", str(tmp_path / "atif"), "--processes", "1"]
    assert execute(load("rescore"), arguments, "seal rescore") == 0
    lines = (run / "validation_log" / "0.jsonl").read_text().split("\n")[:-1]
    own = [record for record in map(TrajectoryRecord.from_json, lines) if record.infra is None]
    files = sorted((tmp_path / "atif").iterdir())
    written = json.loads(files[0].read_text())
    assert len(files) == len(own) and written["extra"]["seal"]["verified"]
    read_by_others = [Trajectory.model_validate_json(file.read_text()) for file in files]
    assert {each.schema_version for each in read_by_others} == {"ATIF-v1.8"}
    assert len({each.trajectory_id for each in read_by_others}) == len(files)
    shown = [tool["function"]["parameters"] for tool in written["agent"]["tool_definitions"]]
    arguments = [argument for parameters in shown for argument in parameters["properties"].values()]
    assert arguments and all(argument["description"] for argument in arguments)
    assert {parameters["type"] for parameters in shown} == {"object"}
    again = read(tmp_path, tmp_path / "atif")

    def figures(records):
        return Counter((each.task, each.passed, each.labels, json.dumps(each.diagnosis)) for each in records)

    assert figures(again) == figures(own)


def test_a_rollout_of_another_environment_is_written_as_atif():
    record = errand_rollout()
    steps = Trajectory.model_validate(atif(record)).steps
    called = [[(call.function_name, call.arguments) for call in step.tool_calls or ()] for step in steps]
    assert [calls for calls in called if calls] == [[("add", {"item": ""})], [("add", {"item": "milk"})]]
    (result,) = next(step for step in reversed(steps) if step.tool_calls).observation.results
    assert "is in the bag" in str(result.content)


def trajectory(**more) -> dict:
    """A file in ATIF whose one call breaks the tool's schema, with every optional field."""
    seat = {"tool_call_id": "c", "function_name": "book", "arguments": {"seat": "a"}, "extra": {"tries": 1}}
    result = {"source_call_id": "c", "content": "no", "subagent_trajectory_ref": None, "extra": {}}
    said = {"timestamp": "2026-11-01T08:00:00Z", "model_name": "m", "reasoning_effort": 1.0, "reasoning_content": "Hm."}
    said |= {"metrics": {"prompt_tokens": 3, "logprobs": [], "extra": {}}, "extra": {}, "llm_call_count": 1}
    answered = {"tool_calls": [seat], "observation": {"results": [result]}, "is_copied_context": False, **said}
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "trajectory_id": "t",
        "agent": {"name": "a", "version": "1", "model_name": "m", "tool_definitions": [TOOL], "extra": {}},
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "Book."}]},
            {"step_id": 2, "source": "agent", "message": "", **answered},
        ],
        "notes": "n",
        "final_metrics": {"total_steps": 2, "extra": {}},
        "extra": {"reward": 0.0, "task_id": "seats"},
        "subagent_trajectories": [],
        **more,
    }


def objects(value: dict) -> list[tuple[type, dict]]:
    """The objects of a file, each with what the package `atif` reads it as."""
    (step,) = value["steps"][1:]
    found = [(Trajectory, value), (Agent, value["agent"]), (Step, step), (Metrics, step["metrics"])]
    found += [(Observation, step["observation"]), (ObservationResult, step["observation"]["results"][0])]
    return [*found, (ToolCall, step["tool_calls"][0]), (FinalMetrics, value["final_metrics"])]


def test_every_optional_field_of_atif_may_be_absent_null_or_empty(tmp_path):
    files, labels, missing = [], [], object()
    for place, (model, _) in enumerate(objects(trajectory())):
        optional = [name for name, field in model.model_fields.items() if not field.is_required()]
        for name in optional:
            for empty in (missing, None, "", [], {}):
                value = trajectory()
                own = objects(value)[place][1]
                own.pop(name, None)
                own |= {} if empty is missing else {name: empty}
                try:
                    Trajectory.model_validate(value)
                except ValueError:
                    assert empty not in (missing, None), name  # of another type
                    continue
                files.append(value)
                if name != "tool_calls":  # without it the id of the result names no call, and the row is unread
                    labels.append(("checker_error" if name == "tool_definitions" else "argument_mismatch",))
    records = diagnosed(tmp_path, *files, code=1)
    assert [record.labels for record in records] == labels and len(labels) > 100


def test_what_an_agent_observes_without_a_call_is_no_call_that_is_missing(tmp_path):
    value = trajectory(extra={"reward": 1.0})
    step = value["steps"][1]
    step["message"], step["tool_calls"], step["observation"] = "I look.", None, {"results": [{"content": "A seat."}]}
    (record,) = diagnosed(tmp_path, value)
    assert record.passed and [each["content"] for each in record.messages[-2:]] == ["I look.", "tool: A seat."]


def test_copied_steps_are_left_out_and_trajectories_of_sub_agents_are_said(tmp_path, capsys):
    copied = {"step_id": 1, "source": "user", "message": "Earlier.", "is_copied_context": True}
    answer = {"step_id": 2, "source": "agent", "message": "Yes.", "is_copied_context": True}
    reference = {"content": "done", "subagent_trajectory_ref": [{"trajectory_path": "sub.json"}]}
    value = trajectory()
    value["steps"][1]["observation"]["results"].append(reference)
    value["steps"] = [copied, answer, *({**step, "step_id": step["step_id"] + 2} for step in value["steps"])]
    Trajectory.model_validate(value)
    (record,) = diagnosed(tmp_path, value)
    assert record.labels == ("argument_mismatch",) and "Earlier." not in str(record.messages)
    assert "1 trajectories of sub-agents" in capsys.readouterr().out


def test_a_folder_of_trials_gives_one_rollout_each_with_its_result_s_task_and_reward(tmp_path, capsys):
    for name, reward in (("good", 1.0), ("bad", 0.0), ("lost", None)):
        agent = tmp_path / "job" / name / "agent"
        agent.mkdir(parents=True)
        whole = trajectory(extra=None, continued_trajectory_ref="trajectory.cont-1.json")
        more = trajectory(steps=[{**whole["steps"][0], "is_copied_context": True}, *call_steps(seat=1)])
        (agent / "trajectory.json").write_text(json.dumps(whole))
        (agent / "trajectory.cont-1.json").write_text(json.dumps(more))
        verdict = {"verifier_result": {"rewards": {"reward": reward}}} if reward is not None else {}
        (agent.parent / "result.json").write_text(json.dumps({"task_name": f"seats/{name}", **verdict}))
    bad, good, lost = read(tmp_path, tmp_path / "job")
    assert good.passed and good.task_id == "seats/good" and good.labels == ("pass",) and good.calls == 2
    assert bad.score == 0 and bad.labels == ("argument_mismatch",) and lost.category.startswith("unscored/")
    fault = {"exception_type": "AgentTimeoutError", "exception_message": "900 seconds"}
    for name, exception in (("good", {**fault, "exception_type": "DaytonaError"}), ("bad", fault), ("lost", fault)):
        result = tmp_path / "job" / name / "result.json"
        result.write_text(json.dumps(json.loads(result.read_text()) | {"exception_info": exception}))
    (tmp_path / "job" / "never").mkdir()
    started = {"task_name": "seats/never", "exception_info": {**fault, "exception_type": "EnvironmentStartError"}}
    (tmp_path / "job" / "never" / "result.json").write_text(json.dumps(started))
    (tmp_path / "job" / "result.json").write_text('{"stats": {}}')
    (tmp_path / "out" / "validation_log" / "0.jsonl").unlink()
    bad, good, lost, never = read(tmp_path, tmp_path / "job", code=1)
    assert bad.labels == ("argument_mismatch",) and bad.infra is None  # its time was up, and its work was judged
    assert good.infra_message == "DaytonaError: 900 seconds" and lost.infra and never.task_id == "seats/never"
    (tmp_path / "job" / "bad" / "agent" / "trajectory.cont-1.json").unlink()
    (tmp_path / "out" / "validation_log" / "0.jsonl").unlink()
    assert {each.category for each in read(tmp_path, tmp_path / "job", code=1)} == {"foreign/trajectory"}
    assert "continues in trajectory.cont-1.json, which is not beside it" in capsys.readouterr().out


def call_steps(**arguments) -> list[dict]:
    made = {"tool_call_id": "d", "function_name": "book", "arguments": arguments}
    return [{"step_id": 2, "source": "agent", "message": "", "tool_calls": [made]}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"messages": [{"content": "x"}]}\n', "rollouts.jsonl:1: has no messages.0.role"),
        ('{"messages": []}\n', "rollouts.jsonl:1: has no message of the policy"),
        ('{"steps": []}\n', "is not a rollout: expected one of the keys schema_version"),
        ('{"messages":\n [\n{]}\n', "rollouts.jsonl:3: neither JSON nor JSON lines"),
        ("[]", "no rollout can be used: the files are empty"),
        ('{"messages": [{"role": "assistant"}], "tools": [{"name": []}]}', "rollouts.jsonl:1: name is []"),
        ('{"messages": [{"role": "assistant"}], "reward": NaN}', "rollouts.jsonl:1: reward is nan"),
        ('{"responses_create_params": {}, "response": {"output": [1]}}', "rollouts.jsonl:1: response.output.0 is 1"),
        ('{"nodes": [{"message": {"role": 1}}], "task": {"data": []}}', "rollouts.jsonl:1: nodes.0.message.role is 1"),
        ('{"schema_version": "", "steps": [{"step_id": 1, "source": "x"}]}', "rollouts.jsonl:1: has no agent"),
        ('{"id": "multi_turn_base_1", "result": [[1]]}', "rollouts.jsonl:1: result.0.0"),
        ('{"schema_version": "", "agent": {}, "steps": 3}', "rollouts.jsonl:1: steps is 3: a list is expected"),
        ('{"nodes": [{"message": {"role": "user"}, "parent": 0}]}', "rollouts.jsonl:1: nodes.0.parent is 0"),
        ("[1]\n", "rollouts.jsonl:1: a int where an object is expected"),
    ],
)
def test_a_file_without_a_rollout_is_refused_with_its_place_and_what_was_expected(tmp_path, capsys, text, said):
    file = tmp_path / "rollouts.jsonl"
    file.write_text(text)
    assert execute(load("diagnose"), ["rollouts", str(file), "--out", str(tmp_path / "out")], "seal diagnose") == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()
