"""The devices of a run: this machine's GPUs and attention kernels, or a Ray cluster, and what a recipe asks of them.

`ray_kwargs.ray_init.address` names the cluster, else RAY_ADDRESS; `local` starts one only for the run. Separate
processes query machine and cluster, and exit with the answer; nothing is imported, started or changed here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from omegaconf import DictConfig

from env_service import variable
from seal.launch.recipe import Recipe, count
from seal.launch.service import service_urls
from seal.system.errors import LaunchError
from seal.system.net import is_loopback
from seal.system.paths import HOME
from seal.system.text import last_line
from seal.training.cluster import processors, uses_existing_cluster

KEY = "ray_kwargs.ray_init.address"
AUTHENTICATION = "RAY_AUTH_MODE"
CLUSTER_DEADLINE_S = 60.0
TORCH_DEADLINE_S = 600
FLASH_ATTN_DEADLINE_S = 120
TIMED_OUT = 124
NO_OUTPUT = "no output"
FIX = f"start one with `ray start --head`, correct {KEY} or RAY_ADDRESS, or set {KEY}=local."
TORCH_FACTS = """
import json, torch
gpus = range(torch.cuda.device_count()) if torch.version.cuda else ()
properties = [torch.cuda.get_device_properties(i) for i in gpus]
print(json.dumps({"cuda": torch.version.cuda, "gpus": [[p.name, p.total_memory] for p in properties]}))
"""


class Torch(NamedTuple):
    """torch's report: the CUDA it was built for, and (name, bytes) of each GPU. problem: why it cannot report."""

    cuda: str | None = None
    gpus: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    @classmethod
    def probe(cls) -> Self:
        """Ask torch in a process of its own: a damaged installation can crash the one that imports it."""
        done = run_python("-W", "ignore", "-c", TORCH_FACTS, timeout=TORCH_DEADLINE_S)
        if done.returncode != 0:
            return cls(problem=last_line(done.stderr, NO_OUTPUT))
        facts = json.loads(done.stdout.splitlines()[-1])
        return cls(cuda=facts["cuda"], gpus=tuple((name, size) for name, size in facts["gpus"]))


def flash_attn_problem() -> str | None:
    """Why flash-attn cannot be used, as a sentence; None if it imports (in a process of its own, like torch)."""
    modules = "import flash_attn, flash_attn.bert_padding, flash_attn_2_cuda"
    done = run_python("-c", modules, timeout=FLASH_ATTN_DEADLINE_S)
    return f"flash-attn cannot be imported ({last_line(done.stderr, NO_OUTPUT)})." if done.returncode else None


def run_python(*arguments: str, timeout: float, **env: str) -> subprocess.CompletedProcess:
    """Run this interpreter in the repository with `env` added; its exit code is TIMED_OUT after `timeout` seconds."""
    command = [sys.executable, *arguments]
    options = {"cwd": HOME, "env": {**os.environ, **env}, "capture_output": True, "text": True, "timeout": timeout}
    try:
        return subprocess.run(command, check=False, **options)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, TIMED_OUT, "", f"no answer within {timeout:.0f} s")


class Node(NamedTuple):
    """One machine of a cluster: its address and the processors and GPUs that Ray counts there."""

    ip: str
    cpus: float
    gpus: float


class Cluster(NamedTuple):
    """A Ray cluster; in_use: another run uses it. authentication: the RAY_AUTH_MODE of a process that joins it."""

    nodes: tuple[Node, ...]
    in_use: bool
    authentication: str = "disabled"


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
    service = f"start the service with {variable('host')} and {variable('token')}, and name its address"
    asked = [(f"env_service.env_url={url}", url, service) for url in service_urls(config)]
    asked += [(f"seal.user.base_url={url}", url, "name another address") for url in [config.seal.user.base_url or ""]]
    for named, url, fix in asked if len({node.ip for node in cluster.nodes}) > 1 else ():
        if is_loopback(urlsplit(url).hostname or ""):
            raise LaunchError(f"{named} cannot be reached from the other machines of the Ray cluster: {fix}.")


def inspect_cluster(address: str) -> Cluster:
    """The cluster at `address`, found within a deadline by a process that joins it; LaunchError if none can.

    Both sides must agree on authentication: a cluster without a token drops the actors of a driver that sends one, and
    a guarded cluster rejects a driver without a token. So each remaining mode is tried until an actor answers.
    """
    if "://" in address:
        raise LaunchError(
            f"{KEY}={address} is not the address of a cluster's head: give HOST:PORT (the port of `ray start --head`), "
            "not the dashboard's or a client's."
        )
    reasons = []
    for mode in authentication_modes():
        module = ("-m", "seal.training.cluster", address)
        done = run_python(*module, timeout=CLUSTER_DEADLINE_S, **{AUTHENTICATION: mode})
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            return Cluster(tuple(Node(**node) for node in found["nodes"]), found["in_use"], mode)
        if done.returncode == TIMED_OUT:
            raise LaunchError(f"No Ray cluster answered at {address} within {CLUSTER_DEADLINE_S:.0f} s: {FIX}")
        reasons.append(f"{AUTHENTICATION}={mode}: {last_line(done.stderr, NO_OUTPUT).rstrip('.')}")
    raise LaunchError(f"No Ray cluster can be joined at {address} ({'; '.join(reasons)}): {FIX}")


def authentication_modes(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The values of RAY_AUTH_MODE to try, the likeliest first; a head does not report whether a token guards it."""
    if AUTHENTICATION in environment:
        return (environment[AUTHENTICATION],)
    has_token = any(name in environment for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    # `ray start` guards a cluster with this file, which every `ray.init` of a local cluster makes.
    if has_token or (Path.home() / ".ray" / "auth_token").is_file():
        return ("token", "disabled")
    return ("disabled",)
