"""Faults of a client, and the service's answers."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.service.client import Connection
from env_service.channel import ActivityPage, FrameBuffer, frame
from env_service.environments import registry
from env_service.environments.bfcl.catalog import load_tasks
from env_service.worker_main import prepared, serve
from seal.method.interface.cues import Omega
from tests.env_service.bfcl_perturbations import reference_calls, texts
from tests.support.extension import installed

ROOT = Path(__file__).resolve().parents[2]
COMPACT = {"tool_prompt_mode": "compact"}
TASK = "multi_turn_base_0"


class Client:
    """A blocking client of one service."""

    def __init__(self, port: int) -> None:
        self.port = port

    def post(self, verb: str, body: Any, **headers: str) -> tuple[int, Any]:
        """(status, decoded answer); body may be bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{verb}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def ok(self, verb: str, body: Any) -> Any:
        status, answer = self.post(verb, body)
        assert status == 200, answer
        return answer["data"]

    def say(self, name: str, content: str, **more: Any) -> tuple[int, Any]:
        message = {"role": "assistant", "content": content}
        return self.post("step", {"instance_id": name, "messages": message, **more})


@pytest.fixture
def client(service: int) -> Client:
    return Client(service)


@pytest.fixture
def episode(client: Client) -> Any:
    name = "episode-of-test"
    client.ok("create", {"env_type": "bfcl", "task_id": TASK, "instance_id": name, "params": COMPACT})
    yield name
    client.post("release", {"instance_id": name})


def test_the_public_protocol_from_profile_to_release(client: Client) -> None:
    profile = client.ok("get_env_profile", {"env_type": "bfcl", "params": {"split": "base"}})
    assert profile == [f"multi_turn_base_{index}" for index in range(200)]
    train, held = (client.ok("get_env_profile", {"params": {"split": split}}) for split in ("train", "val"))
    assert (len(train), len(held), len({*train, *held})) == (400, 400, 800)
    assert len(client.ok("get_env_profile", {"env_type": "bfcl"})) == 800
    created = client.ok(
        "create",
        {
            "env_type": "bfcl",
            "task_id": TASK,
            "instance_id": "public",
            "params": {"rollout_mode": "train", "strict_tool_parser": True, "tool_call_parser": "hermes"},
        },
    )
    assert [message["role"] for message in created["state"]] == ["system", "user"]
    assert all(message.keys() == {"role", "content"} for message in created["state"])
    assert created["info"]["instance_id"] == "public"
    assert (created["info"]["questions_count"], created["info"]["category"]) == (4, "base")
    for text in (text for turn in texts(reference_calls(load_tasks()[TASK]), None) for text in turn):
        status, answer = client.say("public", text)
        assert status == 200
    data = answer["data"]
    assert data["state"] == [{"role": "user", "content": "[CONVERSATION_COMPLETED]", "tool_calls": []}]
    assert (data["is_terminated"], data["reward"]) == (True, 1.0)
    assert client.ok("evaluate", {"instance_id": "public", "params": {"sparse": True}}) == 1.0
    full = client.ok("evaluate", {"instance_id": "public", "params": {"sparse": False}})
    assert full["bfcl_progress_info"]["failure_tags"] == ["pass"] * 4
    assert full["bfcl_progress_info"]["per_turn_valid"] == [True] * 4
    assert "grep: " in client.ok("get_info", {"instance_id": "public"})
    assert client.post("release", {"instance_id": "public"}) == (200, {"success": True, "data": None})
    assert client.post("release", {"instance_id": "public"}) == (200, {"success": False, "data": None})


def test_evaluating_changes_nothing_and_repeats_itself(client: Client, episode: str) -> None:
    run = texts(reference_calls(load_tasks()[TASK]), None, "compact")
    for turn in run:
        for text in turn:
            first = client.ok("evaluate", {"instance_id": episode})
            assert first == client.ok("evaluate", {"instance_id": episode})
            client.say(episode, text)
    assert client.ok("evaluate", {"instance_id": episode, "params": {"sparse": True}}) == 1.0


