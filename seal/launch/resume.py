"""Where a run starts: anew, from its last checkpoint, or from a named one."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from seal.launch.errors import LaunchError
from seal.launch.recipe import HOME

TRACKER = "latest_checkpointed_iteration.txt"


def prepare(config: DictConfig, mode: str) -> bool:
    """Set the recipe's resume keys for `--resume auto|never|PATH`; False when the run is complete already."""
    checkpoints = HOME / config.trainer.default_local_dir
    run_dir = HOME / config.seal.run_dir
    if mode == "never":
        if last_step(checkpoints) is not None or (run_dir / "seal_log" / "steps.jsonl").exists():
            raise LaunchError(
                f"{run_dir} holds a run already: remove it, set another trainer.experiment_name, or resume it with "
                "--resume auto."
            )
        config.trainer.resume_mode = "disable"
        return True
    if mode != "auto":
        folder = Path(mode).resolve()
        if not folder.is_dir() or not folder.name.startswith("global_step_"):
            raise LaunchError(f"--resume {mode} is no checkpoint: name a global_step_N folder, auto or never.")
        config.trainer.resume_mode = "resume_path"
        config.trainer.resume_from_path = str(folder)
        return True
    last = last_step(checkpoints)
    if last is None:
        return True
    if config.trainer.total_training_steps and last >= config.trainer.total_training_steps:
        return config.trainer.val_only
    # Its first validation is in the log already; the resumed run goes on from there.
    config.trainer.val_before_train = not (run_dir / "validation_log" / "0.jsonl").exists() or config.trainer.val_only
    return True


def last_step(checkpoints: Path) -> int | None:
    """The step that the checkpoint tracker names, or None without one; LaunchError when it is damaged."""
    tracker = checkpoints / TRACKER
    if not tracker.is_file():
        return None
    text = tracker.read_text(encoding="utf-8").strip()
    if not text.isdigit() or not (checkpoints / f"global_step_{text}").is_dir():
        raise LaunchError(
            f"{tracker} names step {text!r}, of which there is no checkpoint: write the number of an existing "
            "global_step_N folder into it, or remove it to start over."
        )
    return int(text)
