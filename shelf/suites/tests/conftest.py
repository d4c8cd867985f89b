"""Real processes for evaluations: the environment service and a scripted endpoint."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from seal.system.net import free_port
from shelf.suites.serving import environment_service

ENDPOINT = Path(__file__).with_name("scripted_endpoint.py")
START_DEADLINE_S = 60.0


@pytest.fixture(scope="session")
def service_url(tmp_path_factory):
    """The address of a running environment service."""
    url = f"http://127.0.0.1:{free_port()}"
    with environment_service(url, tmp_path_factory.mktemp("service") / "service.log"):
        yield url


@contextmanager
def _endpoint(*options, script=ENDPOINT):
    port = free_port()
    process = subprocess.Popen([sys.executable, script, str(port), *options])
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, "the scripted endpoint ended"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def endpoint():
    """The address of a scripted endpoint that answers at once."""
    with _endpoint() as url:
        yield url


@pytest.fixture(scope="session")
def start_endpoint():
    """A context manager that starts a scripted endpoint with options of its own, or another script's."""
    return _endpoint


@pytest.fixture(scope="session")
def fault_of():
    """The fault that the scripted endpoint makes in a scenario."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("scripted_endpoint", ENDPOINT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.fault_of