def test_a_repeated_step_id_acts_once(client: Client, episode: str) -> None:
    call = '<tool_call>{"name":"mkdir","arguments":{"dir_name":"new"}}</tool_call>'
    first = client.say(episode, call, step_id="s1")
    assert client.say(episode, call, step_id="s1") == first
    again = client.say(episode, call, step_id="s2")[1]["data"]["state"][0]["content"]
    assert "already exists" in again or "exists" in again
    status, answer = client.say(episode, "other", step_id="s2")
    assert (status, "step_id" in answer["detail"]) == (400, True)
    cut = {"instance_id": episode, "messages": {"role": "assistant", "content": call}, "truncated": True}
    assert client.post("step", {**cut, "step_id": "s2"})[0] == 400
    assert client.ok("evaluate", {"instance_id": episode})["calls"] == 2


def test_concurrent_repeats_of_one_step_act_once(service: int, client: Client, episode: str) -> None:
    body = {
        "instance_id": episode,
        "messages": {"role": "assistant", "content": '<tool_call>{"name":"pwd","arguments":{}}</tool_call>'},
        "step_id": "same",
    }

    async def once() -> tuple[int, Any]:
        connection = Connection("127.0.0.1", service)
        answer = await connection.post("step", body)
        connection.close()
        return answer

    async def many() -> list[tuple[int, Any]]:
        return await asyncio.gather(*(once() for _ in range(10)))

    answers = asyncio.run(many())
    assert all(answer == answers[0] for answer in answers)
    assert client.ok("evaluate", {"instance_id": episode})["calls"] == 1


NESTED = b'{"instance_id":"x","params":' + b"[" * 5000 + b"]" * 5000 + b"}"
BAD = [
    ("step", {"messages": {"role": "assistant", "content": "x"}}, 400, "instance_id is missing"),
    ("step", {"instance_id": "nobody", "messages": {"role": "assistant", "content": "x"}}, 400, "unknown"),
    ("evaluate", {"instance_id": "nobody"}, 400, "unknown"),
    ("get_info", {"instance_id": "nobody"}, 400, "unknown"),
    ("evaluate", {}, 400, "instance_id is missing"),
    ("get_env_profile", {"params": {"split": "mine"}}, 400, "choose one of base"),
    ("release", {}, 400, "instance_id is missing"),
    ("create", {}, 400, "task_id is missing"),
    ("create", {"task_id": "multi_turn_base_200"}, 400, "unknown"),
    ("create", {"task_id": TASK, "env_type": "chess"}, 400, "choose one of bfcl"),
    ("create", {"task_id": TASK, "params": {"tool_prompt_mode": "x"}}, 400, "choose one of bfcl_qwen_fc"),
    ("create", {"task_id": TASK, "params": {"turns": 5}}, 400, "turns must be in 1..4"),
    ("create", {"task_id": TASK, "params": {"turns": "many"}}, 400, "params.turns"),
    ("create", {"task_id": TASK, "params": {"turns": True}}, 400, "params.turns"),
    ("create", b'{"task_id":"multi_turn_base_0","params":{"turns":1e999}}', 422, "turns is not a finite number"),
    ("create", {"task_id": TASK, "params": {"max_steps": 0}}, 400, "params.max_steps"),
    ("create", {"task_id": TASK, "params": {"taxonomy": "mine"}}, 400, "taxonomy"),
    ("create", {"task_id": TASK, "params": {"omega": {}}}, 400, "omega"),
    ("create", {"task_id": TASK, "params": {"omega": {}, "split": "val"}}, 400, "without an interface"),
    ("step", {"instance_id": "x", "messages": {"role": "system", "content": "x"}}, 422, "messages.role"),
    ("step", {"instance_id": "x", "messages": "x"}, 422, "messages"),
    ("step", {"instance_id": 5, "messages": {"role": "assistant", "content": "x"}}, 422, "instance_id"),
    ("step", {"instance_id": "x", "messages": {"role": "assistant", "content": None}}, 422, "messages.content"),
    ("step", b"{", 422, "JSON"),
    ("step", b"\xff\xfe", 422, "JSON"),
    ("step", b"", 422, "JSON"),
    ("step", b'{"instance_id":"x","messages":{"role":"assistant","content":"\\ud800"}}', 422, "JSON"),
    ("create", NESTED, 422, "JSON"),
    ("create", {"task_id": "x" * 300}, 422, "task_id"),
    ("create", {"task_id": TASK, "params": {"x": "y" * (5 * 2**20)}}, 413, "BFCL_MAX_BODY_BYTES"),
]


