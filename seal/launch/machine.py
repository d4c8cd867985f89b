"""The needs of a run: GPUs, processors that Ray counts, a free cluster, room for checkpoints."""

import shutil
from urllib.parse import urlsplit

from omegaconf import DictConfig

from seal.launch.devices import KEY, Cluster, Torch, inspect_cluster
from seal.launch.plan import count
from seal.launch.recipe import Recipe
from seal.launch.service import service_urls
from seal.system.errors import LaunchError
from seal.system.net import is_loopback
from seal.training.cluster import processors, uses_existing_cluster

GIB = 1 << 30


def check_devices(recipe: Recipe) -> None:
    """LaunchError if this machine, or the Ray cluster that the recipe names, lacks what the run asks for."""
    config = recipe.config
    wanted, nodes = config.trainer.n_gpus_per_node, config.trainer.nnodes
    if uses_existing_cluster(config):
        return _cluster(config, inspect_cluster(config.ray_kwargs.ray_init.address))
    if nodes > 1:
        raise LaunchError(
            f"trainer.nnodes={nodes} needs a Ray cluster of that many machines: start one, and name its head with "
            "RAY_ADDRESS or ray_kwargs.ray_init.address."
        )
    key, needed = "ray_kwargs.ray_init.num_cpus", processors(config).training
    if config.ray_kwargs.ray_init.num_cpus is not None and (counted := count(config, key)) < needed:
        raise LaunchError(
            f"{key}={counted} but the run's processes need {needed}: raise it, which costs "
            "nothing (Ray only counts them), or set it to null."
        )
    if config.trainer.device != "cuda":
        return
    torch = Torch.probe()
    if len(torch.gpus) < wanted:
        raise LaunchError(
            f"trainer.n_gpus_per_node={wanted}, but torch finds {len(torch.gpus)} CUDA devices"
            f"{f' ({torch.problem})' if torch.problem else ''}: lower it, run `seal doctor`, or use "
            "exp/quickstart.yaml, which needs none."
        )


def _cluster(config: DictConfig, cluster: Cluster) -> None:
    address, wanted, nodes = config.ray_kwargs.ray_init.address, config.trainer.n_gpus_per_node, config.trainer.nnodes
    if cluster.in_use:
        raise LaunchError(
            f"Another run is using the Ray cluster at {address}, and verl keeps one queue per cluster: wait for it to "
            f"end, or name another cluster ({KEY})."
        )
    able = sum(node.gpus >= wanted for node in cluster.nodes)
    if able < nodes:
        raise LaunchError(
            f"trainer.nnodes={nodes} x trainer.n_gpus_per_node={wanted} are requested, but {able} of "
            f"{len(cluster.nodes)} nodes of the Ray cluster at {address} have that many GPUs: lower one of them, or "
            "add nodes."
        )
    needed = processors(config, len(cluster.nodes))
    ready = sum(node.gpus >= wanted and node.cpus >= needed.training for node in cluster.nodes)
    if ready < nodes or any(node.cpus < needed.every for node in cluster.nodes):
        raise LaunchError(
            f"The nodes of the Ray cluster at {address} count {[int(node.cpus) for node in cluster.nodes]} processors; "
            f"the run's processes need {needed.training} on each of {nodes} with GPUs and {needed.every} on any other: "
            f"start them with `ray start --num-cpus={needed.training}` (Ray only counts them)."
        )
    loopback = [url for url in service_urls(config) if is_loopback(urlsplit(url).hostname or "")]
    if loopback and len({node.ip for node in cluster.nodes}) > 1:
        raise LaunchError(
            f"env_service.env_url={loopback[0]} cannot be reached from the other machines of the Ray cluster: start "
            "the service with BFCL_HOST and BFCL_TOKEN, and name its address."
        )


def check_disk(recipe: Recipe) -> None:
    """LaunchError without room for checkpoints; those of an earlier launch count as room because they are replaced."""
    folder, least = recipe.checkpoints, recipe.settings.min_free_gb
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    kept = sum(path.stat().st_size for path in folder.glob("global_step_*/**/*") if path.is_file())
    free = (shutil.disk_usage(existing).free + kept) / GIB
    if free < least:
        raise LaunchError(
            f"{existing} has {free:.1f} GiB for checkpoints and seal.min_free_gb={least:g} are needed: "
            "free some, set trainer.default_local_dir or seal.run_dir to another disk, or seal.checkpoints to keep "
            "fewer with a lower seal.min_free_gb."
        )
