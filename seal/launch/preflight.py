"""What is checked before anything starts: each fault is one sentence that names the key and the mend."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from env_service.environments.bfcl.formats import get_format
from seal.data.parquet import write_rows
from seal.data.rows import TaskRow
from seal.data.selection import selected_rows
from seal.launch.cluster import KEY, Cluster, look_at
from seal.launch.doctor import Torch
from seal.launch.errors import LaunchError
from seal.launch.hub import hub_configuration
from seal.launch.plan import PlanError, StepPlan, step_plan
from seal.launch.recipe import require_valid
from seal.launch.service import is_loopback, service_urls
from seal.paths import HOME
from seal.settings import SealSettings
from seal.settings.data import Selection
from seal.training.cluster import processors, uses_existing_cluster

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
GIB = 1 << 30
LOGGERS = {
    "console": None,
    "file": None,
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "trackio": "trackio",
    "clearml": "clearml",
}
"""verl's experiment loggers and the package that each one needs; all log the same names."""


def check(config: DictConfig) -> None:
    """Raise LaunchError for the first thing that would make the run fail later."""
    for check_one in CHECKS.values():
        check_one(config)


def plan_table(config: DictConfig) -> Table:
    """The step plan of a recipe for the console; LaunchError where there is none."""
    table = Table(box=None, show_header=False, title=f"A training step of {config.trainer.experiment_name}")
    for what, amount in _plan(config).lines():
        table.add_row(what, amount)
    return table


def write_data(config: DictConfig) -> tuple[int, int]:
    """Write the selected training and validation rows; returns how many there are of each."""
    data = SealSettings.of(config).data
    train = _training_rows(config)
    if len(train) < config.data.train_batch_size:
        raise LaunchError(
            f"seal.data.train selects {len(train)} tasks, fewer than data.train_batch_size="
            f"{config.data.train_batch_size}: widen the selection or lower the batch size."
        )
    if not data.val:
        raise LaunchError("seal.data.val is empty, and verl wants a task: [{split: eval, limit: 1}] is the least.")
    val = [row for part in data.val for row in _rows("seal.data.val", part)]
    write_rows(train, HOME / config.data.train_files)
    write_rows(val, HOME / config.data.val_files)
    return len(train), len(val)


def total_steps(config: DictConfig) -> int:
    """The step with which a run ends; verl drops what an epoch leaves of a batch."""
    trainer = config.trainer
    return trainer.total_training_steps or (
        len(_training_rows(config)) // config.data.train_batch_size * trainer.total_epochs
    )


def _training_rows(config: DictConfig) -> tuple[TaskRow, ...]:
    return _rows("seal.data.train", SealSettings.of(config).data.train)


def _rows(key: str, selection: Selection) -> tuple[TaskRow, ...]:
    try:
        return selected_rows(selection)
    except (ValueError, FileNotFoundError) as error:
        raise LaunchError(f"{key}: {error}") from error


def _engines(config: DictConfig) -> None:
    """The parts that SEAL's hooks are made for; others would run and not be what the recipe says."""
    for key, only, reason in (
        ("env_service.env_type", "bfcl", "the selection of tasks, validation and statistics know BFCL alone"),
        ("actor_rollout_ref.rollout.name", "vllm", "rollouts and the checks on them are made for vLLM"),
    ):
        found = OmegaConf.select(config, key)
        if found != only:
            raise LaunchError(f"{key}={found}: {reason}, so it must be {only}.")


def _prompt_mode(config: DictConfig) -> None:
    try:
        get_format(config.env_service.prompt_mode)
    except ValueError as error:
        raise LaunchError(f"env_service.prompt_mode: {error}") from error


def _plan(config: DictConfig) -> StepPlan:
    try:
        return step_plan(config)
    except PlanError as error:
        raise LaunchError(f"{error}") from error


def _model(config: DictConfig) -> None:
    adapter = config.actor_rollout_ref.model.lora_adapter_path
    if adapter is not None and not (HOME / adapter).is_dir():
        raise LaunchError(
            f"actor_rollout_ref.model.lora_adapter_path={adapter} does not exist: name an adapter's folder."
        )
    path = config.actor_rollout_ref.model.path
    local = Path(path).expanduser()
    local = local if local.is_absolute() else HOME / local
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise LaunchError(f"actor_rollout_ref.model.path={path} holds no config.json: name a Hugging Face folder.")
        _fits(config, json.loads((local / "config.json").read_text(encoding="utf-8")))
        return
    if not HUB_ID.fullmatch(path) or (HOME / path.split("/")[0]).is_dir():
        raise LaunchError(f"actor_rollout_ref.model.path={path} does not exist: name a folder with a model.")
    if config.seal.process_env.get("HF_HUB_OFFLINE") == "1":
        raise LaunchError(
            f"actor_rollout_ref.model.path={path} does not exist and this recipe works offline: name a folder with a "
            "model (`make policy` makes the small one), or unset seal.process_env.HF_HUB_OFFLINE to fetch it."
        )
    _fits(config, hub_configuration(path))


