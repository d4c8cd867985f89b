"""The wheel in an empty environment: the command, the service without engines, and the reading of a run."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from env_service import BENCHMARK
from env_service.client import ServiceClient, ServiceError
from seal.cli.main import commands
from seal.system.net import free_port
from seal.system.paths import HOME
from shelf.adapters.tests.script import script
from shelf.view.tests.report.sample_run import write_run
from tests.support.installed import Environment

pytestmark = pytest.mark.slow

START_DEADLINE_S = 120
RECIPE, NOTHING = HOME / "exp" / "quickstart.yaml", "http://127.0.0.1:9"
LINES = {
    "train": (RECIPE, "--dry-run"),
    "doctor": (RECIPE,),
    "plan": (RECIPE,),
    "experiment": ("plan", HOME / "exp" / "experiments" / "paper_table3.yaml"),
    "probe": (HOME / "data" / "quickstart_policy", RECIPE, "--out", "probed"),
    "verify": ("run", "--tasks", HOME / "data" / "test_bed" / "train.jsonl"),
    "rescore": ("run",),
    "diagnose": ("rollouts", "run", "--out", "labelled"),
    "report": ("run",),
    "stats": ("run",),
    "view": ("run", "--export", "viewed.html"),
    "export": ("run", "--out", "exported"),
    "evaluate": ("bfcl", "--base-url", f"{NOTHING}/v1", "--model", "m", "--out", "evaluated"),
    "settings": ("seal.seed",),
    "data": ("check",),
    "env": ("list",),
    "model": ("fetch", "nothing", "--out", "fetched"),
    "tasks": ("check", "none.jsonl"),
    "policy": ("adapt", "none", "--out", "adapted"),
    "serve": ("--port", "none"),
}
"""A line of each command that ends by itself and sends nothing off this machine."""
WORKING = {
    "evaluate",
    "verify",
    "rescore",
    "diagnose",
    "report",
    "stats",
    "view",
    "settings",
    "env",
    "tasks",
    "serve",
    "data",
}


@pytest.fixture(scope="module")
def installed(environment: Callable[[str], Environment]) -> Environment:
    return environment("")


@contextmanager
def serving(installed: Environment, folder: Path) -> Iterator[str]:
    """`seal serve` in a folder with nothing in it; yields its address."""
    port = free_port()
    command = [installed.folder / "bin" / "seal", "serve", "--port", str(port), "--workers", "1"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("BFCL_", "PYTHON"))}
    process = subprocess.Popen(command, cwd=folder, env=variables)
    try:
        with ServiceClient(f"http://127.0.0.1:{port}") as client:
            deadline = time.monotonic() + START_DEADLINE_S
            while time.monotonic() < deadline:
                assert process.poll() is None, "the service ended"
                try:
                    client.version()
                    break
                except ServiceError:
                    time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def refusal(installed: Environment, *arguments: str) -> str:
    """Return the message of a command that must fail."""
    command = [installed.folder / "bin" / "seal", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_rollouts_are_labelled_and_own_environments_checked_without_the_benchmark_s_package(
    environment: Callable[[str], Environment], tmp_path: Path
):
    made = environment("")
    rollout = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho."}], "reward": 0}
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(rollout) + "\n", encoding="utf-8")
    for operands in (["diagnose", "rollouts", "rollouts.jsonl", "--out", "labelled"], ["env", "new", "own"]):
        subprocess.run([made.folder / "bin" / "seal", *operands], cwd=tmp_path, timeout=120, check=True)
    made.install("--no-deps", str(tmp_path / "own"))
    subprocess.run([made.folder / "bin" / "seal", "env", "check", "own"], cwd=tmp_path, timeout=300, check=True)
    assert refusal(made, "evaluate", "bfcl", "--base-url", NOTHING, "--model", "m").endswith(f"{BENCHMARK}.\n")


def test_the_service_plays_an_episode_without_engines(installed: Environment, tmp_path: Path):
    assert not {"torch", "verl", "vllm", "ray", "transformers"} & installed.packages()
    assert refusal(installed, "serve").endswith(f"pip install --no-deps {BENCHMARK}\n")
    installed.install("--no-deps", BENCHMARK)
    with serving(installed, tmp_path) as url, ServiceClient(url) as client:
        assert client.version().model_extra == {"bfcl_eval": "2026.3.23"}
        assert (len(client.tasks("train")), len(client.tasks("val"))) == (400, 400)
        for task, messages in script().items():
            client.create(task, task)
            *_, last = [client.step(task, message) for message in messages]
            assert last["is_terminated"] and client.evaluate(task)["valid"]
            assert client.release(task)


def test_the_results_of_a_run_are_read_without_the_repository(installed: Environment, tmp_path: Path):
    run, said = write_run(tmp_path / "run"), []
    for arguments in (["--help"], ["stats", "--val-dir", run], ["report", run]):
        command = [installed.folder / "bin" / "seal", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert (run / "report.png").is_file() and "w/o susp." in said[1]


def test_every_command_but_training_s_works_and_those_name_their_extra(installed: Environment, tmp_path: Path):
    assert commands().keys() == LINES.keys()
    installed.install("--no-deps", BENCHMARK)
    lacking = set()
    write_run(tmp_path / "run")
    for name, operands in LINES.items():
        command = [installed.folder / "bin" / "seal", name, *operands]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, (name, done.stderr)
        if "is not installed" in done.stderr:
            lacking.add(name)
            assert re.fullmatch(rf"seal {name}: \w+ is not installed: pip install 'seal-rl\[\w+\]'\.\n", done.stderr)
    assert not lacking & WORKING and {"train", "plan", "doctor", "experiment", "probe"} <= lacking, lacking
