"""`python -m seal.launch.flash_attn`: installs flash-attn for the torch that is installed.

A prebuilt wheel first: one that the user names (FLASH_ATTN_WHEEL), then the one
of the project's release page for this torch, CUDA, C++ ABI and Python. Where
neither fits it is built from source, which needs the CUDA compiler and can take
an hour. With --wheels both come from that folder and nothing from the network.
Where that fails too, SEAL runs without it: see `seal.launch.attention`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.console import Console

from seal.launch.attention import flash_attn_problem
from seal.launch.wheel import VERSION, Build

GIB_A_COMPILER = 9
"""Memory that one compiler of the build can take, as flash-attn's own setup.py reckons."""
BUILD_DEADLINE_S = 4 * 3600
WHEEL_DEADLINE_S = 1800
BUILD_LOG = Path(__file__).resolve().parents[2] / "build" / "flash_attn.log"


def compilers(cores: int, free_bytes: int) -> int:
    """How many compilers may run at a time within the free memory."""
    return max(1, min(cores, free_bytes // (GIB_A_COMPILER << 30)))


def has_nvcc() -> bool:
    """Whether the CUDA compiler is where torch looks for it."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return any(shutil.which("nvcc", path=path) for path in (None, *(f"{home}/bin" for home in homes if home)))


def install(wheels: str | None, console: Console) -> bool:
    """Install flash-attn by the first way that gives a package that imports; False where none does."""
    if flash_attn_problem() is None:
        console.print(f"flash-attn {_version()} is installed", highlight=False)
        return True
    for name, arguments, jobs in ways(wheels):
        console.print(f"flash-attn from {name}", highlight=False, soft_wrap=True)
        problem = _pip(arguments, jobs) or flash_attn_problem()
        if problem is None:
            console.print(f"flash-attn {_version()} is installed", highlight=False)
            return True
        console.print(f"  not there: {problem}", highlight=False, soft_wrap=True, markup=False)
        _uninstall()
    if not has_nvcc():
        console.print("  its source cannot be built here: no nvcc is found and CUDA_HOME is not set", highlight=False)
    return False


def ways(wheels: str | None) -> list[tuple[str, Sequence[str], int]]:
    """In words, pip's arguments and the compilers at a time (0: nothing is compiled) of each way, in order.

    Raises RuntimeError where MAX_JOBS is no number, or torch was built without CUDA.
    """
    own = os.environ.get("FLASH_ATTN_WHEEL")
    found: list[tuple[str, Sequence[str], int]] = [(own, [own], 0)] if own else []
    package, place = [f"flash-attn=={VERSION}"], "its source"
    if wheels:
        package += ["--no-index", "--find-links", wheels]
        place = f"its source in the folder {wheels}"
        found.append((f"a wheel in the folder {wheels}", [*package, "--only-binary", "flash-attn"], 0))
    else:
        url = Build.installed().url()
        found.append((url, [url], 0))
    if has_nvcc():
        asked = os.environ.get("MAX_JOBS") or str(compilers(os.cpu_count() or 1, psutil.virtual_memory().available))
        if not asked.isdigit() or (jobs := int(asked)) == 0:
            raise RuntimeError(f"MAX_JOBS={asked} is no number of compilers: set it to 1 or more, or unset it.")
        source = [*package, "--no-build-isolation", "--no-binary", "flash-attn"]
        found.append((f"{place}, {jobs} compilers at a time (MAX_JOBS)", source, jobs))
    return found


def _pip(arguments: Sequence[str], jobs: int) -> str | None:
    """Run pip install; its first complaint, or None."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", *arguments]
    environment = dict(os.environ)
    if jobs:
        # Forced, as it would look for a wheel on the release page once more; pip's cache may hold another torch's.
        environment |= {"MAX_JOBS": str(jobs), "FLASH_ATTENTION_FORCE_BUILD": "TRUE"}
        command += ["--no-cache-dir", "--log", str(BUILD_LOG)]
    deadline = BUILD_DEADLINE_S if jobs else WHEEL_DEADLINE_S
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=deadline, check=False)
    except subprocess.TimeoutExpired:
        return f"it was not done within {deadline // 60} minutes"
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
    return f"{errors[0]} (log: {BUILD_LOG})" if jobs else errors[0]


def _uninstall() -> None:
    """Remove a package that installed and does not import: verl and transformers would try to use it."""
    command = [sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", "flash-attn"]
    subprocess.run(command, capture_output=True, timeout=WHEEL_DEADLINE_S, check=False)


def _version() -> str:
    from importlib.metadata import version

    return version("flash-attn")


def main() -> int:
    """Install and say how it went; 0 also where SEAL has to run without it, 1 where it cannot be tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", metavar="DIR", help="take it from this folder and nothing from the network")
    console = Console()
    try:
        if not install(parser.parse_args().wheels, console):
            console.print(
                "[yellow]warning:[/yellow] flash-attn is not installed. Training uses torch's own attention (sdpa) "
                "instead: correct, and slower the more tokens are packed into a micro-batch. FLASH_ATTN_WHEEL names a "
                "wheel of your own.",
                highlight=False,
                soft_wrap=True,
            )
    except RuntimeError as error:
        console.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
