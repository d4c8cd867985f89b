"""One process for all pieces: verl's workers and vLLM's engine share it, and each library is imported once."""

import os
import signal
import time
import uuid

import pytest
import torch

from seal.backends import vllm_plugin
from seal.system.paths import HOME
from seal.training.cluster import verl_environment
from shelf.testbed.policy.grow import grow
from tests.support.device import CUDA, DEVICE, RECIPE, WITHOUT_FLASH
from tests.support.engine_here import beside, engine_of
from tests.support.recipes import composed
from tests.support.weight_sender import Order, limit_waits, weight_sender

LIMIT_S = 150


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    """The committed policy; on a GPU with 100M parameters."""
    small = HOME / "data" / "quickstart_policy"
    if not CUDA:
        return small
    grow(small, large := tmp_path_factory.mktemp("policy"))
    return large


@pytest.fixture(scope="session")
def recipe(policy):
    """Composes the device's recipe with this policy, as the launcher does without flash-attn, and without a warm-up."""

    def composed_with(*overrides: str):
        own = f"actor_rollout_ref.model.path={policy}", "actor_rollout_ref.actor.optim.lr_warmup_steps=0"
        return composed(RECIPE, *own, *(WITHOUT_FLASH if CUDA else ()), *overrides)

    return composed_with


@pytest.fixture(scope="session", autouse=True)
def process(recipe, tmp_path_factory):
    """The environment of a training worker, with one rank."""
    config = recipe()
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    ours = {name: str(value) for name, value in config.seal.process_env.items()}
    alone = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with pytest.MonkeyPatch.context() as patch:
        environment = verl_environment(config) | ours | rank | alone | {vllm_plugin.VARIABLE: uuid.uuid4().hex}
        for name, value in environment.items():
            if name not in os.environ or name in rank | alone:
                patch.setenv(name, value)
        if CUDA:
            torch.cuda.set_device(0)
        from seal.backends import register  # noqa: F401

        meeting = tmp_path_factory.mktemp("rank") / "meeting"
        backend = "cpu:gloo,cuda:nccl" if CUDA else "gloo"
        torch.distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=0, world_size=1)
        limit_waits()
        yield
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="session", autouse=CUDA)
def sender(process):
    """The trainer's end of weight transfers; on a GPU's many processors it imports while the first tests run."""
    with weight_sender() as sender:
        yield sender


@pytest.fixture(scope="session")
def engine(process, recipe, sender):
    """The rollout engine with the policy's weights; on a GPU it can sleep."""
    return engine_of(recipe().actor_rollout_ref, **beside(sleeps=True))


@pytest.fixture(scope="session")
def sync(sender):
    """Sends the weights of a file to an engine, as verl does."""

    def send(engine, file, bucket: int = 4, **adapters):
        (handle,) = engine.collective_rpc("_get_zmq_handle")
        asked = {"use_shm": not CUDA, **adapters}
        order = Order(handle, bucket, not CUDA, file)
        sender.send(order, lambda: engine.collective_rpc("update_weights_from_ipc", kwargs=asked))
        engine.reset_prefix_cache()

    return send


@pytest.fixture
def say(request, capsys):
    """Prints the test's line at once: a run that is cut keeps the lines that it has."""
    begun = time.monotonic()

    def line(*figures: str) -> None:
        with capsys.disabled():
            name = request.node.name.removeprefix("test_")
            print(f"\n{DEVICE} {name}: {'; '.join(figures)} [{time.monotonic() - begun:.0f} s]")

    return line


@pytest.fixture(autouse=True)
def limited():
    """A piece that hangs is one that fails."""

    def late(*_):
        raise TimeoutError(f"not done within {LIMIT_S} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
