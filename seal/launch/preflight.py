"""What is checked before anything starts: each fault is one sentence that names the key and the fix."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import constants, hf_hub_download
from huggingface_hub import logging as hub_logging
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.utils import disable_progress_bars
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.registry import DEFAULT, get_environment
from seal.data.parquet import withdrawal_file, write_rows
from seal.data.rows import TaskRow, withdrawal_rows
from seal.data.selection import selected_rows
from seal.errors import LaunchError
from seal.interface.artefact import InterfaceArtefact, read_artefact
from seal.launch.devices import KEY, Cluster, Torch, flash_attn_problem, inspect_cluster
from seal.launch.plan import step_plan
from seal.launch.recipe import require_valid
from seal.net import is_loopback
from seal.paths import HOME
from seal.pilot import most_prompts, require_rest
from seal.service import service_urls
from seal.settings import EnvServiceSettings, SealSettings, task_files
from seal.settings.data import Selection
from seal.training.cluster import processors, uses_existing_cluster

MODEL = "actor_rollout_ref.model.path"
ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
FLASH, FALLBACK = "flash_attention_2", "sdpa"
HUB_DEADLINE_S = 10
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
GIB = 1 << 30
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
    pilot, (prompts, samples) = SealSettings.of(config).sampling.pilot, _step_size(config)
    if pilot.samples is not None and len(train) < (needed := most_prompts(pilot, prompts, samples)):
        raise LaunchError(
            f"seal.data.train selects {len(train)} tasks, and a step of {prompts} x {samples} rollouts that pilots "
            f"its prompts can need {needed}: widen the selection, or lower data.train_batch_size or "
            "seal.sampling.pilot.waves."
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


def _engines(config: DictConfig) -> None:
    """Refuse parts that SEAL's hooks are not made for: they would run, but differently from what the recipe says."""
    key, only = "actor_rollout_ref.rollout.name", "vllm"
    found = OmegaConf.select(config, key)
    if found != only:
        raise LaunchError(f"{key}={found}: rollouts and their checks only support vLLM, so it must be {only}.")
    mode, modes = config.trainer.v1.trainer_mode, ("seal", "seal_async")
    if mode not in modes:
        raise LaunchError(f"trainer.v1.trainer_mode={mode} is not a trainer of SEAL: choose one of {', '.join(modes)}.")
    chosen = SealSettings.of(config).sampling.mode == "gradient"
    if chosen and mode != "seal":
        raise LaunchError(
            "seal.sampling.mode=gradient draws all prompts of a step at once: set trainer.v1.trainer_mode=seal, or "
            "seal.sampling.mode=uniform."
        )
    if chosen and config.trainer.v1.sampler.sync_refill_failed_groups:
        raise LaunchError(
            "seal.sampling.mode=gradient draws all prompts of a step at once: set "
            "trainer.v1.sampler.sync_refill_failed_groups=false, or seal.sampling.mode=uniform."
        )
    _pilots(config)


def _pilots(config: DictConfig) -> None:
    """Refuse what cannot be combined with prompts that get their rollouts in two parts."""
    pilot, off = SealSettings.of(config).sampling.pilot, "or seal.sampling.pilot.samples=null"
    if pilot.samples is None:
        return
    key = "seal.sampling.pilot.samples"
    _, samples = _step_size(config)
    try:
        require_rest(pilot, samples)
    except ValueError as error:
        raise LaunchError(f"{key}: {error} (actor_rollout_ref.rollout.n): lower it, {off}.") from error
    if config.trainer.v1.trainer_mode != "seal":
        raise LaunchError(
            f"{key} needs a step whose rollouts end before it is trained, and trainer.v1.trainer_mode="
            f"{config.trainer.v1.trainer_mode} does not wait for them: set it to seal, {off}."
        )
    for switch, instead in (
        ("trainer.v1.sampler.sync_refill_failed_groups", "would replace prompts by others in the middle of a step"),
        ("skip.rollout_tq.enable", "would send stored rollouts in place of those that the pilots decide on"),
    ):
        if OmegaConf.select(config, switch):
            raise LaunchError(f"{key}: {switch} {instead}: set it to false, {off}.")


def _step_size(config: DictConfig) -> tuple[int, int]:
    """Prompts of a training step, and rollouts of each."""
    return config.data.train_batch_size, config.actor_rollout_ref.rollout.n


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


