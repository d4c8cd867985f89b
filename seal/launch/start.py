"""Where a run starts in its folder, and what a resume changes. Files are read here, nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import OmegaConf

from seal.launch.recipe import Recipe
from seal.launch.record import model_hashes, recipe_facts
from seal.records.changes import MODEL, Change, compare, same_model, training_launches, without_moves
from seal.records.folder import RunFolder
from seal.records.step import read_steps
from seal.settings.sentences import shown
from seal.system import exits
from seal.system.errors import LaunchError
from seal.training.checkpoints import CONTENTS, last_step, step_of, verify

OPTIM = "actor_rollout_ref.actor.optim"
LEFT_OUT = "seal.interface.evolve.left_out"
WEIGHTS = (MODEL, *(f"actor_rollout_ref.model.{name}" for name in ("lora_rank", "target_modules", "exclude_modules")))
KEPT = (
    "seal.seed",
    "seal.data.train",
    "seal.diagnosis.taxonomy",
    "seal.interface.evolve",
    "env_service.prompt_mode",
    "env_service.prompt_modes",
    *(f"data.{name}" for name in ("train_batch_size", "gen_batch_size", "shuffle", "seed", "dataloader_num_workers")),
    *(f"data.{name}" for name in ("train_max_samples", "filter_overlong_prompts", "sampler")),
    *WEIGHTS,
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.actor.fsdp_config.fsdp_size",
    *(f"{OPTIM}.{name}" for name in ("optimizer", "optimizer_impl", "override_optimizer_config.amsgrad")),
    "trainer.device",
    "trainer.v1.trainer_mode",
)
"""Keys and blocks that a checkpoint depends on: the order of the tasks, C_t and Omega of the next step, the weights and
their parts, the state of the optimizer and of the trainer. Any other change takes effect from the run's next step."""
UNDER_WAY = ("actor_rollout_ref.rollout.n", "trainer.v1.colocate_async.num_warmup_batches")
"""More such keys for the asynchronous trainer, whose checkpoint holds prompts under way with the rollouts they had."""
OWNER = "run.txt"
"""A file in a folder of checkpoints outside the run's own: it holds the name of the run that writes there."""


@dataclass(frozen=True)
class Start:
    """The step after which a run continues, 0 for the beginning.

    complete: nothing remains to be done. checkpoint: its folder. settings: values of `trainer.*` that make verl start
    there. changes: a sentence for each setting that is not as it was before.
    """

    step: int
    complete: bool = False
    checkpoint: Path | None = field(default=None, compare=False)
    settings: Mapping[str, str | bool] = field(default_factory=dict, compare=False)
    changes: tuple[str, ...] = field(default=(), compare=False)


def find_start(recipe: Recipe, mode: str) -> Start:
    """Where `--resume auto|never|PATH` starts the run, after the checkpoint has been read in full.

    Raises LaunchError for a checkpoint that cannot be resumed from.
    """
    checkpoints, run_dir = recipe.checkpoints, recipe.run_dir
    newest = last_step(checkpoints)
    _require_own(recipe, newest)
    if mode == "never":
        if newest is not None or recipe.folder.steps.exists() or any(recipe.folder.validations.glob("*.jsonl")):
            raise LaunchError(
                f"{run_dir} already holds a run: remove it, set another trainer.experiment_name, or resume it with "
                "--resume auto."
            )
        return Start(0, settings={"resume_mode": "disable"})
    if mode != "auto":
        folder = Path(mode).resolve()
        if step_of(folder) is None or not folder.is_dir():
            raise LaunchError(f"--resume {mode} is not a checkpoint: name a global_step_N folder, auto or never.")
        if newest is not None and folder.parent != checkpoints.resolve():
            raise LaunchError(
                f"{run_dir} has steps of its own up to {newest}: continue it without --resume {mode}, or set another "
                "trainer.experiment_name."
            )
        if recipe.config.trainer.val_only and newest is not None and step_of(folder) < newest:
            raise LaunchError(
                f"trainer.val_only=true with --resume {mode} would discard what {run_dir} has after that step: set "
                "another trainer.experiment_name too."
            )
    elif newest is not None:
        folder = checkpoints / f"global_step_{newest}"
    elif any(checkpoints.glob("global_step_*")):
        raise LaunchError(
            f"{checkpoints} holds checkpoints, but none of them is whole: remove {run_dir} to start over, or set "
            "another trainer.experiment_name.",
            exits.CHECKPOINT,
        )
    else:
        _require_nothing_lost(recipe)
        if recipe.config.trainer.val_only and (recipe.folder.validations / "0.jsonl").exists():
            _changes(recipe, run_dir, 0)
        return Start(0, settings={"resume_mode": "disable"})
    return _continue(recipe, folder)


