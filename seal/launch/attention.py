"""Which attention a CUDA run trains with: flash-attn where it works, else torch's own.

flash-attn is compiled for one torch, one CUDA and one Python, so that it is
often missing. verl 0.9.1 needs it for nothing but speed: packed batches
(`use_remove_padding`) also work with `sdpa`, which tells the dialogues of a
micro-batch apart by their positions and takes time and memory that grow with
the square of the packed length.
"""

from __future__ import annotations

import subprocess
import sys

from omegaconf import DictConfig, OmegaConf

from seal.launch.errors import LaunchError

KEY = "actor_rollout_ref.model.override_config.attn_implementation"
FLASH, FALLBACK = "flash_attention_2", "sdpa"
IMPORT_DEADLINE_S = 120


def flash_attn_problem() -> str | None:
    """Why flash-attn cannot be used, as a sentence; None where it imports.

    In a process of its own: a package that was built for another torch can end
    the one that imports it.
    """
    command = [sys.executable, "-c", "import flash_attn, flash_attn.bert_padding, flash_attn_2_cuda"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"flash-attn did not import within {IMPORT_DEADLINE_S} s."
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    return f"flash-attn cannot be imported ({said[-1] if said else f'exit code {done.returncode}'})."


def fall_back(config: DictConfig) -> str | None:
    """Set a CUDA recipe that asks for flash-attn to `sdpa` where that is missing; returns the warning, or None.

    Raises LaunchError where sequence parallelism is asked for, which verl splits in flash-attn's kernels alone.
    """
    if config.trainer.device != "cuda" or OmegaConf.select(config, KEY, default=FLASH) != FLASH:
        return None
    problem = flash_attn_problem()
    if problem is None:
        return None
    parallel = config.actor_rollout_ref.actor.ulysses_sequence_parallel_size
    if parallel > 1:
        raise LaunchError(
            f"{problem} actor_rollout_ref.actor.ulysses_sequence_parallel_size={parallel} cannot do without it: "
            "install it with `python -m seal.launch.flash_attn`, or set that key to 1."
        )
    OmegaConf.update(config, KEY, FALLBACK, force_add=True)
    return (
        f"{problem} Attention falls back to {FALLBACK}, which is slower on long packed batches; install flash-attn "
        f"with `python -m seal.launch.flash_attn`, or set {KEY}={FALLBACK} to ask for that."
    )
