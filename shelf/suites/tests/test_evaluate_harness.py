"""`seal evaluate --harness`: agents of the user's play against an endpoint, are interrupted, and go on."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from seal.system.paths import HOME
from seal.system.processes import guard
from shelf.suites.cli.evaluate import app

TEXT = f"{sys.executable} exp/harness/plain_text.py"
SAMPLING = ("temperature", "top_p", "max_tokens", "seed", "repetition_penalty", "top_k")
NATIVE = "tests.support.harnesses:native"


def arguments(endpoint, service, out, harness, *more):
    where = ["--base-url", f"{endpoint}/v1", "--model", "scripted", "--env-url", service, "--out", str(out)]
    return ["bfcl", *where, "--categories", "base", "--harness", harness, *more]


def started(given):
    return subprocess.Popen([sys.executable, "-m", "seal.cli", "evaluate", *given], cwd=HOME)


def verdicts(out):
    lines = map(json.loads, (out / "validation_log" / "0.jsonl").read_text().splitlines())
    return [(line["task_id"], line["sample"], line["infra"], line["score"], line["labels"]) for line in lines]


def agents(endpoint):
    """The commands that play against an endpoint."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("OPENAI_BASE_URL") == f"{endpoint}/v1":
                yield process


ENDS = [
    (signal.SIGINT, 130),
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    *[(signal.SIGKILL, -9)] * bool(guard()),
]


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_an_interrupted_evaluation_ends_its_agents_and_goes_on(service_url, start_endpoint, tmp_path, number, code):
    out, journal = tmp_path / "out", tmp_path / "out" / "journal.jsonl"
    with start_endpoint("--delay", "0.1") as endpoint:
        given = arguments(endpoint, service_url, out, TEXT, "--limit", "3", "--samples", "3", "--concurrency", "2")
        running, deadline = started(given), time.monotonic() + 120
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2 and any(agents(endpoint))):
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.02)
        running.send_signal(number)
        assert running.wait(120) == code
        while any(agents(endpoint)):  # SIGKILL leaves them to the kernel
            assert number == signal.SIGKILL and time.monotonic() < deadline
            time.sleep(0.02)
        finished = journal.read_text().split("\n")[:-1]
        assert 2 <= len(finished) < 9
        assert (app(given, standalone_mode=False) or 0) == 0
        assert journal.read_text().splitlines()[: len(finished)] == finished
    assert [each[2] for each in verdicts(out)] == [None] * 9


def test_two_evaluations_at_once_agree_with_seals_own_loop(service_url, start_endpoint, tmp_path):
    tasks = tmp_path / "tasks.txt"
    tasks.write_text("".join(f"multi_turn_base_{scenario}\n" for scenario in (0, 1, 3, 6)))  # two good ones, two wrong
    more = ("--split", "all", "--task-file", str(tasks))
    with start_endpoint() as text, start_endpoint("--prompt-mode", "openai_fc") as native:
        command = arguments(text, service_url, tmp_path / "command", TEXT, *more)
        running = [started(command), started(arguments(native, service_url, tmp_path / "function", NATIVE, *more))]
        own = arguments(text, service_url, tmp_path / "own", TEXT, *more)
        del own[own.index("--harness") : own.index("--harness") + 2]
        assert (app(own, standalone_mode=False) or 0) == 0
        assert [each.wait(120) for each in running] == [0, 0]
    unknown = json.loads((tmp_path / "command" / "settings.json").read_text())
    assert [unknown.get(name) for name in SAMPLING] == [None] * len(SAMPLING)  # the agent's own
    assert sorted(score for *_, score, _ in verdicts(tmp_path / "own")) == [0.0, 0.0, 1.0, 1.0]
    assert verdicts(tmp_path / "command") == verdicts(tmp_path / "function") == verdicts(tmp_path / "own")
