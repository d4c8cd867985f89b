"""An installation knows that it is whole."""

import re
import subprocess
import sys

from seal.system.paths import HOME


def test_the_selfcheck_finds_this_environment_ready():
    done = subprocess.run(
        [sys.executable, "-m", "shelf.operate.selfcheck"],
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    locked = re.search(r"^torch==([\d.]+)", (HOME / "requirements-cpu.txt").read_text(), re.MULTILINE)[1]
    assert done.returncode == 0 and f"ready: torch {locked}" in done.stdout, done.stdout + done.stderr
