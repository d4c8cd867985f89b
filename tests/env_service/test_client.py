"""The blocking client that adapters use, on a running service and on what is not one."""

import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from env_service.client import DEFAULT_URL, ServiceClient, ServiceError
from env_service.environments.bfcl.catalog import load_tasks
from tests.env_service.bfcl_perturbations import reference_calls, texts
from tests.support.loopback import Loopback
from tests.support.stub_server import service_that_answers

TASK = "multi_turn_base_0"


@pytest.fixture
def client(service: int) -> Iterator[ServiceClient]:
    with ServiceClient(f"http://127.0.0.1:{service}") as made:
        yield made


@contextmanager
def answering(status: int, body: bytes, delay_s: float = 0.0) -> Iterator[str]:
    """Another HTTP server; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(delay_s)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with Loopback(Handler) as server:
        yield server.url


def play(client: ServiceClient, name: str) -> dict:
    """The evaluation of a perfect episode."""
    messages = [text for turn in texts(reference_calls(load_tasks()[TASK]), None) for text in turn]
    opening = client.create(TASK, name, {"split": "train"})
    assert [message["role"] for message in opening["state"]] == ["system", "user"]
    answers = [client.step(name, text) for text in messages]
    assert answers[-1]["is_terminated"] and not any(answer["is_terminated"] for answer in answers[:-1])
    return client.evaluate(name)


def test_a_reference_passes_and_an_episode_is_released_once(client: ServiceClient):
    assert play(client, "once")["valid"]
    assert "ls" in client.tools("once")
    assert (client.release("once"), client.release("once")) == (True, False)


def test_threads_share_a_client(client: ServiceClient):
    reports: dict[str, dict] = {}
    names = [f"thread-{i}" for i in range(8)]
    threads = [threading.Thread(target=lambda name=name: reports.update({name: play(client, name)})) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [reports[name]["valid"] for name in names] == [True] * 8
    assert all(client.release(name) for name in names)


def test_a_process_that_is_forked_after_a_request_can_ask_too():
    def ask() -> None:
        with ServiceClient(url) as client:
            client.version()

    with service_that_answers(data_hash="a", protocol=2) as url:
        ask()
        child = multiprocessing.get_context("fork").Process(target=ask)
        child.start()
        child.join(60)
        code = child.exitcode
        child.kill()
    assert code == 0


def test_the_caller_s_limit_is_diagnosed(client: ServiceClient):
    client.create(TASK, "cut")
    assert client.evaluate("cut", stop="length")["stop"] == "length"
    assert client.evaluate("cut")["stop"] == "open"  # asking has not ended it
    client.release("cut")


@pytest.mark.parametrize(
    ("ask", "cause", "sentence"),
    [
        (lambda client: client.tasks("x"), "environment_refused", "split 'x' is unknown; choose one of "),
        (
            lambda client: client.create("nope", "a"),
            "environment_refused",
            "task_id 'nope' is unknown; ids of bfcl look like ",
        ),
        (lambda client: client.create(TASK, "a", {"turns": 99}), "environment_refused", "turns must be in 1.."),
        (
            lambda client: client.step("gone", "Done."),
            "environment_lost",
            "instance_id 'gone' is unknown: create an episode first.",
        ),
    ],
)
def test_a_refusal_is_the_service_s_own_sentence(
    client: ServiceClient, ask: Callable[[ServiceClient], object], cause: str, sentence: str
):
    with pytest.raises(ServiceError) as raised:
        ask(client)
    assert raised.value.cause == cause
    assert str(raised.value).startswith(sentence) and "\n" not in str(raised.value)


def test_another_environment_is_refused_by_its_name(service: int):
    url = f"http://127.0.0.1:{service}"
    unknown = pytest.raises(ServiceError, match=r"env_type 'x' is unknown; choose one of .*bfcl")
    with ServiceClient(url, env_type="x") as client, unknown:
        client.tasks("train")


def test_a_service_that_is_down_is_told_from_another_server():
    with ServiceClient("http://127.0.0.1:1") as client, pytest.raises(ServiceError) as raised:
        client.tasks("train")
    assert raised.value.cause == "environment_unreachable"
    assert str(raised.value).startswith(
        "No environment service answers at http://127.0.0.1:1: start one with `seal serve`"
    )
    newer = json.dumps({"service": "seal-env-service", "protocol": 99, "data_hash": ""}).encode()
    for status, body, cause in (
        (200, b"<html>", "environment_foreign"),
        (404, b"<html>", "environment_foreign"),
        (200, newer, "environment_version"),
    ):
        with answering(status, body) as url, ServiceClient(url) as client:
            with pytest.raises(ServiceError) as raised:
                client.tasks("train")
            assert raised.value.cause == cause


def test_every_request_has_a_deadline():
    late = pytest.raises(ServiceError, match=r"did not answer within 0\.2 s")
    with answering(200, b"{}", delay_s=5) as url, ServiceClient(url, deadline_s=0.2) as client, late:
        client.version()


def test_a_guarded_service_wants_its_token(start_service, monkeypatch: pytest.MonkeyPatch):
    with start_service(BFCL_TOKEN="secret", BFCL_WORKERS="1") as port:
        url = f"http://127.0.0.1:{port}"
        with ServiceClient(url) as client, pytest.raises(ServiceError, match="Send the service's token"):
            client.tasks("train")
        monkeypatch.setenv("BFCL_TOKEN", "secret")
        with ServiceClient(url) as client:
            assert len(client.tasks("train")) == 400


def test_the_address_is_given_or_in_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEAL_URL", "http://127.0.0.1:9/")
    assert ServiceClient().url == "http://127.0.0.1:9"
    monkeypatch.delenv("SEAL_URL")
    assert ServiceClient().url == DEFAULT_URL
    with pytest.raises(ValueError, match=r"'localhost:1' is not the address of a service: write http://HOST:PORT\."):
        ServiceClient("localhost:1")
