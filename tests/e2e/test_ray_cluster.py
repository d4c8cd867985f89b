"""A run over a Ray cluster of two nodes and two services that were there before it and are there after it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from seal.launch.checks.devices import inspect_cluster
from seal.launch.service import probe
from seal.system.net import free_port
from tests.support.launches import HOME, plays_episodes

RAY = str(Path(sys.executable).with_name("ray"))
DEADLINE_S = 90
SMALL = (
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "seal.data.val=[{split: eval, categories: [base], prefix_turns: [1], limit: 2}]",
    "trainer.total_training_steps=2",
    "trainer.test_freq=2",
    "trainer.save_freq=2",
)

pytestmark = pytest.mark.slow


@dataclass
class Nodes:
    """Two Ray nodes on this machine, as `ray start` makes them."""

    address: str
    jobs: str


@contextmanager
def running(command: list[str], log: Path, **settings):
    """A process that is asked to end, with its children, when it is no longer needed."""
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, **settings)
    try:
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            process.wait(45)
        finally:
            process.kill()
            for child in family:
                if child.is_running():
                    child.kill()


def wait_for(condition, what: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} is not there: {log.read_text()}"
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path, monkeypatch, request):
    """Nodes that know nothing of the environment of a run, guarded by a token or open."""
    mode = getattr(request, "param", "token")
    token = tmp_path / "token"
    token.write_text("0" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env = {**bare, "RAY_AUTH_MODE": mode}
    head, dashboard = free_port(), free_port()
    size = ["--num-cpus=8", "--num-gpus=1", "--object-store-memory=200000000", "--block"]
    with ExitStack() as stack:
        for name, place in (
            ("head", ["--head", f"--port={head}", "--include-dashboard=true", f"--dashboard-port={dashboard}"]),
            ("other", [f"--address=127.0.0.1:{head}"]),
        ):
            log = tmp_path / f"{name}.log"
            agent = f"--dashboard-agent-listen-port={free_port()}"
            stack.enter_context(running([RAY, "start", *place, agent, *size], log, cwd=tmp_path, env=env))
            wait_for(lambda log=log: "Ray runtime started" in log.read_text(), name, log)
        yield Nodes(f"127.0.0.1:{head}", f"http://127.0.0.1:{dashboard}")


@pytest.fixture
def services(tmp_path):
    """Two environment services: their addresses and processes."""
    with ExitStack() as stack:
        found = {}
        for name in ("one", "two"):
            port, log = free_port(), tmp_path / f"{name}.log"
            env = {**os.environ, "BFCL_PORT": str(port)}
            url = f"http://127.0.0.1:{port}"
            command = [sys.executable, "-m", "env_service"]
            found[url] = stack.enter_context(running(command, log, cwd=HOME, env=env))
            wait_for(lambda url=url: probe(url), url, log)
        yield found


@pytest.mark.parametrize("cluster", ["token", "disabled"], indirect=True)
def test_a_guarded_and_an_open_cluster_are_joined_as_they_are(cluster, request):
    found = inspect_cluster(cluster.address)
    assert found.authentication == request.node.callspec.params["cluster"]
    assert len(found.nodes) == 2 and not found.in_use


def test_it_spreads_over_nodes_and_services_and_goes_on_without_one(cluster, services, make_run):
    """The second service dies within the first step's rollouts."""
    urls = ",".join(services)
    run = make_run(
        *SMALL,
        "trainer.nnodes=2",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        f"env_service.env_url=[{urls}]",
        f"ray_kwargs.ray_init.address={cluster.address}",
        with_service=False,
    )
    launched = run.start()
    second, process = list(services.items())[1]
    run.wait_for(launched, lambda: run.stage[0] == "train" and plays_episodes(second), "episodes of step 1")
    for each in (process, *psutil.Process(process.pid).children(recursive=True)):
        each.send_signal(signal.SIGKILL)
    said, _ = launched.communicate(timeout=1800)
    assert launched.returncode == 0, said
    steps = run.lines("seal_log/steps.jsonl")
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["logp_diff_mean"] < 1e-4 and step["trajectories"] == 16 and not step["infra"] for step in steps)
    assert steps[0]["episodes_rebuilt"] >= 1
    assert len(run.lines("validation_log/2.jsonl")) == 2
    shards = sorted(path.name for path in run.folder.glob("checkpoints/global_step_2/actor/model_world_size_2_*.pt"))
    assert len(shards) == 2
    # The cluster ends the task runner, and goes on.
    wait_for(lambda: run.leftovers() == [], "the end of the run's processes", run.folder / "train.log")
    left = inspect_cluster(cluster.address)
    assert len(left.nodes) == 2 and not left.in_use


def test_it_runs_as_a_ray_job(cluster, make_run, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    submit = (RAY, "job", "submit", "--address", cluster.jobs, "--", "env", "-C", str(HOME))
    run = make_run(*SMALL, "trainer.nnodes=2", prefix=submit)
    done = run.finish(deadline_s=1800)
    assert done.returncode == 0, done.stdout
    assert [step["step"] for step in run.lines("seal_log/steps.jsonl")] == [1, 2]
    assert run.leftovers() == []


def test_too_few_nodes_are_named(cluster, make_run):
    run = make_run("trainer.nnodes=4")
    done = run.finish(f"ray_kwargs.ray_init.address={cluster.address}")
    assert done.returncode == 1
    assert "trainer.nnodes=4" in done.stdout and "2 of 2 nodes" in done.stdout
