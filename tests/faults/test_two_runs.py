"""Two launches on one machine: neither leans on the service of the other, which ends with its launcher."""

import subprocess
import sys
import time

import pytest

from env_service.client import ServiceClient
from seal.system import exits
from seal.system.net import is_free
from seal.system.paths import HOME
from tests.support.launches import free_url
from tests.support.struck_run import experiment

SERVE = """
import sys
from pathlib import Path
from seal.launch.service import Needs, Service, find_or_place
needs = Needs(("bfcl",))
service = Service(find_or_place((sys.argv[1],), needs), needs, Path(sys.argv[2]))
service.start()
print(service.url, flush=True)
try:
    sys.stdin.read()
finally:
    service.stop()
"""
GONE_S = 30


@pytest.fixture
def launch(tmp_path):
    """Start a launcher's service in a process of its own, which ends with its input; `.url` is where it is."""
    started = []

    def start(url: str) -> subprocess.Popen:
        command = [sys.executable, "-c", SERVE, url, str(tmp_path / f"{len(started)}.log")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=HOME, text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.communicate()


def url_of(launcher: subprocess.Popen) -> str:
    return launcher.stdout.readline().strip()


def plays(url: str) -> bool:
    with ServiceClient(url) as client:
        client.create("multi_turn_base_0", "one")
        return client.release("one")


def wait_free(url: str) -> None:
    deadline = time.monotonic() + GONE_S
    while not is_free(url):
        assert time.monotonic() < deadline, f"{url} is still served"
        time.sleep(0.1)


@pytest.mark.fault(
    event="A second run on the machine, and the first one ends or is killed",
    user_sees="The environment service at URL ends with process N on HOST, which started it: it is left alone. The "
    "environment service starts at URL.",
    outcome="each run has a service of its own and goes on",
)
def test_a_run_keeps_its_service_whatever_becomes_of_the_other(launch):
    wanted = free_url()
    first = launch(wanted)
    assert url_of(first) == wanted
    own = url_of(launch(wanted))
    assert own != wanted and plays(own)
    first.kill()
    wait_free(wanted)
    again = launch(wanted)
    assert url_of(again) == wanted and plays(own)
    again.communicate()
    wait_free(wanted)
    assert plays(own)


def test_two_launches_that_start_at_once_get_a_service_each(launch):
    wanted = free_url()
    launchers = [launch(wanted) for _ in range(2)]
    urls = {url_of(launcher) for launcher in launchers}
    assert len(urls) == 2 and wanted in urls and all(map(plays, urls))


@pytest.mark.slow
def test_a_run_trains_on_when_the_run_beside_it_has_ended():
    small = (
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "seal.data.val=[{split: eval, limit: 1}]",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
    )
    with experiment("test-beside", small) as first, experiment("test-own", small) as second:
        second.port = first.port
        short = first.start("trainer.total_training_steps=1")
        first.wait_for(short, lambda: (first.folder / "seal_log" / "launches.jsonl").exists(), "its service")
        done = second.finish("trainer.total_training_steps=3", deadline_s=1800)
        assert short.wait(1800) == exits.FINISHED, short.stdout.read()
    assert done.returncode == exits.FINISHED, done.stdout
    assert f"ends with process {short.pid}" in done.stdout
