"""The launcher's question to an address: nothing there, something else, the service."""

import socket
import threading
from contextlib import contextmanager

import pytest

from seal.launch.service import probe
from seal.system.errors import LaunchError
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
        assert probe(url) == {"service": "stub", "data_hash": "a", "protocol": 1}


def test_a_guarded_service_needs_its_token(monkeypatch):
    monkeypatch.delenv("BFCL_TOKEN", raising=False)
    with running_service(BFCL_TOKEN="secret") as service:
        with pytest.raises(LaunchError, match="set BFCL_TOKEN"):
            probe(service.url)
        monkeypatch.setenv("BFCL_TOKEN", "secret")
        assert probe(service.url)["protocol"] == 1
