"""The table in docs/reliability.md is current."""

import subprocess
import sys

from tests.support.generated import HOME


def test_the_documented_table_is_current():
    command = [sys.executable, "-m", "tests.faults.table", "--check"]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"run `python -m tests.faults.table`: {done.stdout}{done.stderr}"
