"""The launcher's question to an address: nothing there, something else, the service."""

import socket
import threading
from contextlib import contextmanager

import pytest

from seal.launch.service import Found, Needs, find_or_place, find_running, probe
from seal.system.errors import LaunchError
from seal.system.net import is_free
from tests.support.launches import free_url
from tests.support.rollout_play import running_service
from tests.support.stub_server import answering, service_that_answers


@contextmanager
def raw_server(answer: bytes):
    """The address of a server that sends these bytes and closes each connection."""

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_nothing_is_there():
    assert probe(free_url()) is None


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-server\r\n"], ids=["closes at once", "no HTTP"])
def test_a_server_without_http_is_not_a_service(answer):
    with raw_server(answer) as url:
        assert probe(url) is None


@pytest.mark.parametrize("version", [["data_hash"], {"protocol": 1}, "OK"])
def test_another_http_server_has_no_version(version):
    with answering({"/version": version}, otherwise="OK") as url:
        assert probe(url) == {}


def test_a_service_tells_its_version():
    with service_that_answers(data_hash="a", protocol=1) as url:
        assert probe(url) == {"service": "stub", "data_hash": "a", "protocol": 1, "owner": ""}


def test_a_guarded_service_needs_its_token(monkeypatch):
    monkeypatch.delenv("BFCL_TOKEN", raising=False)
    with running_service(BFCL_TOKEN="secret") as service:
        with pytest.raises(LaunchError, match="set BFCL_TOKEN"):
            probe(service.url)
        monkeypatch.setenv("BFCL_TOKEN", "secret")
        assert probe(service.url)["protocol"] == 2


BENCHMARK = Needs(("bfcl",))


def test_an_own_service_starts_where_the_recipe_says_if_nothing_is_there():
    url = free_url()
    assert find_or_place((url,), BENCHMARK) == Found((url,), None)


def test_an_own_service_starts_on_a_free_port_if_another_program_has_the_recipe_s():
    for server in (raw_server(b"SSH-2.0-server\r\n"), answering({"/version": {}}, otherwise="OK")):
        with server as url:
            (other,), version, said = find_or_place((url,), BENCHMARK)
            assert other != url and is_free(other) and version is None
            assert url in said and f"starts at {other}." in said and "--with-service" not in said


def test_a_running_service_is_used_if_it_can_play_the_recipe():
    with running_service() as service:
        assert find_or_place((service.url,), BENCHMARK) == find_running((service.url,), BENCHMARK)
        with pytest.raises(LaunchError, match="let the launcher start one of its own with --with-service"):
            find_running((service.url,), Needs(("bfcl",), ("data/test_bed/train.jsonl",)))


def test_a_service_that_ends_with_another_process_is_not_leant_on():
    with running_service(BFCL_OWNER="process 1 on another") as service:
        with pytest.raises(LaunchError, match="ends with process 1 on another"):
            find_running((service.url,), BENCHMARK)
        (other,), version, said = find_or_place((service.url,), BENCHMARK)
        assert other != service.url and version is None and "ends with process 1" in said
