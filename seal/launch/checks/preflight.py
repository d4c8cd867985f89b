"""The checks before anything starts, each of which refuses a recipe in one sentence that names the key and the fix.

The checks of this module read the recipe and its tasks and connect to the user's endpoint; `devices` and `places`
check this machine or its Ray cluster; `model` checks the model's folder or the hub. None writes a file.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from omegaconf import OmegaConf

from env_service.environments.base import Guard
from env_service.environments.kit.tool_calls import MODE as EVALUATED_ONLY
from env_service.environments.kit.tool_calls import NATIVE
from env_service.environments.registry import get_environment, locations
from env_service.protocol import DEFAULT_ENVIRONMENT
from seal.launch.checks.devices import check_devices, flash_attn_problem
from seal.launch.checks.model import check_model
from seal.launch.checks.numbers import require_sense, unusual
from seal.launch.checks.places import check_disk, check_places
from seal.launch.checks.plan import require_plan
from seal.launch.recipe import Recipe
from seal.launch.service import service_urls
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.evolve import cues_in_use
from seal.method.teacher import whole_part
from seal.settings.sentences import nearest, shown
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.system.text import first_line

ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"
FLASH, FALLBACK = "flash_attention_2", "packed_sdpa"
FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "actor_rollout_ref.rollout.name": (("vllm",), "rollouts and their checks know no other engine"),
    "actor_rollout_ref.rollout.calculate_log_probs": ((True,), "ratios and checks read the engine's log-probs"),
    "actor_rollout_ref.rollout.trace.backend": ((None,), "verl's v1 trainer writes none; seal_log has every rollout"),
    "trainer.device": (("cuda", "cpu"), "exp/backend has no other"),
    "trainer.v1.trainer_mode": (("seal", "seal_async"), "these are SEAL's trainers"),
    "trainer.v1.sampler.sync_refill_failed_groups": ((False,), "a batch with a lost trajectory ends the run"),
    "algorithm.filter_groups.enable": ((False,), "verl would evict groups before their labels reach C_t"),
    "trainer.resume_mode": (("auto",), "--resume says where a run starts"),
    "trainer.resume_from_path": ((None,), "--resume PATH names it"),
    "trainer.max_actor_ckpt_to_keep": ((None,), "it removes parts of checkpoints: use seal.checkpoints.keep_last"),
    "critic.enable": ((None, False), "SEAL trains no critic"),
    "trainer.remove_previous_ckpt_in_save": ((None, False), "seal.checkpoints removes checkpoints"),
}
"""verl's keys for which SEAL allows only these values, and why."""
ONE_ROLLOUT: dict[str, tuple[Any, ...]] = {
    "algorithm.adv_estimator": ("grpo",),
    "algorithm.use_kl_in_reward": (False,),
    "actor_rollout_ref.actor.loss_agg_mode": ("token-mean", "token-sum"),
    "actor_rollout_ref.actor.shuffle": (False,),
    "algorithm.rollout_correction.rollout_is": (None, "token"),
    "algorithm.rollout_correction.rollout_rs": (None, "token_k1", "token_k2", "token_k3"),
}
"""verl's keys whose other values would count the dialogues of a rollout one by one."""
LOGGERS = ("console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "trackio", "clearml")
"""verl's experiment loggers; all but the first two need the package of their name."""


def fit(recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with the attention that works here, and warnings; LaunchError with a line for each problem.

    The checks of this machine come first; the hub is asked only if nothing else fails.
    """
    refusals: dict[str, int] = {}
    warnings: list[str] = []
    for check_one in CHECKS.values():
        if check_one in (check_model, _tool_format) and refusals and not recipe.model_folder.is_dir():
            continue
        try:
            warnings += check_one(recipe) or ()
        except LaunchError as error:
            refusals.setdefault(str(error), error.code)
    if refusals:
        raise LaunchError("\n".join(refusals), max(refusals.values()))
    fitted, fallback = choose_attention(recipe)
    return fitted, (*warnings, *([fallback] if fallback else []))


def choose_attention(recipe: Recipe) -> tuple[Recipe, str | None]:
    """The recipe with the attention that works here, and a warning if that is not what it asks for.

    Without flash-attn: docs/operate.md#flash-attn. verl would also take log-probs one token at a time and keep 20 GB of
    them; its fused kernels in plain torch give the same in chunks. LaunchError for sequence parallelism, which needs
    flash-attn's kernels.
    """
    config = recipe.config
    wanted = config.trainer.device == "cuda" and OmegaConf.select(config, ATTENTION, default=FLASH) == FLASH
    problem = flash_attn_problem() if wanted else None
    if problem is None:
        return recipe, None
    parallel = config.actor_rollout_ref.actor.ulysses_sequence_parallel_size
    if parallel > 1:
        raise LaunchError(
            f"{problem} actor_rollout_ref.actor.ulysses_sequence_parallel_size={parallel} needs it: install it "
            "(docs/operate.md#flash-attn), or set that key to 1."
        )
    fallen_back = config.copy()
    OmegaConf.update(fallen_back, ATTENTION, FALLBACK, force_add=True)
    fallen_back.actor_rollout_ref.model.use_fused_kernels = True
    fallen_back.actor_rollout_ref.model.fused_kernel_options.impl_backend = "torch"
    return replace(recipe, config=fallen_back), (
        f"{problem} Training falls back to {FALLBACK}; docs/operate.md#flash-attn says how to install flash-attn."
    )


def _numbers(recipe: Recipe) -> tuple[str, ...]:
    require_sense(recipe)
    return unusual(recipe)


def _fixed(recipe: Recipe) -> None:
    for key, (allowed, why) in FIXED.items():
        if (value := OmegaConf.select(recipe.config, key)) not in allowed:
            known = " or ".join(map(shown, allowed))
            raise LaunchError(f"{key} is {shown(value)}; it must be {known}: {why}.")


def _optimiser(recipe: Recipe) -> None:
    """Refuse an estimator that SEAL does not train, and a shortcut that a GPU's engine ignores."""
    if (estimator := recipe.config.algorithm.adv_estimator) == "gae":
        raise LaunchError(
            f"algorithm.adv_estimator={estimator} asks for a critic, which SEAL does not train: set it to grpo."
        )
    if recipe.config.actor_rollout_ref.actor.use_prefix_grouper and recipe.config.trainer.device != "cpu":
        raise LaunchError(
            "actor_rollout_ref.actor.use_prefix_grouper=true does nothing on a GPU, with verl's engine: leave it false."
        )


def _dialogues(recipe: Recipe) -> None:
    """Refuse what weighs or compares dialogues if a rollout may have several."""
    config, rollout = recipe.config, recipe.settings.rollout
    if rollout.harness is None or rollout.trained == "main":
        return
    for key, allowed in ONE_ROLLOUT.items():
        if (value := OmegaConf.select(config, key)) not in allowed:
            raise LaunchError(
                f"{key}={shown(value)} takes each dialogue for a rollout, and a harness may have several in one: set "
                f"it to {shown(allowed[0])}, or seal.rollout.trained to main."
            )


def _teacher(recipe: Recipe) -> None:
    """Refuse what deprives a teacher of its cues or its control, and a share that is less than one rollout."""
    settings, rollouts = recipe.settings, recipe.config.actor_rollout_ref.rollout.n
    if settings.teaches and recipe.config.algorithm.rollout_correction.bypass_mode:
        raise LaunchError(
            "algorithm.rollout_correction.bypass_mode=true makes the engine's log-probs the old ones, but it saw "
            "the cues that seal.interface.teacher takes away: leave it false."
        )
    if settings.teaches and (estimator := recipe.config.algorithm.adv_estimator) != "grpo":
        raise LaunchError(
            f"algorithm.adv_estimator={estimator} computes no baseline of a prompt's plain rollouts, which "
            "seal.interface.teacher needs: set it to grpo, or the teacher to off."
        )
    if settings.interface.teacher == "retry" and settings.diagnosis.source != "verifier":
        raise LaunchError(
            f"seal.diagnosis.source={settings.diagnosis.source} is not a control of seal.interface.teacher=retry, "
            "which shows documents and reads no label: set seal.interface.entries=other, or the teacher to share."
        )
    used = cues_in_use(settings.interface.evolve, taxonomy_of(settings.diagnosis.taxonomy))
    if settings.teaches and settings.interface.teacher == "retry" and not any(cue.tells_documents for cue in used):
        raise LaunchError(
            "seal.interface.teacher=retry shows documents, and no cue in use holds any: have schema among "
            "seal.interface.evolve.kinds and schema_required not in its left_out, or set the teacher to share."
        )
    share = settings.interface.share
    if rollouts >= 1 and whole_part(share, rollouts) < 1:
        raise LaunchError(
            f"seal.interface.share={share:g} leaves no rollout of {rollouts} (actor_rollout_ref.rollout.n) that sees "
            f"Omega: raise it to {1 / rollouts:g}, or set seal.interface.enabled=false."
        )


def _environments(recipe: Recipe) -> None:
    """Refuse environments that cannot be found here, and formats that they do not have."""
    service, environments = recipe.service, locations()
    cues = [name.rpartition("/")[0] for name in recipe.settings.interface.evolve.left_out if "/" in name]
    named = dict.fromkeys(cues, "seal.interface.evolve.left_out")
    named |= dict.fromkeys(service.prompt_modes, "env_service.prompt_modes")
    if unknown := next((name for name in named if name not in environments), None):
        hint = nearest(unknown, environments, f"; they are {', '.join(sorted(environments))}.")
        raise LaunchError(f"{named[unknown]} names {unknown}, which is no environment{hint}")
    known = {service.env_type, *(selection.environment for selection in recipe.settings.data.selections())}
    for name in (*recipe.environments, *filter(None, known)):
        key = f"env_service.env_type={name}" if name == service.env_type else f"seal.data names {name}"
        try:
            formats = get_environment(name).formats
        except ValueError as error:
            raise LaunchError(f"{key}: {error}") from error
        if name in recipe.environments and (mode := service.mode(name)) == EVALUATED_ONLY:
            raise LaunchError(
                f"env_service.prompt_mode={mode} is only for `seal evaluate`, since an API reads the calls: "
                f"train with {NATIVE} (with a harness too: docs/harness.md)."
            )
        if name in recipe.environments and (mode := service.mode(name)) not in (*formats, NATIVE):
            raise LaunchError(
                f"env_service.prompt_mode={mode} is not a format of {name}, which has {', '.join(formats)}: add "
                f"{name}: {formats[0]} to env_service.prompt_modes, or set the key to one of them."
            )


def _tool_format(recipe: Recipe) -> tuple[str, ...]:
    if not any(recipe.service.mode(name) == NATIVE for name in recipe.environments):
        return ()
    from seal.launch.checks.native import check_native  # its tokenizer loads only if a recipe needs it

    return check_native(recipe)


def _user(recipe: Recipe) -> None:
    """Refuse a model that plays the user if no task has a part for it or it does not answer; refuse its lack too."""
    url, known = recipe.settings.user.base_url, {DEFAULT_ENVIRONMENT}  # whose tasks open slowly, and need no model
    for row in (*recipe.rows.train, *recipe.rows.val, *recipe.rows.withdrawal):
        if row.environment in known:
            continue
        try:
            opening = get_environment(row.environment).open(row.task_id, {"user": True} if url else {}, Guard()).start()
        except ValueError as error:
            raise LaunchError(str(error)) from error
        except (Exception, SystemExit) as error:  # an environment is third-party code and can raise anything
            said = f"{row.environment} cannot open {row.task_id} ({type(error).__name__}: {first_line(str(error))})"
            raise LaunchError(f"{said}: run `seal env show {row.environment} {row.task_id}`.") from error
        if url is None or "user" in opening:
            known.add(row.environment)
    if url is None:
        return
    if len(known) == 1:
        raise LaunchError(f"seal.user.base_url is set, and no user of {', '.join(recipe.environments)} is for a model.")
    try:
        proxied = not proxy_bypass(urlsplit(url).hostname or "") and getproxies().get(urlsplit(url).scheme)
        parts = urlsplit(proxied or url)  # rollouts ask it through the proxy that the environment names
        with socket.create_connection((parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)), 5.0):
            return
    except (OSError, ValueError) as error:  # ValueError: of the port or the name
        raise LaunchError(
            f"seal.user.base_url={url} does not answer ({error}): start the model that plays the user, or correct it."
        ) from error


def _tasks(recipe: Recipe) -> None:
    batch, v1 = recipe.config.data.train_batch_size, recipe.config.trainer.v1
    batches = 1 + v1.colocate_async.num_warmup_batches * (v1.trainer_mode == "seal_async")  # a step's seeds are by task
    if len(recipe.rows.train) < batch * batches:
        times = f", of which the first step draws {batches}" if batches > 1 else ""
        raise LaunchError(
            f"seal.data.train selects {len(recipe.rows.train)} tasks, fewer than data.train_batch_size={batch}{times}: "
            "widen the selection or lower the batch size."
        )
    epochs = recipe.config.trainer.total_epochs
    if batch > 0 and recipe.last_step > (most := len(recipe.rows.train) // batch * epochs):
        raise LaunchError(
            f"trainer.total_training_steps={recipe.last_step} is more than the {most} steps of "
            f"trainer.total_epochs={epochs}: raise that too."
        )


def _validations(recipe: Recipe) -> None:
    """Refuse other places for what a run writes into its folder: it would replace a file of tasks there."""
    folder, trainer = recipe.folder, recipe.config.trainer
    own = {f"data.{side}_files": folder.training_rows.with_stem(side) for side in ("train", "val")}
    for key, place in {"trainer.validation_data_dir": folder.validations, **own}.items():
        value = OmegaConf.select(recipe.config, key)
        if HOME / str(value) != place:
            raise LaunchError(
                f"{key}={value} is where the run would write, outside its folder: leave it at {place}. seal.data "
                "chooses the tasks, and seal.run_dir moves the whole run."
            )
    if trainer.val_only and not trainer.val_before_train:
        raise LaunchError("trainer.val_only=true without trainer.val_before_train=true would train: set both to true.")


def _loggers(recipe: Recipe) -> None:
    names = recipe.config.trainer.logger
    for name in [names] if isinstance(names, str) else names:
        if name not in LOGGERS:
            raise LaunchError(f"trainer.logger names {name!r}; choose from {', '.join(LOGGERS)}.")
        if name not in LOGGERS[:2] and find_spec(name) is None:
            raise LaunchError(
                f"trainer.logger names {name}, but the package {name} is not installed: pip install {name}, or remove "
                f"{name} from trainer.logger."
            )


CHECKS: dict[str, Callable[[Recipe], tuple[str, ...] | None]] = {
    "devices": check_devices,
    "disk": check_disk,
    "places": check_places,
    "numbers": _numbers,
    "step plan": lambda recipe: require_plan(recipe.config),
    "fixed keys": _fixed,
    "optimiser": _optimiser,
    "teacher": _teacher,
    "dialogues": _dialogues,
    "environments": _environments,
    "user": _user,
    "tasks": _tasks,
    "service address": lambda recipe: service_urls(recipe.config) and None,
    "validations": _validations,
    "loggers": _loggers,
    "model": check_model,
    "tool format": _tool_format,
}
"""Each raises LaunchError with one sentence, or returns warnings; `seal doctor` runs them one by one."""
