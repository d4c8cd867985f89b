"""The launcher's question to an address: nothing there, something else, the service."""

import socket
import threading
from contextlib import contextmanager

import pytest

from seal.launch.recipe import read_recipe
from seal.launch.service import FIX, own_address, probe, require_tasks
from seal.system.errors import LaunchError
from seal.system.net import is_free
from seal.system.paths import HOME
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
        assert probe(service.url)["protocol"] == 2


def address(url: str) -> tuple[str, str | None]:
    """Where --with-bfcl starts or uses a service, and the warning about it."""
    recipe = read_recipe(
        HOME / "exp" / "quickstart.yaml",
        [
            f"env_service.env_url={url}",
            "seal.data.train.mixture=[]",
            "seal.data.val=[{split: eval}]",
            "seal.data.withdrawal=null",
        ],
    )
    return own_address(recipe, url)


def test_an_own_service_starts_where_the_recipe_says_if_nothing_is_there():
    url = free_url()
    assert address(url) == (url, None)


def test_an_own_service_starts_on_a_free_port_if_another_program_has_the_recipe_s():
    for server in (raw_server(b"SSH-2.0-server\r\n"), answering({"/version": {}}, otherwise="OK")):
        with server as url:
            other, said = address(url)
            assert other != url and is_free(other)
            assert url in said and f"starts at {other}." in said and "--with-bfcl" not in said


def test_a_running_service_is_used_if_it_can_play_the_recipe():
    with running_service() as service:
        assert address(service.url) == (service.url, None)
        with pytest.raises(LaunchError, match="stop it and let the launcher start one with --with-bfcl"):
            require_tasks([service.url], ["data/test_bed/train.jsonl"], FIX)
