"""The client against the real service, and against servers that fail in every way."""

import asyncio
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import requests

from env_service.client import AsyncServiceClient, ServiceError
from seal.method.interface.cues import Omega
from seal.system.net import free_port
from tests.support.loopback import Loopback

HOME = Path(__file__).resolve().parents[2]
TASK = "multi_turn_base_0"


@pytest.fixture(scope="module")
def service():
    port = free_port()
    env = {**os.environ, "BFCL_HOST": "127.0.0.1", "BFCL_PORT": str(port), "BFCL_WORKERS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "env_service"], cwd=HOME, env=env)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    try:
        while not _healthy(url):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/healthz", timeout=10).ok
    except (requests.ConnectionError, requests.Timeout):
        return False


@pytest.fixture
def failing_server():
    """A server that answers as `answers` says, the last answer again and again."""
    answers, seen = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body, delay = answers[min(len(seen), len(answers)) - 1]
            time.sleep(delay)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            return None

    with Loopback(Handler) as server:
        yield server.url, answers, seen


def call(url, play, timeout_s=10.0, attempts=2):
    async def run():
        client = AsyncServiceClient(url, deadline_s=timeout_s, attempts=attempts)
        try:
            return await play(client)
        finally:
            await client.close()

    return asyncio.run(run())


def fault(url, play, **settings) -> ServiceError:
    with pytest.raises(ServiceError) as error:
        call(url, play, **settings)
    return error.value


def test_an_episode_from_create_to_release(service):
    async def play(client):
        opening = await client.create(TASK, "episode", {"tool_prompt_mode": "compact", "turns": 1})
        answers = []
        for number, content in enumerate(
            (
                '<tool_call>{"name":"cd","arguments":{"folder":"document"}}</tool_call>',
                '<tool_call>{"name":"mkdir","arguments":{"dir_name":"temp"}}</tool_call>',
                '<tool_call>{"name":"mv","arguments":{"source":"final_report.pdf","destination":"temp"}}</tool_call>',
                "Done.",
            )
        ):
            answers.append(await client.step("episode", content, step_id=str(number)))
        evaluation = await client.evaluate("episode", taxonomy="paper")
        await client.release("episode")
        return opening, answers, evaluation

    opening, answers, evaluation = call(service, play)
    assert [m["role"] for m in opening["state"]] == ["system", "user"] and opening["info"]["omega"] is None
    assert [a["is_terminated"] for a in answers] == [False, False, False, True]
    assert evaluation["valid"] and evaluation["labels"] == ["pass"] and evaluation["calls"] == 3


def test_a_cut_turn_is_diagnosed_when_the_caller_says_so(service):
    async def play(client):
        await client.create(TASK, "cut", {"tool_prompt_mode": "compact"})
        await client.step("cut", '<tool_call>{"name":"cd","arguments":{"folder":"document"}}</tool_call>')
        running = await client.evaluate("cut")
        ended = await client.evaluate("cut", stop="length")
        return running, ended

    running, ended = call(service, play)
    assert running["labels"] == [] and ended["labels"] == ["budget_cut"]
    assert not running["valid"] and not ended["valid"]


def test_a_refusal_is_raised_at_once_with_its_reason(service):
    async def play(client):
        await client.create(TASK, "refused", {"split": "eval", "omega": Omega().to_json()})

    error = fault(service, play)
    assert error.cause == "environment_refused" and "without an interface" in str(error)


def test_an_answer_of_500_is_retried_and_then_named(failing_server):
    url, answers, seen = failing_server
    answers[:] = [(500, b"{}", 0), (200, b'{"success": true, "data": null}', 0)]
    call(url, lambda client: client.release("x"))
    assert len(seen) == 2
    answers[:] = [(503, b"{}", 0)]
    assert fault(url, lambda client: client.release("x")).cause == "environment_server_error"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ((200, b"garbage", 0), "environment_protocol"),
        ((200, b"[]", 0), "environment_protocol"),
        ((200, b"{}", 3), "environment_timeout"),
    ],
)
def test_garbage_and_silence_have_their_own_causes(failing_server, answer, cause):
    url, answers, _ = failing_server
    answers[:] = [answer]
    assert fault(url, lambda client: client.release("x"), timeout_s=1.0, attempts=1).cause == cause


def test_nobody_there():
    assert (
        fault("http://127.0.0.1:9", lambda client: client.release("x"), attempts=2).cause == "environment_unreachable"
    )
