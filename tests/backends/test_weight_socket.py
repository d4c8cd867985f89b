"""Runs on one host send their weights over sockets of their own."""

import multiprocessing
import os
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from seal.backends import vllm_plugin
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME

PROCESS = {"VERL_PLATFORM": "cpu", "RANK": "0", "RAY_LOCAL_WORLD_SIZE": "1"}


class Ends(NamedTuple):
    """The two ends of a run's weight transfer, and what Ray calls its job."""

    job: str
    sender: str
    receiver: str


def ends(_):
    """In a process of its own: the names that verl's trainer and vLLM's worker give the socket."""
    os.environ |= PROCESS
    vllm_plugin.claim()
    import ray
    from verl.utils.import_utils import import_external_libs
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

    from seal.backends.vllm_plugin import register

    config = read_recipe(HOME / "exp" / "quickstart.yaml", []).config.actor_rollout_ref
    import_external_libs(config.model.external_lib)
    ray.init("local", num_cpus=1, include_dashboard=False)
    job = ray.get_runtime_context().get_job_id()
    sender = get_rollout_class("vllm")(config=config.rollout, model_config=None, device_mesh=None, replica_rank=0)
    os.environ["VERL_RAY_JOB_ID"] = job  # as verl's server does before it starts the engine
    register()
    worker = SimpleNamespace(model_runner=None, local_rank=0)
    receiver = vLLMColocateWorkerExtension._get_zmq_handle(worker)
    ray.shutdown()
    return Ends(job, sender.zmq_handle, receiver)


@pytest.mark.slow
def test_two_runs_have_a_socket_each_though_ray_gives_their_jobs_the_same_number():
    # One after the other: each cluster numbers its own jobs, and two that start at once need minutes on a busy machine.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        one, other = pool.map_async(ends, range(2), chunksize=1).get(timeout=480)
    assert one.job == other.job
    assert one.sender == one.receiver and other.sender == other.receiver
    assert one.sender != other.sender
