"""The Ray cluster of a run: the processors that it must have, and the environment of its workers.

`ray_kwargs.ray_init.address` names an existing cluster; `local` starts one for the run.
`python -m seal.training.cluster ADDRESS` prints what a cluster has (`seal.launch.checks.devices`).
"""

import json
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from omegaconf import DictConfig, open_dict

from env_service import variable
from seal.backends import vllm_plugin
from seal.settings.user import KEY_VARIABLE
from seal.system.paths import HOME

LOCAL = "local"
QUEUE_CONTROLLER = "TransferQueueController"
QUEUE_NAMESPACE = "transfer_queue"
"""The data queue's actors have a namespace of their own; a cluster holds one queue, so one run at a time."""

SIZES = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "include_dashboard")
"""Arguments of ray.init that size a new cluster; Ray refuses them for an existing one."""

FORWARDED = ("OMP_NUM_THREADS", variable("token"), vllm_plugin.VARIABLE, KEY_VARIABLE)
FORWARDED_PREFIXES = ("VERL_", "VLLM_", "NCCL_", "GLOO_", "HF_", "WANDB_")
"""Variables of the launching shell that are passed on to workers on other nodes."""

VERL_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "VLLM_LOGGING_LEVEL": "WARN",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
    "HCCL_NPU_SOCKET_PORT_RANGE": "auto",
    "HSA_NO_SCRATCH_RECLAIM": "1",
    "VERL_FULL_DETERMINISM": "0",
    "VLLM_BATCH_INVARIANT": "0",
    "VERL_RL_INSIGHT_ENABLE": "0",
    "TRANSFER_QUEUE_ENABLE": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # Else a package of vLLM's server hides the warnings of each process that gets a server's handle.
    "SAGEMAKER_CONTAINER_LOG_LEVEL": "WARNING",
}
"""The variables that verl's `run_ppo` passes to the workers in Ray's runtime environment, and one more.

Ray starts a new process for an actor with a runtime environment. If workers inherit these variables from the cluster,
the environment stays empty, and Ray's prestarted workers fit.
"""

OWN_CLUSTER = {
    # Most of what verl's actors import. Ray prestarts as many workers with it as it counts processors.
    "RAY_preload_python_modules": "verl.workers.rollout.llm_server",
    # Ray takes 127.0.0.1 for the machine's address, and with it verl, vLLM and the data queue: none listens elsewhere.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""The variables that a run's own cluster adds to the environment."""

CPUS_PER_GPU = 3
"""Processors that verl's resource pools reserve with each GPU (max_colocate_count)."""


@dataclass(frozen=True)
class Processors:
    """Processors that Ray must count before a run can start; verl would wait forever for a missing one.

    Ray counts reservations, not cores. training: per node whose GPUs are used; every: per other node of the cluster.
    """

    training: int
    every: int


def processors(config: DictConfig, nodes: int = 1) -> Processors:
    """What a recipe requires of a cluster of `nodes` machines, over which the data queue's storage is spread."""
    storage = -(-config.transfer_queue.backend.SimpleStorage.num_data_storage_units // nodes)
    return Processors(CPUS_PER_GPU * config.trainer.n_gpus_per_node + storage + 1, storage)


def uses_existing_cluster(config: DictConfig) -> bool:
    """Return whether the recipe names an existing cluster."""
    return config.ray_kwargs.ray_init.address not in (None, "", LOCAL)


def prepare(config: DictConfig, environment: MutableMapping[str, str] = os.environ) -> None:
    """Fit a recipe's ray.init arguments and this process's environment to its cluster, in place.

    A new cluster gets as many processors as the run needs, unless the recipe sets a number; its workers inherit
    the environment. For an existing one, sizes are removed and the workers' environment is added.
    """
    arguments = config.ray_kwargs.ray_init
    for name, value in verl_environment(config).items():
        environment.setdefault(name, value)
    if not uses_existing_cluster(config):
        arguments.address = LOCAL  # without an address Ray would join a cluster that it finds
        arguments.num_cpus = arguments.num_cpus or processors(config).training
        for name, value in OWN_CLUSTER.items():
            environment.setdefault(name, value)
        # torch's processes would meet at a server that listens on all interfaces.
        environment.setdefault("DIST_INIT_METHOD", f"file://{tempfile.gettempdir()}/seal_{uuid.uuid4().hex}")
        return
    with open_dict(arguments):
        for name in SIZES:
            arguments.pop(name, None)
        arguments.runtime_env.env_vars = worker_environment(config, environment)


def verl_environment(config: DictConfig) -> dict[str, str]:
    """VERL_ENVIRONMENT, and for a recipe with full determinism the variables that give the same bits in each run."""
    rollout = config.actor_rollout_ref.rollout
    exact = {"VERL_FULL_DETERMINISM": "1", "VLLM_BATCH_INVARIANT": "1", "PYTHONHASHSEED": str(rollout.seed)}
    return VERL_ENVIRONMENT | (exact if rollout.full_determinism else {})


def worker_environment(config: DictConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the run's workers on every node."""
    passed = {*FORWARDED, *VERL_ENVIRONMENT, "PYTHONHASHSEED", *config.seal.rollout.harness_env}
    given = {key: value for key, value in environment.items() if key in passed or key.startswith(FORWARDED_PREFIXES)}
    path = os.pathsep.join(filter(None, (str(HOME), environment.get("PYTHONPATH"))))
    settings = {name: str(value) for name, value in config.seal.process_env.items()}
    return {**given, **settings, "PYTHONPATH": path}


def in_use() -> bool:
    """Return whether a run's data queue is in the cluster that this process has joined."""
    import ray

    try:
        ray.get_actor(QUEUE_CONTROLLER, namespace=QUEUE_NAMESPACE)
    except ValueError:
        return False
    return True


class _Answer:
    """An actor that shows that the cluster can start one for us."""

    def ping(self) -> bool:
        return True


def main(address: str) -> None:
    """Join a cluster and print its living nodes, and whether another run uses it."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    ray.get(ray.remote(_Answer).options(num_cpus=0).remote().ping.remote())
    alive = [(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
    nodes = [{"ip": ip, "cpus": found.get("CPU", 0), "gpus": found.get("GPU", 0)} for ip, found in alive]
    sys.stdout.write(json.dumps({"nodes": nodes, "in_use": in_use()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
