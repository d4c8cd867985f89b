"""The watch over a run's processes, on real Ray actors: it names dead ones and leaves busy ones alone."""

import os
import signal
import time

import pytest
import ray
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayTaskError

from seal.records.ending import Ending
from seal.system import exits
from seal.training import liveness as watch
from seal.training.checkpoints import CheckpointError
from seal.training.ending import explain
from seal.training.liveness import Liveness
from seal.training.stop import InfrastructureFailure, StopRequested
from tests.support.actors import Process, Server, Unreachable

NOTICED_S = 60
ENGINE_DEAD = "vllm.v1.engine.exceptions:EngineDeadError"
"""By its name: each worker of the tests imports this file, and vLLM takes seconds."""


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(watch, "POLL_S", 0.1)
    monkeypatch.setattr(watch, "GRACE_S", 0.5)


@pytest.fixture
def trainer(cluster):
    """A call that waits forever, like verl's trainer, the function that ends it, and the reasons it was given."""
    actor = Process.remote()
    waits = actor.work.remote(3600)
    ended = []

    def end(reason):
        ended.append(reason)
        ray.kill(actor)

    yield waits, end, ended
    ray.kill(actor)


@pytest.fixture
def start(cluster):
    """Start named actors that end with the test."""
    started = []

    def make(cls, name):
        started.append(cls.options(name=name).remote())
        return started[-1]

    yield make
    for actor in started:
        ray.kill(actor)


def check_ended(waits):
    """Check that the watch has ended the trainer, which would otherwise wait for an hour."""
    with pytest.raises(RayActorError):
        ray.get(waits, timeout=NOTICED_S)


def wait_until_watched(liveness, name):
    deadline = time.monotonic() + NOTICED_S
    while name not in liveness._pings:
        assert time.monotonic() < deadline, f"{name} is not watched"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def met(cluster):
    """Return what the driver makes of an error that passed two actors, like one of a worker passes the trainer."""
    inner, outer = Process.remote(), Process.remote()

    def meet(kind, *arguments):
        name = kind if isinstance(kind, str) else f"{kind.__module__}:{kind.__name__}"
        with pytest.raises(RayTaskError) as raised:
            ray.get(outer.ask.remote(inner, name, *arguments), timeout=4 * NOTICED_S)
        return explain(raised.value, {})

    return meet


@pytest.mark.parametrize(
    ("kind", "arguments", "ending"),
    [
        (StopRequested, ("it is saved",), Ending(exits.INTERRUPTED, "stopped", "it is saved")),
        (CheckpointError, ("no room",), Ending(exits.CHECKPOINT, "checkpoint", "no room")),
        (InfrastructureFailure, ("lost", "engine"), Ending(exits.INFRASTRUCTURE, "engine", "lost")),
        (ValueError, ("x",), Ending(exits.FAILED, "error", "ValueError: x")),
    ],
)
def test_an_error_keeps_its_cause_and_text_through_the_layers_of_ray(met, kind, arguments, ending):
    assert met(kind, *arguments) == ending


@pytest.mark.parametrize(
    ("kind", "cause", "said"),
    [
        (ENGINE_DEAD, "engine", "One engine of the run has died. Start again"),
        (OutOfMemoryError, "memory", "One process of the run has died because the machine ran low on memory. Start"),
    ],
)
def test_a_death_that_the_trainer_meets_is_infrastructure(met, kind, cause, said):
    ending = met(kind, *([] if kind is ENGINE_DEAD else ["..."]))
    assert ending[:2] == (exits.INFRASTRUCTURE, cause) and ending.sentence.startswith(said)


def test_a_lost_connection_that_the_trainer_meets_is_no_death(met):
    ending = met(ActorUnavailableError, "the connection is lost", None)
    assert ending[:2] == (exits.INFRASTRUCTURE, "process") and "died" not in ending.sentence


def test_a_dead_worker_that_the_trainer_meets_is_named(start):
    worker, trainer = start(Process, "agent_loop_worker_0_cd"), Process.remote()
    os.kill(ray.get(worker.pid.remote()), signal.SIGKILL)
    with pytest.raises(RayTaskError) as raised:
        ray.get(trainer.ask.remote(worker, "builtins:ValueError"), timeout=NOTICED_S)
    ending = explain(raised.value, {worker._actor_id.hex(): "agent_loop_worker_0_cd"})
    assert ending[:2] == (exits.INFRASTRUCTURE, "process")
    assert ending.sentence.startswith("The process of the agent-loop worker agent_loop_worker_0_cd has died. Start")
    assert explain(raised.value, {}).sentence.startswith("One process of the run has died.")


def test_a_dead_worker_ends_the_trainer_and_is_named(trainer, start):
    waits, end, reasons = trainer
    worker = start(Process, "agent_loop_worker_0_ab")
    pid = ray.get(worker.pid.remote())
    with Liveness(end) as liveness:
        wait_until_watched(liveness, "agent_loop_worker_0_ab")
        assert liveness.names[worker._actor_id.hex()] == "agent_loop_worker_0_ab"
        os.kill(pid, signal.SIGKILL)
        check_ended(waits)
    assert "process of the agent-loop worker agent_loop_worker_0_ab has died" in reasons[0].sentence


def test_a_server_whose_engine_is_dead_ends_the_trainer(trainer, start):
    waits, end, reasons = trainer
    server = start(Server, "vllm_server_0_0")
    with Liveness(end) as liveness:
        wait_until_watched(liveness, "vllm_server_0_0")
        ray.get(server.lose_engine.remote())
        check_ended(waits)
    assert "engine of the rollout server vllm_server_0_0 has died" in reasons[0].sentence


def test_a_busy_worker_is_left_alone(trainer, start):
    waits, end, reasons = trainer
    worker = start(Process, "worker_0")
    work = worker.work.remote(watch.GRACE_S + 1)
    with Liveness(end):
        ray.get(work)
        assert ray.wait([waits], timeout=0)[0] == []
    assert not reasons


def test_a_worker_that_cannot_be_reached_for_a_while_is_left_alone(trainer, start):
    waits, end, reasons = trainer
    start(Unreachable, "worker_1")
    with Liveness(end) as liveness:
        wait_until_watched(liveness, "worker_1")
        assert ray.wait([waits], timeout=watch.GRACE_S + 1)[0] == []
    assert not reasons