def _fits(config: DictConfig, model: Mapping[str, Any]) -> None:
    """Whether the engine's length and the parallel sizes fit a model's own configuration."""
    text = model.get("text_config", model)
    positions, heads = text.get("max_position_embeddings"), text.get("num_attention_heads")
    length = _plan(config).model
    if positions and length > positions:
        raise LaunchError(
            f"actor_rollout_ref.rollout.max_model_len={length} is more than the {positions} positions of "
            "actor_rollout_ref.model.path: lower it, with data.max_prompt_length and data.max_response_length."
        )
    for key in ("rollout.tensor_model_parallel_size", "actor.ulysses_sequence_parallel_size"):
        parts = OmegaConf.select(config.actor_rollout_ref, key)
        if heads and heads % parts:
            raise LaunchError(
                f"actor_rollout_ref.{key}={parts} does not divide the {heads} attention heads of "
                "actor_rollout_ref.model.path: choose a divisor."
            )


def _devices(config: DictConfig) -> None:
    wanted, nodes = config.trainer.n_gpus_per_node, config.trainer.nnodes
    if uses_existing_cluster(config):
        _cluster(config, look_at(config.ray_kwargs.ray_init.address))
        return
    if nodes > 1:
        raise LaunchError(
            f"trainer.nnodes={nodes} needs a Ray cluster over as many machines: start one, and name its head with "
            "RAY_ADDRESS or ray_kwargs.ray_init.address."
        )
    counted, needed = config.ray_kwargs.ray_init.num_cpus, processors(config).training
    if counted is not None and counted < needed:
        raise LaunchError(
            f"ray_kwargs.ray_init.num_cpus={counted} and the run's processes need {needed}: raise it, which costs "
            "nothing (Ray only counts them), or set it to null."
        )
    if config.trainer.device != "cuda":
        return
    torch = Torch.probe()
    if len(torch.gpus) < wanted:
        raise LaunchError(
            f"trainer.n_gpus_per_node={wanted} and torch finds {len(torch.gpus)} CUDA devices"
            f"{f' ({torch.problem})' if torch.problem else ''}: lower it, ask `python launcher.py doctor`, or use "
            "exp/quickstart.yaml, which needs none."
        )


def _cluster(config: DictConfig, cluster: Cluster) -> None:
    address, wanted, nodes = config.ray_kwargs.ray_init.address, config.trainer.n_gpus_per_node, config.trainer.nnodes
    if cluster.taken:
        raise LaunchError(
            f"Another run is using the Ray cluster at {address}, and verl keeps one queue a cluster: wait for its end, "
            f"or name another ({KEY})."
        )
    able = sum(node.gpus >= wanted for node in cluster.nodes)
    if able < nodes:
        raise LaunchError(
            f"trainer.nnodes={nodes} x trainer.n_gpus_per_node={wanted} are wanted and {able} of {len(cluster.nodes)} "
            f"nodes of the Ray cluster at {address} have so many GPUs: lower one of them, or add nodes."
        )
    needed = processors(config, len(cluster.nodes))
    ready = sum(node.gpus >= wanted and node.cpus >= needed.training for node in cluster.nodes)
    if ready < nodes or any(node.cpus < needed.every for node in cluster.nodes):
        raise LaunchError(
            f"The nodes of the Ray cluster at {address} count {[int(node.cpus) for node in cluster.nodes]} processors; "
            f"the run's processes need {needed.training} on each of {nodes} with GPUs and {needed.every} on any other: "
            f"start them with `ray start --num-cpus={needed.training}` (Ray only counts them)."
        )
    loopback = [url for url in service_urls(config) if is_loopback(url)]
    if cluster.machines > 1 and loopback:
        raise LaunchError(
            f"env_service.env_url={loopback[0]} cannot be reached from the other machines of the Ray cluster: start "
            "the service with BFCL_HOST and BFCL_TOKEN, and name its address."
        )


def _disk(config: DictConfig) -> None:
    """Room for checkpoints; those of an earlier launch count as room, for they make way."""
    folder = HOME / config.trainer.default_local_dir
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    kept = sum(path.stat().st_size for path in folder.glob("global_step_*/**/*") if path.is_file())
    free = (shutil.disk_usage(existing).free + kept) / GIB
    if free < config.seal.min_free_gb:
        raise LaunchError(
            f"{existing} has {free:.1f} GiB for checkpoints and seal.min_free_gb={config.seal.min_free_gb} are wanted: "
            "free some, set trainer.default_local_dir or seal.run_dir to another disk, or seal.checkpoints to keep "
            "fewer, with a lower seal.min_free_gb."
        )


def _checkpoints(config: DictConfig) -> None:
    trainer = config.trainer
    for key in ("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep", "remove_previous_ckpt_in_save"):
        if trainer.get(key):
            raise LaunchError(
                f"trainer.{key} would remove parts of checkpoints: unset it and use seal.checkpoints.keep_last, which "
                "removes whole ones."
            )


def _loggers(config: DictConfig) -> None:
    names = config.trainer.logger
    for name in [names] if isinstance(names, str) else names:
        if name not in LOGGERS:
            raise LaunchError(f"trainer.logger names {name!r}; choose from {', '.join(LOGGERS)}.")
        package = LOGGERS[name]
        if package and find_spec(package) is None:
            raise LaunchError(
                f"trainer.logger names {name}, and the package {package} is not installed: pip install {package}, or "
                f"take {name} out of trainer.logger."
            )


CHECKS: dict[str, Callable[[DictConfig], object]] = {
    "settings": require_valid,
    "engines": _engines,
    "prompt mode": _prompt_mode,
    "step plan": _plan,
    "model": _model,
    "service address": service_urls,
    "devices": _devices,
    "disk": _disk,
    "checkpoints": _checkpoints,
    "loggers": _loggers,
}
"""Each raises LaunchError with one sentence; `launcher.py doctor` runs them one by one."""
