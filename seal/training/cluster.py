"""The Ray cluster of a run: the processors that it must have, and the environment of its workers.

`ray_kwargs.ray_init.address` names an existing cluster; `local` starts one for the run.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig, open_dict

from seal.backends import weight_socket
from seal.system.paths import HOME

LOCAL = "local"
QUEUE_CONTROLLER = "TransferQueueController"
QUEUE_NAMESPACE = "transfer_queue"
"""The data queue's actors have a namespace of their own; a cluster holds one queue, so one run at a time."""

SIZES = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "include_dashboard")
"""Arguments of ray.init that size a new cluster; Ray refuses them for an existing one."""

FORWARDED = ("OMP_NUM_THREADS", "BFCL_TOKEN", weight_socket.VARIABLE)
FORWARDED_PREFIXES = ("VERL_", "VLLM_", "NCCL_", "GLOO_", "HF_", "WANDB_")
"""Variables of the launching shell that are passed on to workers on other nodes."""

CPUS_PER_GPU = 3
"""Processors that verl's resource pools reserve with each GPU (max_colocate_count)."""


@dataclass(frozen=True)
class Processors:
    """Processors that Ray must count before a run can start; verl would wait forever for a missing one.

    Ray counts reservations, not cores. training: per node whose GPUs are used;
    every: per other node of the cluster.
    """

    training: int
    every: int


def processors(config: DictConfig, nodes: int = 1) -> Processors:
    """Return what a recipe asks of a cluster of `nodes` machines.

    The data queue's storage is spread over all nodes; its controller may run on any of them.
    """
    storage = -(-config.transfer_queue.backend.SimpleStorage.num_data_storage_units // nodes)
    return Processors(CPUS_PER_GPU * config.trainer.n_gpus_per_node + storage + 1, storage)


def uses_existing_cluster(config: DictConfig) -> bool:
    """Return whether the recipe names an existing cluster."""
    return config.ray_kwargs.ray_init.address not in (None, LOCAL)


def prepare(config: DictConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Fit a recipe's ray.init arguments to its cluster, in place.

    A new cluster gets as many processors as the run needs, unless the recipe sets a
    number. For an existing one, sizes are removed and the workers' environment is added.
    """
    arguments = config.ray_kwargs.ray_init
    if not uses_existing_cluster(config):
        arguments.address = LOCAL  # without an address Ray would join a cluster that it finds
        arguments.num_cpus = arguments.num_cpus or max(os.cpu_count() or 1, processors(config).training)
        return
    with open_dict(arguments):
        for name in SIZES:
            arguments.pop(name, None)
        arguments.runtime_env.env_vars = worker_environment(config, environment)


def worker_environment(config: DictConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the run's workers on every node."""
    forwarded = {
        name: value for name, value in environment.items() if name in FORWARDED or name.startswith(FORWARDED_PREFIXES)
    }
    path = os.pathsep.join(filter(None, (str(HOME), environment.get("PYTHONPATH"))))
    settings = {name: str(value) for name, value in config.seal.process_env.items()}
    return {**forwarded, **settings, "PYTHONPATH": path}