def _model(config: DictConfig) -> None:
    adapter = config.actor_rollout_ref.model.lora_adapter_path
    if adapter is not None and not (HOME / adapter).is_dir():
        raise LaunchError(
            f"actor_rollout_ref.model.lora_adapter_path={adapter} does not exist: name an adapter's folder."
        )
    path = config.actor_rollout_ref.model.path
    local = HOME / Path(path).expanduser()
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise LaunchError(f"{MODEL}={path} holds no config.json: name a Hugging Face folder.")
        return _fits(config, json.loads((local / "config.json").read_text(encoding="utf-8")))
    if not HUB_ID.fullmatch(path) or (HOME / path.split("/")[0]).is_dir():
        raise LaunchError(f"{MODEL}={path} does not exist: name a folder with a model.")
    if config.seal.process_env.get("HF_HUB_OFFLINE") == "1":
        raise LaunchError(
            f"{MODEL}={path} does not exist and this recipe works offline: name a folder with a model (`make policy` "
            "makes the small one), or unset seal.process_env.HF_HUB_OFFLINE to download it."
        )
    _fits(config, _hub_configuration(path))


def _hub_configuration(model: str) -> dict[str, Any]:
    """The config.json of a model on the Hugging Face hub, or from the cache; LaunchError if neither gives it."""
    folder = f"name a folder that holds it with {MODEL}=/path"
    hub = constants.ENDPOINT
    hub_logging.set_verbosity_error()  # its attempts; the last one is our sentence
    disable_progress_bars()
    try:
        path = hf_hub_download(model, "config.json", etag_timeout=HUB_DEADLINE_S)
    except GatedRepoError as error:
        raise LaunchError(
            f"{MODEL}={model} is gated: accept its terms at {hub}/{model} and set HF_TOKEN (or run `hf auth login`), "
            f"or {folder}."
        ) from error
    except LocalEntryNotFoundError as error:
        reason = f"{hub} does not answer: {folder}, or another endpoint with HF_ENDPOINT"
        if constants.HF_HUB_OFFLINE:
            reason = f"HF_HUB_OFFLINE is set: unset it, or {folder}"
        raise LaunchError(f"{MODEL}={model} is not in the cache and {reason}.") from error
    except (HfHubHTTPError, EntryNotFoundError) as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else "without one"
        raise LaunchError(
            f"{MODEL}={model} is not in the cache and {hub} answers {status} for its config.json: correct the name, "
            f"set HF_TOKEN if it is private, or {folder}."
        ) from error
    return json.loads(Path(path).read_text(encoding="utf-8"))


def _fits(config: DictConfig, model: Mapping[str, Any]) -> None:
    """LaunchError if the engine's length or the parallel sizes do not fit the model's own configuration."""
    text = model.get("text_config", model)
    positions, heads = text.get("max_position_embeddings"), text.get("num_attention_heads")
    length = step_plan(config).model
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
        return _cluster(config, inspect_cluster(config.ray_kwargs.ray_init.address))
    if nodes > 1:
        raise LaunchError(
            f"trainer.nnodes={nodes} needs a Ray cluster of that many machines: start one, and name its head with "
            "RAY_ADDRESS or ray_kwargs.ray_init.address."
        )
    counted, needed = config.ray_kwargs.ray_init.num_cpus, processors(config).training
    if counted is not None and counted < needed:
        raise LaunchError(
            f"ray_kwargs.ray_init.num_cpus={counted} but the run's processes need {needed}: raise it, which costs "
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
    if cluster.machines > 1 and loopback:
        raise LaunchError(
            f"env_service.env_url={loopback[0]} cannot be reached from the other machines of the Ray cluster: start "
            "the service with BFCL_HOST and BFCL_TOKEN, and name its address."
        )


def _disk(config: DictConfig) -> None:
    """LaunchError without room for checkpoints; those of an earlier launch count as room because they are replaced."""
    folder = HOME / config.trainer.default_local_dir
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    kept = sum(path.stat().st_size for path in folder.glob("global_step_*/**/*") if path.is_file())
    free = (shutil.disk_usage(existing).free + kept) / GIB
    if free < config.seal.min_free_gb:
        raise LaunchError(
            f"{existing} has {free:.1f} GiB for checkpoints and seal.min_free_gb={config.seal.min_free_gb} are needed: "
            "free some, set trainer.default_local_dir or seal.run_dir to another disk, or seal.checkpoints to keep "
            "fewer with a lower seal.min_free_gb."
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
        if name not in LOGGERS[:2] and find_spec(name) is None:
            raise LaunchError(
                f"trainer.logger names {name}, but the package {name} is not installed: pip install {name}, or remove "
                f"{name} from trainer.logger."
            )


CHECKS: dict[str, Callable[[DictConfig], object]] = {
    "settings": require_valid,
    "engines": _engines,
    "environments": _environments,
    "prompt mode": _prompt_mode,
    "interface": initial_interface,
    "task files": _task_files,
    "step plan": step_plan,
    "model": _model,
    "service address": service_urls,
    "devices": _devices,
    "disk": _disk,
    "checkpoints": _checkpoints,
    "loggers": _loggers,
}
"""Each raises LaunchError with one sentence; `launcher.py doctor` runs them one by one."""
