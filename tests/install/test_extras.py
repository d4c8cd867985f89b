"""The package's extras say what the locks hold, and the service loads no engine."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from seal.system.paths import HOME

PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVICE = HOME / "env_service" / "environments" / "bfcl" / "requirements.txt"
ENGINES = ("torch", "verl", "vllm", "ray", "transformers", "numpy", "gymnasium")


def named(lines: list[str]) -> dict[str, Requirement]:
    found = [Requirement(line.split("#")[0]) for line in lines if line.split("#")[0].strip() and line[:2] != "-r"]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_locked_versions_are_those_that_the_package_allows():
    locked = {name: next(iter(pin.specifier)).version for name, pin in named(lines(HOME / "requirements.txt")).items()}
    allowed = named(PROJECT["dependencies"])
    for name, requirement in allowed.items():
        assert requirement.specifier.contains(locked[name]), f"{requirement} is locked as {locked[name]}"


def test_the_package_allows_what_the_service_s_requirements_file_pins():
    allowed = named(PROJECT["dependencies"])
    pinned = named(lines(SERVICE))
    assert pinned.keys() <= allowed.keys()
    for name, pin in pinned.items():
        assert allowed[name].specifier.contains(next(iter(pin.specifier)).version), name


def test_the_extra_train_asks_for_what_requirements_in_does():
    asked = named(lines(HOME / "requirements.in"))
    for name, requirement in named(PROJECT["optional-dependencies"]["train"]).items():
        if name != "seal-rl":
            assert requirement.specifier == asked[name].specifier and requirement.extras == asked[name].extras


def test_the_service_starts_without_engines():
    """Every module that `seal serve` and its workers import, with the engines made impossible to import."""
    script = f"""
import sys
sys.modules.update(dict.fromkeys({ENGINES!r}))  # None: importing it raises ImportError
from seal.cli.main import app, load
import env_service.__main__, env_service.app, env_service.worker_main, env_service.client, env_service.local_service
from env_service.environments.registry import get_environment
from env_service.environments.base import Guard
opened = get_environment("bfcl").open("multi_turn_base_0", {{}}, Guard())
assert opened.start()["state"] and not opened.step("Done.", False)["is_terminated"]
sys.argv[1:] = ["serve", "--help"]
from seal.cli.main import main
sys.exit(main())
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "--port" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "blocked", "extra"),
    [(["plan", "exp/quickstart.yaml"], "hydra", "train"), (["train", "exp/quickstart.yaml"], "omegaconf", "train")],
)
def test_a_command_whose_packages_are_missing_names_their_extra(arguments: list[str], blocked: str, extra: str):
    script = f"import sys; sys.modules[{blocked!r}] = None; sys.argv[1:] = {arguments!r}; "
    script += "from seal.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=HOME, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"seal {arguments[0]}: {blocked} is not installed: pip install 'seal-rl[{extra}]'.\n"
