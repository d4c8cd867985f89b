"""The Ray cluster of a run: the processors it must count, and what the run brings to its nodes.

`ray_kwargs.ray_init.address` names a cluster to join; `local` starts one for the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig, open_dict

from seal.paths import HOME

LOCAL = "local"

OF_A_NEW_CLUSTER = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "include_dashboard")
"""Arguments of ray.init that size a cluster; Ray refuses them for one that is there already."""

FORWARDED = ("OMP_NUM_THREADS", "BFCL_TOKEN")
FORWARDED_PREFIXES = ("VERL_", "VLLM_", "NCCL_", "GLOO_", "HF_", "WANDB_")
"""Variables of the launching shell that workers on other nodes need; their nodes know nothing of it."""

CPUS_PER_GPU = 3
"""Processors that verl's resource pools reserve with each GPU (max_colocate_count)."""


@dataclass(frozen=True)
class Processors:
    """Processors that Ray must count before a run can start: verl would wait for ever for one that is missing.

    Ray hands out numbers, not cores. training: on each node whose GPUs are used;
    every: on any other node of the cluster.
    """

    training: int
    every: int


def processors(config: DictConfig, nodes: int = 1) -> Processors:
    """What a recipe asks of a cluster of so many nodes.

    The data queue's storage is dealt out to all nodes; its controller may come to be on any.
    """
    storage = -(-config.transfer_queue.backend.SimpleStorage.num_data_storage_units // nodes)
    return Processors(CPUS_PER_GPU * config.trainer.n_gpus_per_node + storage + 1, storage)


def joins(config: DictConfig) -> bool:
    """Whether the recipe joins a cluster that is there already."""
    return config.ray_kwargs.ray_init.address != LOCAL


def prepare(config: DictConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Fit a recipe's ray.init arguments to its cluster.

    A new one counts as many processors as the run needs where the recipe names no
    number. One that is joined gets no sizes, and the environment for its workers.
    """
    arguments = config.ray_kwargs.ray_init
    if not joins(config):
        arguments.num_cpus = arguments.num_cpus or max(os.cpu_count() or 1, processors(config).training)
        return
    with open_dict(arguments):
        for name in OF_A_NEW_CLUSTER:
            arguments.pop(name, None)
        arguments.runtime_env.env_vars = worker_environment(config, environment)


def worker_environment(config: DictConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of the run's workers on every node."""
    kept = {
        name: value for name, value in environment.items() if name in FORWARDED or name.startswith(FORWARDED_PREFIXES)
    }
    path = os.pathsep.join(filter(None, (str(HOME), environment.get("PYTHONPATH"))))
    settings = {name: str(value) for name, value in config.seal.process_env.items()}
    return {**kept, **settings, "PYTHONPATH": path}
