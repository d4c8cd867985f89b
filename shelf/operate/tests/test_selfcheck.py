"""An installation knows that it is whole."""

import re

from seal.system.paths import HOME


def test_the_selfcheck_finds_this_environment_ready(selfchecked):
    locked = re.search(r"^torch==([\d.]+)", (HOME / "requirements-cpu.txt").read_text(), re.MULTILINE)[1]
    assert selfchecked.returncode == 0, selfchecked.stdout + selfchecked.stderr
    assert f"ready: torch {locked}" in selfchecked.stdout
