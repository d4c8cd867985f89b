"""What is checked before anything starts: each fault is one sentence that names the key and the fix."""

from collections.abc import Callable
from importlib.util import find_spec

from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.registry import DEFAULT, get_environment
from seal.data.parquet import withdrawal_file, write_rows
from seal.data.rows import TaskRow, withdrawal_rows
from seal.data.selection import selected_rows
from seal.interface.artefact import InterfaceArtefact, read_artefact
from seal.launch.devices import flash_attn_problem
from seal.launch.engines import check_engines
from seal.launch.machine import check_devices, check_disk
from seal.launch.model import check_model
from seal.launch.plan import step_plan
from seal.launch.recipe import require_valid
from seal.launch.service import service_urls
from seal.settings import EnvServiceSettings, SealSettings, task_files
from seal.settings.data import Selection
from seal.system.errors import LaunchError
from seal.system.paths import HOME

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
FLASH, FALLBACK = "flash_attention_2", "sdpa"
LOGGERS = ("console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "trackio", "clearml")
"""verl's experiment loggers; all but the first two need the package of their name."""


def check(config: DictConfig) -> None:
    """Raise LaunchError for the first thing that would make the run fail later."""
    for check_one in CHECKS.values():
        check_one(config)


def plan_table(config: DictConfig) -> Table:
    """The step plan of a recipe for the console; LaunchError if the step cannot be divided."""
    table = Table(box=None, show_header=False, title=f"A training step of {config.trainer.experiment_name}")
    for what, amount in step_plan(config).lines():
        table.add_row(what, amount)
    return table


def with_attention(config: DictConfig) -> tuple[DictConfig, str | None]:
    """The configuration with the attention that works here, and a warning if that is not what it asks for.

    flash-attn is compiled for one torch, CUDA and Python, so it is often missing.
    verl 0.9.1 needs it only for speed: packed batches (`use_remove_padding`) also work
    with `sdpa`, which separates the dialogues of a micro-batch by their positions and
    whose time and memory grow with the square of the packed length. Raises LaunchError
    if sequence parallelism is asked for, which verl only splits in flash-attn's kernels.
    """
    wanted = config.trainer.device == "cuda" and OmegaConf.select(config, ATTENTION, default=FLASH) == FLASH
    problem = flash_attn_problem() if wanted else None
    if problem is None:
        return config, None
    parallel = config.actor_rollout_ref.actor.ulysses_sequence_parallel_size
    if parallel > 1:
        raise LaunchError(
            f"{problem} actor_rollout_ref.actor.ulysses_sequence_parallel_size={parallel} needs it: install it "
            "(docs/install.md#flash-attn), or set that key to 1."
        )
    fallen_back = config.copy()
    OmegaConf.update(fallen_back, ATTENTION, FALLBACK, force_add=True)
    return fallen_back, (
        f"{problem} Training falls back to {FALLBACK}, which is slower on long packed batches; install flash-attn "
        f"(docs/install.md#flash-attn), or set {ATTENTION}={FALLBACK} to choose that yourself."
    )


def write_data(config: DictConfig) -> tuple[int, int]:
    """Write the selected training and validation rows; returns how many there are of each."""
    data, default = SealSettings.of(config).data, EnvServiceSettings.of(config).env_type
    train = _rows("seal.data.train", data.train, default)
    if len(train) < config.data.train_batch_size:
        raise LaunchError(
            f"seal.data.train selects {len(train)} tasks, fewer than data.train_batch_size="
            f"{config.data.train_batch_size}: widen the selection or lower the batch size."
        )
    if not data.val:
        raise LaunchError("seal.data.val is empty, but verl needs a task: select at least [{split: eval, limit: 1}].")
    val = [row for part in data.val for row in _rows("seal.data.val", part, default)]
    write_rows(train, HOME / config.data.train_files)
    write_rows(val, HOME / config.data.val_files)
    if data.withdrawal is not None:
        rows = withdrawal_rows(_rows("seal.data.withdrawal", data.withdrawal, default))
        write_rows(rows, withdrawal_file(HOME / config.data.val_files), first=len(val))
    return len(train), len(val)


def total_steps(config: DictConfig) -> int:
    """The step with which a run ends; verl drops the incomplete batch at the end of an epoch."""
    trainer = config.trainer
    if trainer.total_training_steps:
        return trainer.total_training_steps
    default = EnvServiceSettings.of(config).env_type
    rows = _rows("seal.data.train", SealSettings.of(config).data.train, default)
    return len(rows) // config.data.train_batch_size * trainer.total_epochs


def environments(config: DictConfig) -> tuple[str, ...]:
    """The environments that a run trains or validates on."""
    return SealSettings.of(config).data.environments(EnvServiceSettings.of(config).env_type)


def _rows(key: str, selection: Selection, environment: str) -> tuple[TaskRow, ...]:
    try:
        return selected_rows(selection, environment)
    except (ValueError, FileNotFoundError) as error:
        raise LaunchError(f"{key}: {error}") from error


def _environments(config: DictConfig) -> None:
    """Refuse environments that cannot be found here, and formats that they do not have."""
    service, data = EnvServiceSettings.of(config), SealSettings.of(config).data
    known = {service.env_type, *(selection.environment for selection in data.selections())}
    for name in (*environments(config), *filter(None, known)):
        key = f"env_service.env_type={name}" if name == service.env_type else f"seal.data names {name}"
        try:
            formats = get_environment(name).formats
        except ValueError as error:
            raise LaunchError(f"{key}: {error}") from error
        if name != DEFAULT and (mode := service.mode(name)) not in formats:
            raise LaunchError(
                f"env_service.prompt_mode={mode} is not a format of {name}, which has {', '.join(formats)}: add "
                f"{{environment: {name}, mode: {formats[0]}}} to env_service.prompt_modes."
            )


def _task_files(config: DictConfig) -> None:
    for file in task_files(config):
        try:
            read_task_file(file)
        except ValueError as error:
            raise LaunchError(str(error)) from error


def _prompt_mode(config: DictConfig) -> None:
    if DEFAULT not in environments(config):
        return
    try:
        get_format(EnvServiceSettings.of(config).mode(DEFAULT))
    except ValueError as error:
        raise LaunchError(f"env_service.prompt_mode: {error}") from error


def initial_interface(config: DictConfig) -> InterfaceArtefact | None:
    """The Omega of an earlier run that this one starts with, if any; LaunchError if it cannot."""
    settings = SealSettings.of(config)
    path = settings.interface.initial
    if path is None:
        return None
    try:
        artefact = read_artefact(HOME / path)
        try:
            artefact.require_fit(settings.interface.evolve, settings.diagnosis.taxonomy, config.env_service.prompt_mode)
        except ValueError as error:
            raise ValueError(f"{path} {error}.") from None
    except ValueError as error:
        raise LaunchError(f"seal.interface.initial: {error}") from error
    return artefact


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
        if name not in LOGGERS[:2] and find_spec(name) is None:
            raise LaunchError(
                f"trainer.logger names {name}, but the package {name} is not installed: pip install {name}, or remove "
                f"{name} from trainer.logger."
            )


CHECKS: dict[str, Callable[[DictConfig], object]] = {
    "settings": require_valid,
    "engines": check_engines,
    "environments": _environments,
    "prompt mode": _prompt_mode,
    "interface": initial_interface,
    "task files": _task_files,
    "step plan": step_plan,
    "model": check_model,
    "service address": service_urls,
    "devices": check_devices,
    "disk": check_disk,
    "checkpoints": _checkpoints,
    "loggers": _loggers,
}
"""Each raises LaunchError with one sentence; `launcher.py doctor` runs them one by one."""
