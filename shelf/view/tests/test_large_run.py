"""A long run fits a laptop: the memory of its overview and its report does not follow the size of its logs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seal.records.folder import RunFolder
from shelf.view.tests.viewer.played_run import write_run

STEPS, COPIES, ROLLOUTS = 24, 32, 18_432
MOST_MB = 150
"""Megabytes that such a run may take beyond a small one."""
VIEW = """
import sys
from pathlib import Path
from shelf.view.runs import find_runs
from shelf.view.viewed import Viewed
viewed = Viewed(find_runs(sys.argv[1:], Path())[0])
viewed.index.update()
shown = viewed.overview(), viewed.validation(), viewed.listed()
"""
REPORT = """
import sys
from seal.cli.main import execute, load
assert execute(load("report"), sys.argv[1:], "seal report") == 0
"""
PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"


def peak_mb(program: str, run: Path) -> int:
    done = subprocess.run([sys.executable, "-c", program + PEAK, str(run)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_memory_does_not_follow_the_size_of_the_logs(tmp_path):
    small = write_run(tmp_path / "small", STEPS)
    large = Path(shutil.copytree(small, tmp_path / "large"))
    written = size = 0
    for path in RunFolder(large).trajectories.glob("*.jsonl"):
        values = [json.loads(line) for line in path.read_text().splitlines()]
        with path.open("w") as stream:
            for copy in range(COPIES):
                stream.writelines(json.dumps({**each, "sample": each["sample"] + 8 * copy}) + "\n" for each in values)
        written, size = written + COPIES * len(values), size + path.stat().st_size
    assert written == ROLLOUTS and size > 250e6
    for program in (VIEW, REPORT):
        assert peak_mb(program, large) < peak_mb(program, small) + MOST_MB