def _require_own(recipe: Recipe, newest: int | None) -> None:
    """LaunchError for a folder of checkpoints that another run writes: this one would continue there, and prune it."""
    folder, owner = recipe.checkpoints, recipe.checkpoints / OWNER
    if folder.is_relative_to(recipe.run_dir):
        return
    named = owner.read_text(encoding="utf-8").strip() if owner.is_file() else None
    used = named is not None or newest is not None  # perhaps by a run of this name with another folder
    if named not in (None, recipe.name) or (used and not recipe.folder.launches.exists()):
        raise LaunchError(
            f"trainer.default_local_dir={folder} holds the checkpoints of {named or 'another run'}, of which "
            f"{recipe.run_dir} has no log: name a folder for only this run, such as {folder / recipe.name}, or remove "
            "the one that is there to start over."
        )


def _require_nothing_lost(recipe: Recipe) -> None:
    """LaunchError for a run whose checkpoints are gone: a new start would drop its logs.

    A step is logged after its save, so a run that logged a step at which it saves had a checkpoint.
    """
    steps = read_steps(recipe.folder.steps)[0] if recipe.folder.steps.exists() else ()
    last = steps[-1].step if steps else 0
    launches = training_launches(recipe.folder)  # one that ended before its first step too
    every = {begun: each["config"].get("trainer", {}).get("save_freq", -1) for begun, each in launches.items()}
    if any(saves > 0 and last // saves > begun // saves for begun, saves in every.items()):
        raise LaunchError(
            f"{recipe.run_dir} has logged step {last}, but {recipe.checkpoints} holds no checkpoint: restore them (is "
            f"their disk mounted?), remove {recipe.run_dir} to start over, or set another trainer.experiment_name.",
            exits.CHECKPOINT,
        )
    if (begun := min(launches, default=0)) > 0:
        raise LaunchError(
            f"{recipe.run_dir} began after step {begun} of another run's checkpoint and has saved none: name that one "
            f"again with --resume PATH, or remove {recipe.run_dir} to start over.",
            exits.CHECKPOINT,
        )


def _continue(recipe: Recipe, checkpoint: Path) -> Start:
    """A resumed run validates only what its log lacks; it is complete if nothing at all remains to be done."""
    _require_parts(recipe, checkpoint, verify(checkpoint))
    trainer, step = recipe.config.trainer, step_of(checkpoint)
    settings = {"resume_mode": "resume_path", "resume_from_path": str(checkpoint)}
    elsewhere = checkpoint.parent.resolve() != recipe.checkpoints.resolve()
    if elsewhere and not trainer.val_only and step >= recipe.last_step:
        raise LaunchError(
            f"{checkpoint} is of step {step} and {recipe.name} ends with step {recipe.last_step}, so nothing would be "
            "trained: raise trainer.total_training_steps or total_epochs, or start only from its weights (seal "
            "export, actor_rollout_ref.model.path)."
        )
    origin = _origin(recipe, checkpoint) if elsewhere else recipe.run_dir
    changes = _changes(recipe, origin, step)
    if trainer.val_only or elsewhere:
        return Start(step, checkpoint=checkpoint, settings=settings)
    ended = step >= recipe.last_step
    asked = {change.key: change.after for change in changes}
    due = trainer.test_freq > 0 and (ended or step % trainer.test_freq == 0)
    lacking = asked.get("trainer.val_before_train", due) and not (recipe.folder.validations / f"{step}.jsonl").exists()
    if ended and not lacking:
        return Start(step, complete=True)
    settings |= {"val_before_train": bool(lacking), "val_only": bool(ended and lacking)}
    return Start(step, checkpoint=checkpoint, settings=settings, changes=tuple(f"{change}." for change in changes))


def _origin(recipe: Recipe, checkpoint: Path) -> Path:
    """The folder of the other run that saved a checkpoint: around its folder of checkpoints, or that of the owner."""
    owner = checkpoint.parent / OWNER
    named = recipe.run_dir.parent / owner.read_text(encoding="utf-8").strip() if owner.is_file() else None
    return named or checkpoint.parent.parent


def _require_parts(recipe: Recipe, checkpoint: Path, saved: Mapping[int, frozenset[str]]) -> None:
    """LaunchError for a checkpoint without what verl would load: the parts of as many processes, and their contents."""
    trainer, saving = recipe.config.trainer, "actor_rollout_ref.actor.checkpoint"
    processes = trainer.nnodes * trainer.n_gpus_per_node
    if saved and processes not in saved:
        raise LaunchError(
            f"{checkpoint} has the parts of {max(saved)} processes, but trainer.nnodes={trainer.nnodes} times "
            f"trainer.n_gpus_per_node={trainer.n_gpus_per_node} are {processes}: set them to that number."
        )
    lacking = sorted(
        set(OmegaConf.select(recipe.config, f"{saving}.load_contents")) & CONTENTS - saved.get(processes, frozenset())
    )
    if lacking:
        raise LaunchError(
            f"{checkpoint} was saved without {' and '.join(lacking)}: remove that from "
            f"{saving}.load_contents, or resume from another."
        )


def _changes(recipe: Recipe, origin: Path, step: int) -> list[Change]:
    """The settings that a run changes when it continues after `step`; none if no launch of the origin is known.

    origin: the folder of the run that saved the checkpoint. LaunchError for one of KEPT, and for other training tasks,
    such as those of a file with other contents; a validation depends only on the weights, and replaces none of others.
    """
    now, folder = recipe_facts(recipe), RunFolder(origin)
    launches = [*training_launches(folder, step or 1).values()]
    if not launches:
        return []
    before, trainer, own = launches[-1], recipe.config.trainer, origin == recipe.run_dir
    changes = compare(before["config"], now["config"], step)
    silent = {*recipe.silent}  # cues that showed nothing, which an older version counted
    changes = [each for each in changes if each.key != LEFT_OUT or not {*(each.before or ())} ^ {*each.after} <= silent]
    fix = "start only from its weights (seal export, actor_rollout_ref.model.path)"
    if own:
        fix = f"set another trainer.experiment_name{' with --resume PATH' if trainer.val_only and step else ''}"
    depended = WEIGHTS if trainer.val_only else (*KEPT, *(UNDER_WAY if trainer.v1.trainer_mode == "seal_async" else ()))
    for _, key, old, new in without_moves(changes, lambda: same_model(before, {"hashes": model_hashes(recipe)})):
        if any(key == kept or key.startswith(f"{kept}.") for kept in depended):
            raise LaunchError(
                f"{key} is {shown(new)}, but {origin} was trained with {shown(old)} to step {step}: set it back, "
                f"or {fix}."
            )
    side, block = ("validation", "val") if trainer.val_only else ("training", "train")
    counts = not trainer.val_only or (own and (folder.validations / f"{step}.jsonl").exists())  # it would be replaced
    if counts and before.get("rows", {}).get(side, now["rows"][side]) != now["rows"][side]:
        raise LaunchError(
            f"seal.data.{block} selects other tasks than {origin} had to step {step}: restore its files of tasks, or "
            f"{fix}."
        )
    return changes
