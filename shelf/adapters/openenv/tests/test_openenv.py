"""OpenEnv's own client plays episodes over the adapter's server."""

import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openenv import GenericEnvClient
from seal_openenv import SealAction, SealEnv

URL = os.environ["SEAL_URL"]
SCRIPT: Mapping[str, list[str]] = json.loads(Path(os.environ["SEAL_SCRIPT"]).read_text())
"""Messages of a perfect model, by task."""
START_DEADLINE_S = 300


def command(port: int) -> list[str]:
    return [sys.executable, "-m", "seal_openenv.server.app", "--port", str(port)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The adapter's server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(command(port), env={**os.environ, "SEAL_URL": URL})
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_DEADLINE_S
    try:
        while time.monotonic() < deadline:
            assert process.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).read()
                break
            except (urllib.error.URLError, TimeoutError):
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def routed(url: str, body: Mapping[str, Any]) -> tuple[int, Any]:
    """Status and JSON of a POST."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_perfect_model_passes_every_task(server):
    with SealEnv(base_url=server).sync() as env:
        for task, messages in SCRIPT.items():
            result = env.reset(task_id=task)
            assert [message.role for message in result.observation.messages] == ["system", "user"]
            for message in messages:
                assert not result.done
                result = env.step(SealAction(message=message))
            assert (result.done, result.reward, result.observation.stop) == (True, 1.0, "answered")
            assert result.observation.evaluation["valid"]
            state = env.state()
            assert (state.task_id, state.step_count, state.done) == (task, len(messages), True)


def test_sessions_do_not_see_each_other(server):
    tasks = list(SCRIPT)[:2]
    clients = [SealEnv(base_url=server).sync() for _ in tasks]
    try:
        results = [env.reset(task_id=task) for env, task in zip(clients, tasks, strict=True)]
        places = [0, 0]
        order = random.Random(0)
        while not all(result.done for result in results):
            i = order.choice([i for i, result in enumerate(results) if not result.done])
            results[i] = clients[i].step(SealAction(message=SCRIPT[tasks[i]][places[i]]))
            places[i] += 1
        assert [result.reward for result in results] == [1.0, 1.0]
    finally:
        for env in clients:
            env.close()


def test_the_generic_client_of_trainers_needs_no_package_of_ours(server):
    with GenericEnvClient(base_url=server).sync() as env:
        first, again = env.reset(seed=7), env.reset(seed=7)
        assert first.observation["task_id"] == again.observation["task_id"]
        result = env.step({"message": "Done.", "truncated": True})
        assert (result.done, result.reward, result.observation["stop"]) == (True, 0.0, "length")


def test_the_task_routes_list_the_splits(server):
    status, tasks = routed(f"{server}/seal/task_range", {"split": "train", "start": 1, "stop": 3})
    assert status == 200 and [task["index"] for task in tasks["tasks"]] == [1, 2]
    assert routed(f"{server}/seal/num_tasks", {"split": "val"}) == (200, {"num_tasks": 400})
    status, problem = routed(f"{server}/seal/num_tasks", {"split": "x"})
    assert status == 400 and problem["detail"].startswith("split 'x' is unknown; choose one of ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"task_id": "nope"}, "task_id 'nope' is unknown; ids of bfcl look like multi_turn_base_0."),
        ({"split": "x"}, "split 'x' is unknown; choose one of "),
        ({"index": 400}, "index 400 is outside split 'train', which has the tasks 0 to 399."),
        ({"level": 1}, "reset option 'level' is unknown: use split, task_id, index, seed or params."),
    ],
)
def test_a_bad_reset_is_one_sentence(server, options, sentence):
    with SealEnv(base_url=server).sync() as env, pytest.raises(RuntimeError) as raised:
        env.reset(**options)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


def test_without_a_service_the_server_says_so():
    environment = {**os.environ, "SEAL_URL": "http://127.0.0.1:1"}
    done = subprocess.run(command(0), env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("No environment service answers at http://127.0.0.1:1: start one with `seal serve`")
