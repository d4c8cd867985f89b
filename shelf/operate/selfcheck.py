"""`python -m shelf.operate.selfcheck`: imports what a run needs and checks that everything is registered.

The installed torch decides which run is checked: a torch built without CUDA means the CPU path.
"""

import importlib
import importlib.util
import os
import sys
from importlib.metadata import version

from rich.console import Console
from rich.markup import escape

NEEDED = ("torch", "ray", "transfer_queue", "verl", "vllm", "bfcl_eval", "fastapi", "env_service", "seal")
PROCESSES = (
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "vllm.v1.engine.core",
    "seal.training.async_trainer",
    "seal.rollout.agent_loop",
)
"""Modules that the processes of a run import; importing them here first compiles them once, not in each process."""
UNWANTED = ("torchvision", "torchaudio", "torchcodec", "triton")


def built_for() -> str:
    """`cuda` or `cpu`: the target for which the installed torch was built; `cpu` without torch."""
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cpu" if torch.version.cuda is None else "cuda"


def problems(target: str) -> list[str]:
    """One sentence per problem; empty if a run on `target` (cpu or cuda) can start."""
    found = []
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            found.append(f"{name} cannot be imported ({error}); run `bash install.sh --{target}` again.")
    if target == "cpu":
        found += [
            f"{name} is installed and fails to import beside the CPU build of torch; remove it: pip uninstall {name}."
            for name in UNWANTED
            if importlib.util.find_spec(name) is not None
        ]
    if found:
        return found
    from seal.training.main import check_registrations

    check_registrations()
    import torch

    if target == "cpu":
        from seal.backends import cpu_engine  # noqa: F401  registers itself or raises
    if target == "cpu" or torch.cuda.is_available():
        for name in PROCESSES:
            importlib.import_module(name)
    return found


def main() -> int:
    """Print what is installed or what is wrong; exit code 1 if something is wrong."""
    target = built_for()
    if target == "cpu":
        os.environ.setdefault("VERL_PLATFORM", "cpu")
        os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    console = Console(emoji=False)
    wrong = problems(target)
    for sentence in wrong:
        console.print(f"[red]error:[/red] {escape(sentence)}", soft_wrap=True)
    if not wrong:
        packages = "  ".join(f"{name} {version(name)}" for name in ("torch", "verl", "vllm", "ray", "bfcl-eval"))
        console.print(f"ready: {packages}", highlight=False)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