@pytest.mark.parametrize(("verb", "body", "status", "words"), BAD, ids=range(len(BAD)))
def test_bad_requests_get_a_sentence_and_a_4xx(client: Client, verb: str, body: Any, status: int, words: str) -> None:
    got, answer = client.post(verb, body)
    assert (got, words in answer["detail"]) == (status, True), answer
    assert client.post("release", {"instance_id": "nobody"})[0] == 200


@pytest.mark.parametrize("params", [{"taxonomy": "mine"}, {"taxonomy": ["paper"]}, {"stop": "mine"}])
def test_a_refused_evaluation_leaves_its_episode(client: Client, params: dict[str, Any]) -> None:
    client.ok("create", {"task_id": TASK, "instance_id": "kept"})
    status, answer = client.post("evaluate", {"instance_id": "kept", "params": params})
    assert (status, next(iter(params)) in answer["detail"]) == (400, True), answer
    assert client.ok("evaluate", {"instance_id": "kept"})["valid"] is False
    client.ok("release", {"instance_id": "kept"})


def answer_of(method: str, port: int, path: str) -> http.client.HTTPResponse:
    """The answer to a request without a body; its content is read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/step", "POST"),
        ("DELETE", "//release", "POST"),
        ("POST", "/healthz", "GET"),
        ("PUT", "/version", "GET"),
    ],
)
def test_a_wrong_method_is_answered_with_the_allowed_one(service: int, method: str, path: str, allowed: str) -> None:
    answer = answer_of(method, service, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


def test_a_doubled_slash_is_answered_like_a_single_one(client: Client) -> None:
    body = {"env_type": "bfcl", "params": {"split": "base"}}
    assert client.post("/get_env_profile", body) == client.post("get_env_profile", body)
    created = client.ok("/create", {"task_id": TASK, "instance_id": "slashes", "params": COMPACT})
    assert created["info"]["instance_id"] == "slashes"
    client.ok("/release", {"instance_id": "slashes"})
    for path in ("/healthz", "/version", "/metrics"):
        assert answer_of("GET", client.port, f"/{path}").status == 200


def test_a_duplicate_id_is_refused_and_the_first_episode_lives_on(client: Client, episode: str) -> None:
    status, answer = client.post("create", {"task_id": TASK, "instance_id": episode})
    assert (status, "already open" in answer["detail"]) == (400, True)
    assert client.say(episode, "Done.")[0] == 200


def test_a_repeated_create_opens_one_episode(client: Client) -> None:
    body = {"task_id": TASK, "instance_id": "twice", "create_id": "c1", "params": COMPACT}
    first = client.post("create", body)
    assert first[0] == 200 and client.post("create", body) == first
    for other in ({"create_id": "c2"}, {"task_id": "multi_turn_base_1"}, {"params": {**COMPACT, "turns": 1}}):
        assert client.post("create", {**body, **other})[0] == 400
    assert client.say("twice", "Done.")[0] == 200
    assert client.post("create", body)[0] == 400
    client.ok("release", {"instance_id": "twice"})


HOSTILE = [
    '{"name":"__init__","arguments":{}}',
    '{"name":"_load_scenario","arguments":{"scenario":{}}}',
    '{"name":"root","arguments":{}}',
    '{"name":"__class__","arguments":{}}',
    '{"name":"print","arguments":{"x":1}}',
    '{"name":"exit","arguments":{}}',
    '{"name":"mkdir(dir_name=\'a\') or print","arguments":{}}',
    '{"name":"mkdir","arguments":{"dir_name=__import__(\'os\').system(\'touch PWNED\'), x":1}}',
    '{"name":"mkdir","arguments":{"dir_name":"\\ud800"}}',
    '{"name":"mkdir","arguments":{"dir_name":1e999}}',
    '{"name":"mkdir","arguments":{"dir_name":NaN}}',
    '{"name":"mkdir","arguments":{"dir_name":' + "9" * 400 + "}}",
    '{"name":"mkdir","arguments":{"dir_name":' + "[" * 300 + "]" * 300 + "}}",
    '{"name":"mkdir","arguments":{"dir_name":' + "[" * 100000 + "]" * 100000 + "}}",
    '{"name":["mkdir"],"arguments":{}}',
    '{"name":"mkdir","arguments":[]}',
    '{"name":"mkdir"}',
    "null",
    "[]",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("omega", [None, Omega.of().to_json()], ids=["evaluation", "training"])
def test_hostile_calls_are_answered_and_never_run(client: Client, text: str, omega: Any, tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    text = text.replace("PWNED", str(pwned))
    params = {"tool_prompt_mode": "compact", "omega": omega}
    client.ok("create", {"task_id": TASK, "instance_id": "hostile", "params": params})
    try:
        status, answer = client.say("hostile", f"<tool_call>{text}</tool_call>")
        assert status == 200
        assert answer["data"]["state"]
        report = client.ok("evaluate", {"instance_id": "hostile"})
        actions = report["evidence"][0]["actions"]
        assert actions[0]["refusals"] or all(call["error"] for call in actions[0]["calls"]) or "ud800" in text
        assert not pwned.exists()
    finally:
        client.ok("release", {"instance_id": "hostile"})


def test_too_many_episodes_get_a_429_and_idle_ones_expire(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    with start_service(BFCL_WORKERS="1", BFCL_MAX_EPISODES="2", BFCL_IDLE_SECONDS="2") as port:
        client = Client(port)
        for name in ("a", "b"):
            client.ok("create", {"task_id": TASK, "instance_id": name, "params": COMPACT})
        status, answer = client.post("create", {"task_id": TASK, "instance_id": "c", "params": COMPACT})
        assert (status, "BFCL_MAX_EPISODES" in answer["detail"]) == (429, True)
        deadline = 40
        while client.post("get_info", {"instance_id": "a"})[0] == 200 and deadline:
            deadline -= 1
            signal.sigtimedwait([], 3)
        status, answer = client.say("b", "Done.")
        assert (status, "expired" in answer["detail"], answer["code"]) == (400, True, "no_episode")
        client.ok("create", {"task_id": TASK, "instance_id": "b", "params": COMPACT})


def test_the_messages_that_an_episode_keeps_are_limited(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    with start_service(BFCL_WORKERS="1", BFCL_MAX_BODY_BYTES="2000") as port:
        client = Client(port)
        client.ok("create", {"task_id": TASK, "instance_id": "a", "params": COMPACT})
        assert client.say("a", "x" * 1500, step_id="1")[0] == 200
        status, answer = client.say("a", "x" * 1500, step_id="2")
        assert (status, answer["code"], "BFCL_MAX_BODY_BYTES" in answer["detail"]) == (413, "episode_broken", True)
        assert client.say("a", "x" * 1500, step_id="1")[0] == 200
        assert client.say("a", "x" * 400)[0] == 200


def test_a_token_is_required_if_one_is_set(start_service: Callable[..., AbstractContextManager[int]]) -> None:
    with start_service(BFCL_WORKERS="1", BFCL_TOKEN="secret") as port:
        client = Client(port)
        body = {"task_id": TASK, "instance_id": "a", "params": COMPACT}
        assert client.post("create", body)[0] == 401
        assert client.post("create", body, Authorization="Bearer secre")[0] == 401
        assert client.post("create", body, Authorization="bearer secret")[0] == 200
        assert [answer_of("GET", port, path).status for path in ("/healthz", "//healthz", "//version")] == [
            200,
            200,
            401,
        ]


@pytest.mark.parametrize("asked", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_no_web_page_reaches_a_service_without_a_token(client: Client, asked: dict[str, str]) -> None:
    body = {"task_id": TASK, "instance_id": "page", "params": COMPACT}
    status, answer = client.post("create", body, **{"Content-Type": "text/plain"}, **asked)
    assert (status, "BFCL_TOKEN" in answer["detail"]) == (421, True)
    assert client.post("get_info", {"instance_id": "page"})[0] == 400
    assert client.post("get_env_profile", {}, Host="localhost:1", Origin="http://[::1]:3000")[0] == 200


def start(**variables: str) -> tuple[int, str]:
    """Exit code and stderr of a service that cannot start."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "env_service"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_it_says_in_one_sentence_why_it_cannot_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, text = start(BFCL_PORT=str(taken.getsockname()[1]))
    assert (code, text.count("\n"), "BFCL_PORT" in text) == (1, 1, True)
    code, text = start(BFCL_HOST="0.0.0.0", BFCL_PORT="0", BFCL_TOKEN="")
    assert (code, text.count("\n"), "BFCL_TOKEN" in text) == (1, 1, True)
    code, text = start(BFCL_PORT="eighty")
    assert (code, text.count("\n"), "BFCL_PORT" in text) == (1, 1, True)


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "BFCL_ENVIRONMENTS",
            "todo=no_such_module:Todo",
            "The environment todo (no_such_module:Todo) cannot be imported",
        ),
        ("BFCL_TASK_FILES", str(ROOT / "README.md"), str(ROOT / "README.md")),
    ],
)
def test_workers_that_cannot_start_say_why_in_one_sentence(variable: str, value: str, sentence: str) -> None:
    code, text = start(**{variable: value, "BFCL_PORT": "0", "BFCL_WORKERS": "2"})
    assert (code, text.count("\n"), text.startswith(sentence)) == (1, 1, True), text


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BFCL_PORT": "0", "BFCL_WORKERS": "1"}
    command = [sys.executable, "-m", "env_service"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert "listening on http://127.0.0.1:" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read()) == (0, "")


