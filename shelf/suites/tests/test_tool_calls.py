"""The mode openai_fc beside the official handler for chat completions: the same answers over HTTP, to both."""

import asyncio
import contextlib
import copy
import io
import json
import random
from collections import defaultdict
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

import pytest
from bfcl_eval.constants.enums import ModelStyle
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
from bfcl_eval.model_handler.utils import convert_to_tool
from bfcl_eval.utils import load_dataset_entry

from env_service.client import AsyncServiceClient
from env_service.environments.bfcl.catalog import CLASSES, documents, load_tasks
from env_service.environments.bfcl.formats import _with_hint, get_format
from env_service.environments.bfcl.tools import parse_reference
from seal.data.rows import whole_rows
from seal.records.benchmark import CATEGORIES
from seal.rollout.services import Services
from shelf.authoring.tests.bfcl_official import check
from shelf.suites.benchmark import EndpointSpeaker, EpisodeSettings, play_row
from shelf.suites.endpoint import ChatClient, Endpoint, Sampling
from shelf.suites.unread import unread
from tests.support.loopback import Loopback

DONE = {"content": "Done.", "tool_calls": None}


def called(*calls, **more):
    """An answer that makes these (name, arguments) calls."""
    entries = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"content": None, "tool_calls": entries, **more}


def perfect(task):
    """The answers of a reference by turn, calls of a turn in at most 20 messages."""
    turns = []
    for turn in task.reference:
        calls = [(name, json.dumps(arguments)) for name, arguments in map(parse_reference, turn)]
        size = max(1, -(-len(calls) // 20))
        turns.append([*(called(*calls[at : at + size]) for at in range(0, len(calls), size)), DONE])
    return turns


def damaged(answer, rng):
    """The answer as models and endpoints get it wrong."""
    answer = copy.deepcopy(answer)
    call = answer["tool_calls"][0]
    function = call["function"]
    written = function["arguments"]
    bad = rng.choice(["", " ", "null", "[]", "{", written[:-1], json.dumps(written), written + ",", None, "3", "NaN"])
    odd = rng.choice(
        [
            lambda: function.update(arguments=bad),
            lambda: function.update(arguments=bad),
            lambda: function.update(arguments=bad),
            lambda: function.update(arguments=json.loads(written)),
            lambda: function.update(arguments='{"no": NaN}'),
            lambda: function.update(name="no_such_tool"),
            lambda: function.update(name=None),
            lambda: function.pop("name"),
            lambda: call.pop("id"),
            lambda: call.pop("function"),
            lambda: answer["tool_calls"].append({"id": "x", "type": "custom", "custom": {"name": "f", "input": "x"}}),
            lambda: answer["tool_calls"].append(copy.deepcopy(call) | {"function": {"name": "ls", "arguments": "{"}}),
            lambda: answer.update(tool_calls=[], content="Sure."),
            lambda: answer.update(tool_calls=None, content='<tool_call>{"name": "x", "arguments": {}}</tool_call>'),
            lambda: answer.update(tool_calls=None, content=json.dumps({"content": "", "tool_calls": [call]})),
            lambda: answer.update(tool_calls=None, content=None),
            lambda: answer.update(tool_calls=None, content=None, reasoning_content="Hm."),
            lambda: answer.update(content="I will.", reasoning_content="Hm."),
        ]
    )
    odd()
    return answer


def malformed(count, seed=0):
    """(task, answers) of references with one or two damaged messages, half of them said again in the right form."""
    rng, tasks = random.Random(seed), list(load_tasks().values())
    for _ in range(count):
        task = rng.choice(tasks)
        turns = perfect(task)
        places = [(t, m) for t, turn in enumerate(turns) for m, answer in enumerate(turn) if answer["tool_calls"]]
        for t, m in sorted(rng.sample(places, min(len(places), rng.choice([1, 1, 2]))), reverse=True):
            right, turns[t][m] = turns[t][m], damaged(turns[t][m], rng)
            if rng.random() < 0.5:
                turns[t].insert(m + 1, right)
        yield task, turns


@contextlib.contextmanager
def endpoint(scripts, strict=0):
    """An endpoint that gives the answers of scripts[key] in turn; its address, and what each side asked it by key.

    strict: the status with which it answers messages with calls that no message answers, as some do.
    """
    asked = defaultdict(list)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            side = "official" if "X-Run" in self.headers else "ours"
            key = int(self.headers.get("X-Run") or unquote(self.headers["X-Request-Id"]).split("/")[1])
            asked[side, key].append({name: body.get(name) for name in ("messages", "tools")})
            number = sum(message["role"] == "assistant" for message in body["messages"])
            message = {"role": "assistant", **(scripts[key][number] if number < len(scripts[key]) else DONE)}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            text = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
            calls = sum(len(message.get("tool_calls") or ()) for message in body["messages"])
            answers = sum(message["role"] == "tool" for message in body["messages"])
            self.send_response(strict if strict and calls != answers else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with Loopback(Handler) as server:
        yield f"{server.url}/v1", asked


@cache
def entries():
    names = [f"multi_turn_{category}" for category in CATEGORIES]
    return {entry["id"]: entry for name in names for entry in load_dataset_entry(name)}


def test_the_tools_are_written_as_the_package_writes_them():
    for name in CLASSES:
        tools = documents(name)
        theirs = convert_to_tool(
            [_with_hint(tool) for tool in tools], GORILLA_TO_OPENAPI, ModelStyle.OPENAI_COMPLETIONS
        )
        assert json.dumps(get_format("openai_fc").definitions(tools)) == json.dumps(theirs)


def official(url, key, task, monkeypatch):
    """The official verdict on a run that the official handler has with the endpoint, and its result."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_DEFAULT_HEADERS", json.dumps({"X-Run": str(key)}))
    handler = OpenAICompletionsHandler("m", 0.0, f"official-{key}-FC", True)
    handler.model_name_underline_replaced = f"official_{key}"  # the simulators' names: runs must not share them
    with contextlib.redirect_stdout(io.StringIO()):
        result, _ = handler.inference_multi_turn_FC(copy.deepcopy(entries()[task.id]), False, True)
    if len(result) != len(task.reference):
        return False, result
    return check(task, [[calls for said in turn if (calls := decoded(handler, said))] for turn in result]).valid, result


def decoded(handler, said):
    try:
        calls = handler.decode_execute(said, has_tool_call_tag=False)
        return [] if is_empty_execute_response(calls) else calls
    except Exception:  # the tool drops whatever cannot be decoded
        return []


async def ours(url, service_url, runs, **options):
    """The records of our own evaluation of the same runs; options: of the client."""
    client, service = ChatClient(Endpoint(url, "m"), **options), AsyncServiceClient(service_url, "bfcl", deadline_s=300)
    services, gate = Services([service], 60.0), asyncio.Semaphore(16)

    async def one(key, task):
        async with gate:
            row = whole_rows([task.id], "eval")[0]
            speaker = EndpointSpeaker(client, Sampling(), f"{row.task_id}/{key}", 0, calls_tools=True)
            return await play_row(row, key, speaker, services, EpisodeSettings("openai_fc", 20, 600.0))

    try:
        return await asyncio.gather(*(one(key, task) for key, (task, _) in enumerate(runs)))
    finally:
        await client.close()
        await services.close()


def compare(runs, service_url, monkeypatch):
    """The runs whose verdict differs, and those whose requests do."""
    scripts = [[answer for turn in turns for answer in turn] for _, turns in runs]
    with endpoint(scripts) as (url, asked):
        records = asyncio.run(ours(url, service_url, runs))
        verdicts = [official(url, key, task, monkeypatch)[0] for key, (task, _) in enumerate(runs)]
    assert not [record.infra_message for record in records if record.infra]
    passed = [record.passed for record in records]
    wrong = [(task.id, key) for key, (task, _) in enumerate(runs) if passed[key] != verdicts[key]]
    other = [key for key in range(len(runs)) if requests(asked["ours", key]) != requests(asked["official", key])]
    return passed, wrong, other


def requests(bodies):
    """What the model was asked, without what means the same: unset fields, no content and an empty one."""
    asked = []
    for body in bodies:
        messages = [
            {name: value for name, value in message.items() if value and name in KEPT} for message in body["messages"]
        ]
        asked.append((messages, body["tools"]))
    return asked


KEPT = ("role", "content", "tool_calls", "tool_call_id")


def test_verdicts_and_requests_are_the_official_handler_s(service_url, monkeypatch):
    tasks = [*load_tasks().values()][::80]
    passed, wrong, other = compare([(task, perfect(task)) for task in tasks], service_url, monkeypatch)
    assert all(passed) and not wrong and not other
    passed, wrong, _ = compare([*malformed(10)], service_url, monkeypatch)
    assert not wrong and not all(passed)


@pytest.mark.parametrize(
    ("status", "infra", "stop"), [(400, None, "parse_error"), (422, None, "parse_error"), (503, "endpoint_503", "")]
)
def test_a_call_that_the_endpoint_cannot_read_again_is_the_model_s_fault_and_an_outage_after_it_is_not(
    service_url, status, infra, stop
):
    task = next(task for task in load_tasks().values() if all(task.reference))
    turns = perfect(task)
    turns[0][0]["tool_calls"][0]["function"]["arguments"] = "{"
    with endpoint([[answer for turn in turns for answer in turn]], strict=status) as (url, _):
        (record,) = asyncio.run(ours(url, service_url, [(task, turns)], attempts=1))
    assert (record.infra, record.stop, record.score) == (infra, stop, 0.0)


def test_calls_that_stand_in_the_texts_of_a_run_are_counted(service_url):
    task = next(task for task in load_tasks().values() if all(task.reference))
    left = {"content": '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>', "tool_calls": None}
    thought = {"content": '<think>{"name": "ls", "arguments": {}}</think>Done.', "tool_calls": None}
    good = [answer for turn in perfect(task) for answer in turn]
    with endpoint([[left] * len(good), good, [thought] * len(good)]) as (url, _):
        lost, *others = asyncio.run(ours(url, service_url, [(task, None)] * 3))
    turns = len(task.reference)
    assert unread([lost])[:3] == (turns, turns, 1) and unread([lost]).sentence
    assert unread(others)[:3] == (2 * turns, 0, 0) and not unread(others).sentence
    assert unread([lost, *others])[:3] == (3 * turns, turns, 1)
    in_text = replace(lost, prompt_mode="bfcl_qwen_fc", calls=0)
    assert unread([in_text]).sentence and not unread([replace(in_text, calls=1)]).sentence


@pytest.mark.slow
def test_all_references_and_200_malformed_runs_are_judged_as_by_the_official_handler(service_url, monkeypatch):
    runs = [(task, perfect(task)) for task in load_tasks().values()] + [*malformed(200, seed=1)]
    passed, wrong, _ = compare(runs, service_url, monkeypatch)
    assert wrong == []
    assert sum(passed[:800]) > 790 and 0 < sum(passed[800:]) < 200
