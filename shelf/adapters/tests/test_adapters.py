"""Each adapter in an environment of its own, tried with its framework's own loop over a running service.

The adapters' tests lie beside them, because what they import conflicts with the locks.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from env_service.environments.bfcl.environment import BfclEnvironment
from seal.system.paths import HOME
from shelf.adapters.tests.script import script
from tests.support.installed import Environment, uv

pytestmark = pytest.mark.slow

ADAPTERS = HOME / "shelf" / "adapters"
TRL = ("trl==1.16.0", "accelerate", "datasets", "multiprocess", "dill", "xxhash")
"""Packages that trl needs and this environment lacks."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that runs in this environment."""
    from env_service.local_service import address

    yield address(None)


@pytest.mark.parametrize("name", ["openenv", "verifiers"])
def test_the_framework_s_own_loop_plays_episodes(
    name: str, service: str, environment: Callable[[str], Environment], tmp_path: Path
):
    installed = environment("")
    installed.install(f"{ADAPTERS / name}[test]")
    scripts = tmp_path / "script.json"
    scripts.write_text(json.dumps(script()))
    run_tests(name, installed.python, tmp_path, PYTHONPATH="", SEAL_URL=service, SEAL_SCRIPT=str(scripts))


def test_trl_s_trainer_trains(service: str, package_index: None, tmp_path: Path):
    """Beside the packages of this environment, torch among them, which trl takes as they are."""
    installed = Environment(tmp_path / "venv")
    uv("venv", "--quiet", "--python", sys.executable, installed.folder)
    (site,) = installed.folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"))
    installed.install("--no-deps", *TRL, str(ADAPTERS / "trl"))
    policy = str(HOME / "data" / "quickstart_policy")
    run_tests("trl", installed.python, tmp_path, PYTHONPATH=str(HOME), SEAL_URL=service, SEAL_POLICY=policy)


def test_the_official_client_plays_an_episode_of_the_installed_mcp_server(
    service: str, environment: Callable[[str], Environment], tmp_path: Path
):
    installed, task, result = environment(""), "multi_turn_base_1", tmp_path / "result.json"
    installed.install(str(ADAPTERS / "mcp"))
    command, arguments = str(installed.python.with_name("seal-mcp")), ["--task", task, "--url", service]

    async def play() -> None:
        server = StdioServerParameters(command=command, args=[*arguments, "--out", str(result)])
        async with Client(server) as client:
            await client.call_tool("next_user_message")
            for calls in BfclEnvironment().reference(task):
                for call in calls:
                    await client.call_tool(*call)
                await client.call_tool("next_user_message", {"answer": "Done."})

    anyio.run(play)
    assert json.loads(result.read_text())["reward"] == 1.0


def run_tests(name: str, python: Path, folder: Path, **variables: str) -> None:
    """Run the adapter's own tests in its environment."""
    done = subprocess.run(
        # The repository's conftest needs packages that the adapter's environment lacks.
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--confcutdir",
            ADAPTERS / name,
            ADAPTERS / name / "tests",
        ],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
