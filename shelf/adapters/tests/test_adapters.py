"""Each adapter in an environment of its own, tried with its framework's own loop over a running service.

The adapters' tests lie beside them, because what they import conflicts with the locks.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seal.system.paths import HOME
from shelf.adapters.tests.script import script
from tests.support.installed import Environment

pytestmark = pytest.mark.slow

ADAPTERS = HOME / "shelf" / "adapters"


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
    done = subprocess.run(
        [installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ADAPTERS / name / "tests")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "", "SEAL_URL": service, "SEAL_SCRIPT": str(scripts)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
