"""An endpoint's answer becomes a reply, a fault, or one sentence."""

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Thread

import httpx
import pytest

from shelf.suites.endpoint import (
    ChatClient,
    ContextExceeded,
    Endpoint,
    EndpointFault,
    EndpointRefused,
    Sampling,
    without_proxy,
)
from tests.support.loopback import Loopback


def answer(finish="stop", **message):
    return json.dumps({"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}]})


@contextmanager
def answering(answers):
    """An HTTP server that gives these (status, text) in turn; its address and the requests that it got."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            got.append((dict(self.headers), body))
            status, text = answers[min(len(got), len(answers)) - 1]
            self.send_response(status)
            for name, value in (("content-type", "application/json"), ("retry-after-ms", "10")):
                self.send_header(name, value)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with Loopback(Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", got
        server.shutdown()


async def ask(url, **options):
    client = ChatClient(Endpoint(url, "m"), **options)
    try:
        return await client.complete([{"role": "user", "content": "hi"}], Sampling(0.5, 0.9, 64), 7, "task/0/1")
    finally:
        await client.close()


def reply_to(*answers, **options):
    with answering([each if isinstance(each, tuple) else (200, each) for each in answers]) as (url, _):
        return asyncio.run(ask(url, **options))


def test_a_completion_is_read():
    reply = reply_to(answer(content="hello"))
    assert (reply.text, reply.truncated, reply.tokens) == ("hello", False, 0)
    assert reply_to(answer("length", content="hel")).truncated
    assert reply_to(answer(content=None)).text == ""


def test_a_request_carries_what_the_recipe_samples_with_and_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with answering([(200, answer(content="a"))]) as (url, got):
        asyncio.run(ask(url))
    headers, body = got[0]
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 64,
        "seed": 7,
    }
    named = {name.lower(): value for name, value in headers.items()}
    assert (named["authorization"], named["x-request-id"]) == ("Bearer secret", "task/0/1")


def test_half_a_surrogate_pair_can_be_logged():
    text = reply_to('{"choices":[{"message":{"content":"a\\ud83d"},"finish_reason":"stop"}]}').text
    assert text.encode("utf-8") == b"a?"


def test_an_endpoint_that_parses_tool_calls_is_refused():
    with pytest.raises(EndpointRefused, match="without a tool-call parser"):
        reply_to(answer(content=None, tool_calls=[{"id": "1"}]))


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"choices": []}', '{"choices": [{"message": 3}]}'])
def test_anything_else_is_a_fault_of_the_endpoint(text):
    with pytest.raises(EndpointFault, match="no chat completion"):
        reply_to(text)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_overload_is_retried_within_the_attempts(status):
    overloaded = (status, "{}")
    assert reply_to(overloaded, overloaded, answer(content="late"), attempts=3).text == "late"
    with pytest.raises(EndpointFault) as fault:
        reply_to(overloaded, attempts=2)
    assert fault.value.cause == f"endpoint_{status}"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_retry_fixes_is_refused_at_once(status):
    with answering([(status, '{"error": {"message": "no"}}')]) as (url, got):
        with pytest.raises(EndpointRefused, match=f"refused the request with {status}"):
            asyncio.run(ask(url))
        assert len(got) == 1


def test_a_dialogue_beyond_the_context_is_told_apart():
    with pytest.raises(ContextExceeded):
        reply_to((400, '{"error": {"message": "maximum context length is 100 tokens"}}'))


def test_a_message_limit_beyond_the_context_of_a_small_model_is_left_out():
    refusal = (400, '{"error": {"message": "max_tokens=4096 cannot be greater than max_model_len=2048."}}')
    with answering([refusal, (200, answer(content="hello"))]) as (url, got):
        assert asyncio.run(ask(url)).text == "hello"
    assert ["max_tokens" in body for _, body in got] == [True, False]


def test_an_endpoint_that_is_gone_is_unreachable():
    with answering([]) as (url, _):
        pass
    with pytest.raises(EndpointFault) as fault:
        asyncio.run(ask(url, attempts=1))
    assert fault.value.cause == "endpoint_unreachable"


def test_a_password_in_the_address_is_in_no_message():
    with answering([(500, "no")]) as (url, _):
        hidden = url.replace("//", "//me:hunter2@")
        with pytest.raises(EndpointFault) as fault:
            asyncio.run(ask(hidden, attempts=1))
    with pytest.raises(EndpointFault) as gone:
        asyncio.run(ask(hidden, attempts=1))
    assert url in str(fault.value) and url in str(gone.value) and "hunter2" not in f"{fault.value}{gone.value}"


def use_proxies(monkeypatch, **variables):
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv(name, variables.get(name, ""))


ODD_PROXIES = [
    {"ALL_PROXY": "socks5://127.0.0.1:9"},
    {"ALL_PROXY": "socks://127.0.0.1:9"},
    {"HTTP_PROXY": "http://[::1"},
    {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "localhost,[::1]"},
    {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "fe80::/10,10.0.0.0/8"},
]


@pytest.mark.parametrize("variables", ODD_PROXIES, ids=str)
def test_no_proxy_of_the_environment_is_a_traceback_and_none_is_asked_for_this_machine(variables, monkeypatch):
    use_proxies(monkeypatch, **variables)
    assert reply_to(answer(content="hello")).text == "hello"
    with answering([(200, "{}")]) as (url, _):
        assert Endpoint(url, "m").require() is False
    with pytest.raises(EndpointRefused):
        Endpoint("http://example.invalid/v1", "m").require()


def test_of_an_endpoint_s_many_models_the_nearest_is_named():
    models = json.dumps({"data": [{"id": f"vendor/model-{number}"} for number in range(420)]})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(models.encode())

        def log_message(self, *_):
            pass

    with Loopback(Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(EndpointRefused, match=r"and 408 more, not vendor/modell-7; did you mean vendor/model-7\?$"):
            Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "vendor/modell-7").require()
        server.shutdown()


def test_a_tool_s_client_reads_what_it_is_told_of_proxies(monkeypatch):
    use_proxies(monkeypatch, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="[::1],fe80::/10, 10.0.0.0/8,intern.example")
    told = without_proxy("http://[::1]:8000/v1", "http://127.0.0.1:8000/v1", "http://example.invalid/v1")
    assert told["NO_PROXY"] == told["no_proxy"] == "10.0.0.0/8,127.0.0.1,::1,intern.example"
    use_proxies(monkeypatch, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY=told["NO_PROXY"])
    httpx.Client().close()
