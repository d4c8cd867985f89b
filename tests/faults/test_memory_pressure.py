"""Ray's memory monitor kills processes of a run when the machine runs low on memory: the watch must see that too."""

import time

import pytest
import ray
from ray.exceptions import OutOfMemoryError

from seal.training.liveness import Liveness

NOTICED_S = 60


@ray.remote
class Worker:
    """An actor that works for a while, which makes it one that the monitor may kill."""

    def work(self, seconds):
        time.sleep(seconds)


@pytest.fixture
def short_of_memory(monkeypatch):
    """A cluster whose monitor takes one percent of the machine's memory for all that there is."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "250")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.fault(
    event="Ray kills a process of the run because the machine runs low on memory",
    user_sees="`The process of ... has died because the machine ran low on memory; ...`",
    outcome="code 4 within seconds; resume as above",
)
def test_a_process_that_the_memory_monitor_killed_is_named(short_of_memory):
    reasons, name = [], "agent_loop_worker_0"
    liveness = Liveness(reasons.append)
    worker = Worker.options(name=name).remote()
    liveness._actors[name] = worker  # as if it had been seen: the monitor may kill it before the first look
    with liveness:
        with pytest.raises(OutOfMemoryError):
            ray.get(worker.work.remote(3600), timeout=NOTICED_S)
        deadline = time.monotonic() + NOTICED_S
        while not reasons:
            assert time.monotonic() < deadline, "nobody has noticed"
            time.sleep(0.1)
    assert "agent-loop worker agent_loop_worker_0 has died because the machine ran low on memory" in reasons[0].sentence
