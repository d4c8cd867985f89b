"""The service answers whatever is sent in a sentence, and goes on with everybody else's episodes."""

import asyncio
import json
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.service.__main__ import reference_runs
from benchmarks.service.client import Connection
from env_service.client import ServiceClient
from tests.attack.odd import VALUES, changed

TASK = "multi_turn_base_0"
MESSAGE = {"role": "assistant", "content": '<tool_call>{"name":"ls","arguments":{"a":true}}</tool_call>'}
BODIES = {
    "get_env_profile": {"env_type": "bfcl", "params": {"split": "base"}},
    "create": {"task_id": TASK, "env_type": "bfcl", "params": {"tool_prompt_mode": "compact", "split": "train"}},
    "step": {"instance_id": "attacked", "messages": MESSAGE, "step_id": "s", "truncated": False},
    "evaluate": {"instance_id": "attacked", "params": {"sparse": False, "stop": "length", "evidence": []}},
    "get_info": {"instance_id": "attacked"},
    "tasks": {"tasks": [{"id": "synth_x", "reference": [], "users": []}]},
    "release": {"instance_id": "nobody"},
}
CALLS = 1500


def body_of(document: object) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def http(url):
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.fixture
def attacked(url):
    with ServiceClient(url) as client:
        client.release("attacked")
        client.create(TASK, "attacked", {"tool_prompt_mode": "compact"})


@settings(max_examples=CALLS)
@given(data=st.data())
def test_no_body_is_answered_with_a_5xx(http, data):
    verb = data.draw(st.sampled_from(sorted(BODIES)))
    answer = http.post(f"/{verb}", content=body_of(data.draw(changed(BODIES[verb]))))
    assert answer.status_code in (200, 400, 413, 422, 429), answer.text
    if answer.status_code != 200:
        assert answer.json()["detail"]
    elif verb == "create":
        http.post("/release", json={"instance_id": answer.json()["data"]["info"]["instance_id"]})


@settings(max_examples=300)
@given(call=changed({"name": "mkdir", "arguments": {"dir_name": "a"}}), more=st.sampled_from(VALUES))
def test_no_call_breaks_an_episode(http, call, more):
    name = http.post("/create", json=BODIES["create"]).json()["data"]["info"]["instance_id"]
    text = f"<tool_call>{json.dumps(call)}</tool_call><tool_call>{json.dumps(more)}</tool_call>"
    said = {"instance_id": name, "messages": {"role": "assistant", "content": text}}
    assert http.post("/step", content=body_of(said)).status_code in (200, 413, 422)
    assert http.post("/evaluate", json={"instance_id": name}).status_code == 200
    assert http.post("/release", json={"instance_id": name}).json()["success"]


@settings(max_examples=400)
@given(
    cut=st.integers(0, 200),
    junk=st.binary(max_size=40),
    length=st.sampled_from([b"5", b"-1", b"99999999999", b"x", b""]),
)
def test_no_broken_request_harms_the_next_one(http, url, cut, junk, length):
    whole = b"POST /release HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n{}"
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), 5) as raw:
        raw.sendall(whole[:cut] + junk + whole[cut:])
    assert http.get("/healthz").text == "OK"


def test_512_episodes_at_once_pass_as_one_does(url):
    runs = reference_runs("compact")[:512]

    async def play(port: int, number: int) -> bool:
        connection, (task, messages) = Connection("127.0.0.1", port, deadline=300), runs[number]
        name, params = f"crowd-{number}", {"tool_prompt_mode": "compact"}
        await connection.verb("create", {"task_id": task, "instance_id": name, "params": params})
        for text in messages:
            await connection.verb("step", {"instance_id": name, "messages": {"role": "assistant", "content": text}})
        verdict = await connection.verb("evaluate", {"instance_id": name, "params": {"sparse": True}})
        await connection.verb("release", {"instance_id": name})
        connection.close()
        return verdict == 1.0

    async def crowd() -> list[bool]:
        return await asyncio.gather(*(play(urlsplit(url).port, number) for number in range(512)))

    assert all(asyncio.run(crowd()))


def others_are_answered(http):
    began = time.monotonic()
    for _ in range(50):
        assert http.post("/get_info", json={"instance_id": "attacked"}).status_code == 200
    assert time.monotonic() - began < 20


def test_slow_writers_and_readers_cost_the_others_nothing(http, url, attacked):
    address = urlsplit(url)
    slow = [socket.create_connection((address.hostname, address.port), 5) for _ in range(200)]
    try:
        for number, each in enumerate(slow):
            each.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n" * (number % 2))
        others_are_answered(http)
    finally:
        for each in slow:
            each.close()


def test_those_who_ask_and_never_read_cost_the_others_nothing(http, url, attacked):
    address = urlsplit(url)
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
    deaf = [socket.create_connection((address.hostname, address.port), 5) for _ in range(20)]
    try:
        for each in deaf:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(asked)
        others_are_answered(http)
    finally:
        for each in deaf:
            each.close()
