"""Ctrl-C before a run trains: nothing that was started is left, one sentence says so, and the code is 130.

A run in a step saves and resumes: tests/faults.
"""

import signal
import time

import psutil
import pytest

from seal.system import exits
from tests.support.struck_run import experiment

PATIENCE_S = 120
STAGES = {
    "its packages are loaded": lambda run, launcher: has_loaded("pyarrow", launcher),
    "the recipe is checked": lambda run, launcher: has_loaded("aiohttp", launcher),
    "the service starts": lambda run, launcher: run.processes(launcher, "env_service"),
}


def has_loaded(package, launcher):
    return any(f"/{package}/" in each.path for each in psutil.Process(launcher.pid).memory_maps())


@pytest.mark.parametrize(("stage", "impatient"), [*zip(STAGES, (False, True, True), strict=True)])
def test_ctrl_c_leaves_no_process_and_says_one_sentence(stage, impatient):
    """impatient: it comes four times."""
    with experiment("test-attack-interrupt", ()) as run:
        launcher = run.start()
        run.wait_for(launcher, lambda: STAGES[stage](run, launcher), stage)
        family = run.family(launcher)
        for _ in range(4 if impatient else 1):
            if launcher.poll() is None:
                launcher.send_signal(signal.SIGINT)
            time.sleep(0.3 if impatient else 0)
        output, _ = launcher.communicate(timeout=PATIENCE_S)
        # Whoever presses it again while Python ends is answered by Python: 130 in a shell too.
        assert launcher.returncode in (exits.INTERRUPTED, *[-signal.SIGINT] * impatient), (launcher.returncode, output)
        assert output.count("interrupted") == 1 and "Traceback" not in output, output
        run.wait_gone(family, PATIENCE_S)
        assert run.leftovers() == [] and run.saved == 0
