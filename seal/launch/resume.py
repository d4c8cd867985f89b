"""Where a run starts: anew, from its last checkpoint, or from a named one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from seal import exits
from seal.launch.errors import LaunchError
from seal.paths import HOME
from seal.training.checkpoints import CheckpointError, last_step, repair_tracker, step_of, verify


@dataclass(frozen=True)
class Start:
    """The step after which a run goes on, 0 for the beginning.

    complete: nothing is left to do. notice: what was mended, for the user.
    """

    step: int
    complete: bool = False
    notice: str = ""


def prepare(config: DictConfig, mode: str, last: int) -> Start:
    """Set the recipe's resume keys for `--resume auto|never|PATH`, after reading the checkpoint through.

    last: the step with which the run ends. Raises LaunchError for a checkpoint that cannot be resumed from.
    """
    checkpoints = HOME / config.trainer.default_local_dir
    run_dir = HOME / config.seal.run_dir
    if mode == "never":
        if last_step(checkpoints) is not None or (run_dir / "seal_log" / "steps.jsonl").exists():
            raise LaunchError(
                f"{run_dir} holds a run already: remove it, set another trainer.experiment_name, or resume it with "
                "--resume auto."
            )
        config.trainer.resume_mode = "disable"
        return Start(0)
    if mode != "auto":
        return _from_path(config, Path(mode).resolve(), mode, last)
    step = last_step(checkpoints)
    if step is None:
        if any(checkpoints.glob("global_step_*")):
            raise LaunchError(
                f"{checkpoints} holds checkpoints and none of them is whole: remove {run_dir} to start over, or set "
                "another trainer.experiment_name.",
                exits.CHECKPOINT,
            )
        return Start(0)
    _require_whole(checkpoints / f"global_step_{step}")
    mended = repair_tracker(checkpoints, step)
    notice = f"the tracker in {checkpoints} was damaged; it names step {step}, the newest whole one, again"
    return Start(step, _go_on(config, step, last), notice if mended else "")


def _from_path(config: DictConfig, folder: Path, mode: str, last: int) -> Start:
    step = step_of(folder)
    if step is None or not folder.is_dir():
        raise LaunchError(f"--resume {mode} is no checkpoint: name a global_step_N folder, auto or never.")
    _require_whole(folder)
    config.trainer.resume_mode = "resume_path"
    config.trainer.resume_from_path = str(folder)
    if folder.parent != (HOME / config.trainer.default_local_dir).resolve():
        return Start(step)
    return Start(step, _go_on(config, step, last))


def _go_on(config: DictConfig, step: int, last: int) -> bool:
    """Have a resumed run validate only what its log lacks; True when nothing at all is left to do."""
    trainer = config.trainer
    ended = step >= last
    due = trainer.test_freq > 0 and (ended or step % trainer.test_freq == 0)
    lacking = due and not (HOME / config.seal.run_dir / "validation_log" / f"{step}.jsonl").exists()
    if trainer.val_only:
        return False
    trainer.val_before_train = bool(lacking)
    trainer.val_only = bool(ended and lacking)
    return bool(ended and not lacking)


def _require_whole(checkpoint: Path) -> None:
    try:
        verify(checkpoint)
    except CheckpointError as error:
        raise LaunchError(str(error), exits.CHECKPOINT) from error
