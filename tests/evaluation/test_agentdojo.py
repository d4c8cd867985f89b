"""`seal evaluate agentdojo`: what is kept of its attempts, and the installed package at a scripted endpoint.

The environment is made once, below SEAL_ENVS or build/suites.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from seal.cli.evaluate import app
from seal.evaluation.suites.agentdojo.results import Played
from seal.evaluation.suites.agentdojo.run import BENCHMARK, AgentDojo
from seal.evaluation.suites.agentdojo.tasks import SUITES, Attempt, planned
from seal.evaluation.suites.endpoint import Served
from seal.evaluation.suites.environment import ROOT, SuiteEnvironment
from seal.records.suite import read_results
from tests.support.commands import run as command

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
ENVS = Path(os.environ.get(ROOT) or REPOSITORY / "build" / "suites")
ENDPOINT = HERE / "dojo_endpoint.py"
PASSED_BY_DOING_NOTHING = {f"user_task_{number}" for number in (5, 6, 8, 9, 10)}
"""Of banking: their checks look at the first transactions only."""

START_DEADLINE_S = 600.0


def line(number, infra=None, passed=True):
    known = {"suite": "banking", "task": f"user_task_{number}", "sample": 0, "message": "", "infra": infra}
    return json.dumps({**known, "passed": passed, "stop": "answered"}) + "\n"


def test_a_technical_failure_is_no_wrong_answer_and_a_later_verdict_counts(tmp_path):
    (tmp_path / "attempts.jsonl").write_text(line(0, passed=False) + line(1, infra="endpoint_503") + line(2, infra="x"))
    played = Played(tmp_path)
    records = [played.record(attempt) for attempt in planned(["banking"], 1, 4)]
    assert [(each.passed, each.infra) for each in records] == [
        (False, None),
        (True, "endpoint_503"),
        (True, "x"),
        (False, "not_played"),
    ]
    with played.path.open("a") as stream:
        stream.write(line(1) + '{"suite": "bank')  # the program is writing
    assert played.read() == 4
    assert Attempt("banking", "user_task_1", 0) in played.records
    assert Played(tmp_path).path.read_text().endswith("}\n")  # after an interruption the half line is cut off


def test_a_damaged_record_is_told(tmp_path):
    (tmp_path / "attempts.jsonl").write_text("nonsense\n" + line(0))
    with pytest.raises(ValueError, match=r"attempts\.jsonl:1"):
        Played(tmp_path)


def test_attempts_cover_every_task_of_a_suite_and_sample():
    assert len(planned(tuple(SUITES), 1)) == 97
    assert planned(["slack"], 2, 1) == [("slack", "user_task_0", 0), ("slack", "user_task_0", 1)]
    with pytest.raises(ValueError, match="Unknown suite 'bank': expected one of workspace, travel, banking, slack"):
        AgentDojo(Served("http://127.0.0.1:9/v1", "scripted"), Path(), ["bank"])


@pytest.fixture(scope="session")
def references(tmp_path_factory):
    """The file of the references, written by the installed package."""
    environment = SuiteEnvironment("agentdojo", ("agentdojo",), ENVS)
    environment.install(print)
    path = tmp_path_factory.mktemp("dojo") / "references.json"
    script = HERE / "dojo_references.py"
    subprocess.run([environment.program("python"), "-P", script, BENCHMARK, path], check=True, timeout=START_DEADLINE_S)
    return path


@pytest.fixture
def endpoint(references, start_endpoint):
    """Starts a scripted endpoint with some options."""
    return lambda *options: start_endpoint(references, *options, script=ENDPOINT)


def arguments(url, out, *more):
    where = ["--base-url", f"{url}/v1", "--model", "scripted", "--envs", ENVS, "--wait", "5", "--out", out]
    return ["agentdojo", *where, *more]


def control(url, after):
    request = urllib.request.Request(f"{url}/control", json.dumps({"down_after": after}).encode(), method="POST")
    return json.load(urllib.request.urlopen(request, timeout=30))


def passes(item):
    sys.path.insert(0, str(HERE))
    from dojo_endpoint import passes

    # A message that cannot be read, or that does not fit the context, ends the attempt before its check.
    number = int(item.item.rsplit("_", 1)[1]) % 8
    checked = number in (1, 7)
    lucky = checked and item.category == "banking" and item.item in PASSED_BY_DOING_NOTHING
    return passes(item.item) or lucky


@pytest.mark.slow
@pytest.mark.parametrize(("answers", "passed"), [("oracle", 97), ("silent", 5)])
def test_references_pass_every_task_and_doing_nothing_five(endpoint, tmp_path, capsys, answers, passed):
    with endpoint("--answers", answers) as url:
        assert command(app, arguments(url, tmp_path)) == 0
    items = read_results(tmp_path).items
    assert len(items) == 97 and sum(item.passed for item in items) == passed
    assert "agentdojo 0.1.35" in capsys.readouterr().out


@pytest.mark.slow
def test_every_task_gets_its_scripted_verdict(endpoint, tmp_path):
    with endpoint() as url:
        assert command(app, arguments(url, tmp_path)) == 0
    items = read_results(tmp_path).items
    assert [item.passed for item in items] == [passes(item) for item in items]
    stops = {item.item: item.stop for item in items if item.category == "banking"}
    assert (stops["user_task_3"], stops["user_task_5"], stops["user_task_0"]) == (
        "unreadable_call",
        "context",
        "answered",
    )


@pytest.mark.slow
def test_an_endpoint_that_goes_down_costs_no_verdict(endpoint, tmp_path):
    chosen = ("--suites", "banking", "slack", "--limit", "6", "--concurrency", "2", "--attempts", "1")
    with endpoint() as url:
        control(url, 12)
        assert command(app, arguments(url, tmp_path, *chosen)) == 1
        before = read_results(tmp_path).items
        assert {item.infra for item in before} == {None, "endpoint_503"}
        assert all(item.passed == passes(item) for item in before if item.infra is None)
        control(url, None)
        assert command(app, arguments(url, tmp_path, *chosen)) == 0
    items = read_results(tmp_path).items
    assert len(items) == 12 and all(item.passed == passes(item) and item.infra is None for item in items)


@pytest.mark.slow
def test_interrupted_in_the_middle_it_loses_and_repeats_nothing(endpoint, tmp_path):
    program = [sys.executable, "-c", "from seal.cli.evaluate import app; app()"]
    kept = tmp_path / "attempts.jsonl"
    ended = {}
    with endpoint("--delay", "0.5") as url:
        given = [*map(str, arguments(url, tmp_path, "--suites", "banking", "--concurrency", "1"))]
        for how, count in ((signal.SIGINT, 2), (signal.SIGKILL, 5)):
            running = subprocess.Popen([*program, *given], cwd=REPOSITORY)
            deadline = time.monotonic() + START_DEADLINE_S
            while time.monotonic() < deadline and not (kept.exists() and kept.read_bytes().count(b"\n") >= count):
                time.sleep(0.05)
            children = psutil.Process(running.pid).children(recursive=True)
            running.send_signal(how)
            assert running.wait(120) in (130, -signal.SIGKILL)
            assert psutil.wait_procs(children, timeout=60)[1] == []
            # What was being played is begun again, what had ended is not.
            begun = json.load(urllib.request.urlopen(f"{url}/health", timeout=30))["first"]
            lines = map(json.loads, kept.read_bytes().rpartition(b"\n")[0].splitlines())
            ended |= {key: begun[key] for key in (f"banking/{each['task']}/0" for each in lines) if key not in ended}
            assert len(ended) >= count
        assert command(app, given) == 0
        begun = json.load(urllib.request.urlopen(f"{url}/health", timeout=30))["first"]
    assert {key: begun[key] for key in ended} == ended
    assert len(kept.read_text().splitlines()) == 16
    items = read_results(tmp_path).items
    assert len(items) == 16 and [item.passed for item in items] == [passes(item) for item in items]
