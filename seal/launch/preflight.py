"""What is checked before anything starts: each fault is one sentence that names the key and the mend."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seal.data.parquet import write_rows
from seal.data.selection import Selection
from seal.launch.errors import LaunchError
from seal.launch.recipe import HOME
from seal.rollout.rewards import RewardSettings
from seal.rollout.settings import RolloutSettings
from seal.training.checkpoints import Retention
from seal.training.closed_loop import LoopSettings

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


def write_data(config: DictConfig) -> tuple[int, int]:
    """Write the selected training and validation rows; returns how many there are of each."""
    data = OmegaConf.to_container(config.seal.data)
    train = _rows("seal.data.train", lambda: Selection.from_config(data["train"]).rows())
    val = [row for part in data["val"] for row in _rows("seal.data.val", Selection.from_config(part).rows)]
    if len(train) < config.data.train_batch_size:
        raise LaunchError(
            f"seal.data.train selects {len(train)} tasks, fewer than data.train_batch_size="
            f"{config.data.train_batch_size}: widen the selection or lower the batch size."
        )
    write_rows(train, HOME / config.data.train_files)
    write_rows(val, HOME / config.data.val_files)
    return len(train), len(val)


def _rows(key: str, select: Callable):
    try:
        return select()
    except (ValueError, FileNotFoundError) as error:
        raise LaunchError(f"{key}: {error}") from error


def _settings(config: DictConfig) -> None:
    settings = OmegaConf.to_container(config.seal)
    try:
        LoopSettings.from_config(settings)
        RolloutSettings(**settings["rollout"])
        RewardSettings(**settings["reward"])
        Retention(**settings["checkpoints"])
    except (ValueError, TypeError) as error:
        raise LaunchError(f"{error}") from error


def _batch(config: DictConfig) -> None:
    batch, mini = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if batch % mini:
        raise LaunchError(
            f"data.train_batch_size={batch} is no multiple of actor_rollout_ref.actor.ppo_mini_batch_size={mini}: "
            "change one of them."
        )
    rollouts = mini * config.actor_rollout_ref.rollout.n
    if rollouts % devices:
        raise LaunchError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size x actor_rollout_ref.rollout.n = {rollouts} trajectories do "
            f"not divide among {devices} devices (trainer.n_gpus_per_node x trainer.nnodes): change one of them."
        )
    room = config.data.max_prompt_length + config.data.max_response_length
    if config.actor_rollout_ref.rollout.max_model_len and room > config.actor_rollout_ref.rollout.max_model_len:
        raise LaunchError(
            f"data.max_prompt_length + data.max_response_length = {room} exceed "
            f"actor_rollout_ref.rollout.max_model_len={config.actor_rollout_ref.rollout.max_model_len}: raise it, or "
            "lower one of the former."
        )


def _model(config: DictConfig) -> None:
    path = config.actor_rollout_ref.model.path
    local = Path(path).expanduser()
    local = local if local.is_absolute() else HOME / local
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise LaunchError(f"actor_rollout_ref.model.path={path} holds no config.json: name a Hugging Face folder.")
        return
    is_hub_id = HUB_ID.fullmatch(path) and not (HOME / path.split("/")[0]).is_dir()
    if not is_hub_id or config.seal.process_env.get("HF_HUB_OFFLINE") == "1":
        raise LaunchError(
            f"actor_rollout_ref.model.path={path} does not exist: name a folder with a model"
            + (
                " (this recipe works offline; `make policy` makes the small one)."
                if is_hub_id is None or not is_hub_id
                else " or unset seal.process_env.HF_HUB_OFFLINE to fetch it."
            )
        )


def _devices(config: DictConfig) -> None:
    if config.trainer.device != "cuda" or config.ray_kwargs.ray_init.get("address") not in (None, "local"):
        return
    wanted = config.trainer.n_gpus_per_node
    listing = shutil.which("nvidia-smi")
    found = 0
    if listing:
        done = subprocess.run([listing, "-L"], capture_output=True, text=True, timeout=60, check=False)
        found = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    if found < wanted:
        raise LaunchError(
            f"trainer.n_gpus_per_node={wanted} and this machine has {found} CUDA devices: lower it, or use "
            "exp/quickstart.yaml, which needs none."
        )


def _disk(config: DictConfig) -> None:
    run_dir = HOME / config.seal.run_dir
    existing = next(folder for folder in (run_dir, *run_dir.parents) if folder.exists())
    free = shutil.disk_usage(existing).free / GIB
    if free < config.seal.min_free_gb:
        raise LaunchError(
            f"{existing} has {free:.1f} GiB free and seal.min_free_gb={config.seal.min_free_gb} are wanted for "
            "checkpoints: free some, or set seal.run_dir to another disk."
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


CHECKS: dict[str, Callable[[DictConfig], None]] = {
    "settings": _settings,
    "batch": _batch,
    "model": _model,
    "devices": _devices,
    "disk": _disk,
    "checkpoints": _checkpoints,
    "loggers": _loggers,
}
"""Each raises LaunchError with one sentence; `launcher.py doctor` runs them one by one."""