def test_an_environment_that_cannot_be_prepared_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    location = "tests.env_service.toy_environment:UnreadEnvironment"
    monkeypatch.setitem(registry._ADDED, "unread", location)
    tried = threading.Event()

    def preparation() -> Iterator[None]:
        yield from prepared([registry.get_environment("unread")])
        tried.set()

    ours, theirs = socket.socketpair()
    page = ActivityPage(ActivityPage.allocate())
    serving = threading.Thread(target=serve, args=(theirs, page, preparation()), daemon=True)
    with theirs:
        with ours:
            serving.start()
            assert tried.wait(30)
            ours.settimeout(30)
            ours.sendall(frame(orjson.dumps(["profile", "", {"env_type": "unread", "split": ""}])))
            (answer,) = FrameBuffer().feed(ours.recv(2**16))
        serving.join(30)
    assert orjson.loads(answer.partition(b"\n")[0])["code"] == "environment_failed"


def test_a_second_environment_is_added_without_touching_the_service(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    path = f"{Path(__file__).parent}{os.pathsep}{ROOT}"
    added = "counter=toy_environment:CounterEnvironment"
    limits = {"BFCL_MEMORY_MB": "300", "BFCL_REQUEST_SECONDS": "3"}
    with start_service(BFCL_WORKERS="1", BFCL_ENVIRONMENTS=added, PYTHONPATH=path, **limits) as port:
        client = Client(port)
        assert client.ok("get_env_profile", {"env_type": "counter"}) == ["3", "7"]
        client.ok("create", {"env_type": "counter", "task_id": "7", "instance_id": "a"})
        client.ok("create", {"env_type": "bfcl", "task_id": TASK, "instance_id": "b", "params": COMPACT})
        assert client.say("a", "+3")[1]["data"]["state"][0]["content"] == "3"
        assert client.say("a", "grow 900")[1]["data"]["state"][0]["content"] == "the call exceeded 300 MB of memory"
        assert client.say("a", "+4")[1]["data"]["state"][0]["content"] == "7"
        assert client.say("a", "done")[1]["data"]["reward"] == 1.0
        assert client.say("b", "Done.")[0] == 200
        client.ok("create", {"env_type": "counter", "task_id": "3", "instance_id": "c"})
        assert client.say("c", "crash")[1]["data"]["state"][0]["content"] == "the call ended its process"
        assert client.say("c", "+1")[1]["data"]["state"][0]["content"] == "1"
        for _ in range(2):
            status, answer = client.say("c", "spin")
            assert (status, "was closed" in answer["detail"], answer["code"]) == (400, True, "episode_broken")
        assert client.say("b", "Done.")[0] == 200
        for message, raised in {"stumble": "KeyError in step: 'stumble'", "quit": "SystemExit in step: 2"}.items():
            client.ok("create", {"env_type": "counter", "task_id": "3", "instance_id": message})
            status, answer = client.say(message, message)
            assert (status, answer["code"]) == (400, "environment_failed")
            assert answer["detail"] == f"The environment counter raised {raised}"
            assert client.say(message, "+1")[1]["code"] == "episode_broken"
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert "env_service_worker_restarts 4\n" in metrics


def test_a_label_of_an_extension_is_made_in_the_service(
    start_service: Callable[..., AbstractContextManager[int]], tmp_path: Path
) -> None:
    path = os.pathsep.join((*installed(tmp_path), str(ROOT)))
    with start_service(BFCL_WORKERS="1", PYTHONPATH=path) as port:
        client, omega = Client(port), {"version": 0, "cues": {"*": ["vary_calls"]}}
        client.ok("create", {"task_id": TASK, "instance_id": "a", "params": COMPACT | {"omega": omega}})
        for _ in range(2):
            client.say("a", '<tool_call>{"name":"cd","arguments":{"folder":"nowhere"}}</tool_call>')
        client.say("a", "Done.")
        first, *_ = client.ok("evaluate", {"instance_id": "a", "params": {"taxonomy": "repeated"}})["diagnosis"]
    assert (first["label"], first["reason"]) == ("repeated_call", "cd failed and was called again unchanged")


def test_the_protocol_is_documented_and_its_version_named(service: int) -> None:
    base = f"http://127.0.0.1:{service}"
    document = json.loads(urllib.request.urlopen(f"{base}/openapi.json", timeout=10).read())
    verbs = {"/get_env_profile", "/create", "/step", "/evaluate", "/get_info", "/release", "/healthz"}
    assert verbs <= set(document["paths"])
    body = document["paths"]["/step"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[1]]
    assert {"instance_id", "messages", "step_id", "truncated"} <= set(schema["properties"])
    version = json.loads(urllib.request.urlopen(f"{base}/version", timeout=10).read())
    assert (version["bfcl_eval"], version["protocol"], len(version["data_hash"])) == ("2026.3.23", 2, 64)
    assert urllib.request.urlopen(f"{base}/healthz", timeout=10).read() == b"OK"


def test_services_with_different_hash_seeds_print_sets_alike(
    start_service: Callable[..., AbstractContextManager[int]],
) -> None:
    task = load_tasks()["multi_turn_base_150"]
    travel = task.initial_config["TravelAPI"]
    arguments = {
        "access_token": travel["access_token"],
        "card_id": next(iter(travel["credit_card_list"])),
        "travel_date": "2026-01-01",
        "travel_from": "SFO",
        "travel_to": "LAX",
        "travel_class": "roof",
    }
    call = f"<tool_call>{json.dumps({'name': 'book_flight', 'arguments': arguments})}</tool_call>"
    answers = set()
    for seed in "124":  # a set of the three classes has another order with each
        with start_service(BFCL_WORKERS="1", PYTHONHASHSEED=seed) as port:
            client = Client(port)
            client.ok("create", {"instance_id": "one", "task_id": task.id, "params": COMPACT})
            answers.add(json.dumps(client.say("one", call)[1]["data"]["state"]))
    assert len(answers) == 1 and "Must be one of {" in answers.pop()
