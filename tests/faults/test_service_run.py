"""The launcher restarts the service that it started, and the run goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from seal.launch import service as launch_service
from seal.launch.service import Found, Needs, Service
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.net import free_port
from seal.system.paths import HOME
from tests.support.launches import plays_episodes, service_process

DEADLINE_S = 900
SMALL = (
    "trainer.logger=[console]",
    "trainer.total_training_steps=2",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
)


@pytest.mark.fault(
    event="a service that the launcher started ends again and again",
    user_sees="a warning each time with the service's last words; then one error that names its log",
    outcome="it is started again up to three times per run, then the run ends with code 4",
)
def test_the_launcher_starts_its_service_again_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(launch_service, "MAX_RESTARTS", 1)
    port = free_port()
    running = Service(Found((f"http://127.0.0.1:{port}",), None), Needs(("bfcl",)), tmp_path / "service.log")
    try:
        assert running.start() and running.ensure_running() is None
        service_process(os.getpid(), port).kill()
        assert "code -9" in _when_noticed(running)
        assert launch_service.probe(running.url)
        service_process(os.getpid(), port).kill()
        with pytest.raises(LaunchError, match=r"started again 1 times already .*service\.log") as ended:
            _when_noticed(running)
        assert ended.value.code == exits.INFRASTRUCTURE
    finally:
        running.stop()


@pytest.mark.slow
@pytest.mark.fault(
    event="kill -9 of the environment service in the middle of a training step (started by the launcher)",
    user_sees="`warning: The environment service ended with code -9 ... Started again (1 of 3 times)`",
    outcome="the step's episodes are rebuilt and the run goes on; no trajectory is lost or counted twice",
)
def test_a_run_goes_on_when_its_service_is_killed_in_a_step():
    name, port = f"test-{uuid4().hex[:8]}", free_port()
    folder = HOME / "experiments" / name
    own = (f"trainer.experiment_name={name}", f"env_service.env_url=http://127.0.0.1:{port}")
    command = [sys.executable, "launcher.py", "--conf", "exp/quickstart.yaml", "--with-bfcl", "--", *own, *SMALL]
    try:
        launcher = subprocess.Popen(
            command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        _wait_for_open_episodes(launcher, port, folder)
        os.kill(service_process(launcher.pid, port).pid, signal.SIGKILL)
        output, _ = launcher.communicate(timeout=DEADLINE_S)
        assert launcher.returncode == 0, output
        assert "ended with code -9" in output and "Started again (1 of 3 times)" in output
        steps = _lines(folder / "seal_log" / "steps.jsonl")
        assert [step["step"] for step in steps] == [1, 2]
        assert sum(step["episodes_rebuilt"] for step in steps) >= 1
        for step in steps:
            assert step["trajectories"] == 16 and not step["infra"]
            lines = _lines(folder / "seal_log" / "trajectories" / f"{step['step']}.jsonl")
            assert len({(line["task_id"], line["sample"]) for line in lines}) == 16
    finally:
        if launcher.poll() is None:
            launcher.send_signal(signal.SIGTERM)
            launcher.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(HOME / "launcher_record" / name, ignore_errors=True)


def _when_noticed(running: Service) -> str:
    deadline = time.monotonic() + 60
    while (notice := running.ensure_running()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return notice


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _wait_for_open_episodes(launcher: subprocess.Popen, port: int, folder: Path) -> None:
    # The checks before training open episodes too.
    stages = folder / "seal_log" / "stages.jsonl"
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert launcher.poll() is None, launcher.stdout.read()
        training = stages.exists() and '"train"' in stages.read_text()
        if training and plays_episodes(f"http://127.0.0.1:{port}"):
            return
        time.sleep(0.05)
    raise AssertionError("no episode was opened")
