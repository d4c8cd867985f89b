"""A launch names what blocks it, and is not blocked by what only looks like an obstacle."""

import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from fcntl import ioctl

import psutil
import pytest

from env_service.protocol import PROTOCOL
from seal.launch.folder import hold
from seal.launch.service import Needs, find_running
from seal.launch.signals import Interrupt
from seal.records.folder import RunFolder
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from tests.support.launches import free_url, refused
from tests.support.stub_server import service_that_answers

HOLD = """
import sys, time
from seal.launch.folder import hold
from seal.records.folder import RunFolder
with hold(RunFolder(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other_launcher(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=HOME, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.fault(
    event="A second launcher in the same experiment folder",
    user_sees="FOLDER is in use by the launcher with process N on HOST since TIME",
    outcome="the second ends with code 1, the first goes on",
)
def test_a_folder_in_use(other_launcher, tmp_path):
    error = refused(f"seal.run_dir={tmp_path}", f"env_service.env_url={free_url()}", with_service=True)
    assert re.search(rf"process {other_launcher.pid} on \S+ since .*experiment_name", error)
    assert list(tmp_path.iterdir()) == [RunFolder(tmp_path).lock] and other_launcher.poll() is None


def test_the_lock_of_a_killed_launcher_does_not_block(other_launcher, tmp_path):
    other_launcher.kill()
    other_launcher.wait()
    assert json.loads(RunFolder(tmp_path).lock.read_text())["pid"] == other_launcher.pid
    with hold(RunFolder(tmp_path)):
        pass


def test_what_a_launcher_started_ends_when_it_is_killed(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from seal.system.processes import start; "
        "here = Path(sys.argv[1]); started = start(['sleep', '60'], log=here / 'log', cwd=here, env={}); "
        "print(started.pid, flush=True); time.sleep(60)"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=HOME, stdout=subprocess.PIPE, text=True
    )
    started = psutil.Process(int(launcher.stdout.readline()))
    launcher.kill()
    launcher.wait()
    _, alive = psutil.wait_procs([started], timeout=20)
    assert not alive


def test_what_a_killed_launcher_left_running_is_waited_for(tmp_path):
    with hold(RunFolder(tmp_path)) as lock:
        left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    holder = {"pid": left.pid, "host": json.loads(RunFolder(tmp_path).lock.read_text())["host"], "since": "then"}
    try:
        with pytest.raises(LaunchError, match="is in use"), hold(RunFolder(tmp_path)):
            pass
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        RunFolder(tmp_path).lock.write_text(json.dumps({**holder, "pid": gone.pid}))
        with pytest.raises(LaunchError, match="still ending: start again in a few seconds"), hold(RunFolder(tmp_path)):
            pass
    finally:
        left.communicate(b"\n")
    with hold(RunFolder(tmp_path)):
        pass


@pytest.mark.fault(
    event="The service at env_service.env_url is of another protocol or over other benchmark data",
    user_sees="The environment service at URL plays bfcl with data_hash A, and here it is B",
    outcome="nothing starts; code 1",
)
@pytest.mark.parametrize(
    ("change", "named"),
    [({"protocol": 99}, "with protocol 99"), ({"data_hash": "0" * 64}, "with data_hash 000000000000")],
)
def test_a_service_of_another_version(change, named):
    package = json.loads((HOME / "data" / "manifest.json").read_text())["package"]
    ours = {"protocol": PROTOCOL, "data_hash": package["data_hash"], "bfcl_eval": package["version"]}
    with service_that_answers(**ours) as url:
        find_running([url], Needs(("bfcl",)))
    with service_that_answers(**{**ours, **change}) as url:
        error = refused(f"env_service.env_url={url}")
    assert named in error and "env_service.env_url" in error


@pytest.fixture
def interrupt():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    made = Interrupt()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_before_training_ends_the_launch_at_once(interrupt, signum, code):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signum)
    assert interrupt.exit_code == code


def test_the_first_signal_asks_and_the_second_ctrl_c_does_not_wait(interrupt, tmp_path):
    request, said = tmp_path / "stop", []
    interrupt.deferred = True
    interrupt.forward(request, 60, True, said.append)
    assert not request.exists()
    signal.raise_signal(signal.SIGTERM)
    interrupt.forward(request, 60, True, said.append)
    interrupt.forward(request, 60, True, said.append)
    assert request.exists() and len(said) == 1 and "60 s" in said[0]
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert interrupt.exit_code == 143


@pytest.mark.fault(
    event="Ctrl-C or SIGTERM, and the trainer does not come to save within seal.stop_grace_s",
    user_sees="no checkpoint was saved within seal.stop_grace_s=N s",
    outcome="everything is ended (code 130 or 143); the next launch resumes from the last checkpoint",
)
def test_the_grace_ends(interrupt, tmp_path):
    said = []
    interrupt.deferred = True
    signal.raise_signal(signal.SIGINT)
    interrupt.forward(tmp_path / "stop", 0, True, said.append)
    with pytest.raises(KeyboardInterrupt):
        interrupt.forward(tmp_path / "stop", -1, True, said.append)
    assert "seal.stop_grace_s" in said[-1]


def test_without_anything_to_save_the_first_signal_ends_the_launch(interrupt, tmp_path):
    interrupt.deferred = True
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt.forward(tmp_path / "stop", 60, False, lambda _: None)
    assert not (tmp_path / "stop").exists()


TRAINS = """
import sys, time
from functools import partial
from pathlib import Path
from seal.cli.train import console
from seal.launch.console import tell
from seal.launch.signals import Interrupt
interrupt, out, folder = Interrupt(), console(), Path(sys.argv[1])
interrupt.install()
interrupt.deferred = True
(folder / "trains").touch()
while not (folder / "closed").exists():
    time.sleep(0.01)
interrupt.forward(folder / "stop", 60, True, partial(tell, out))
tell(out, "a step has ended")
sys.exit(interrupt.exit_code if interrupt.signum else 0)
"""


@pytest.mark.fault(
    event="The terminal of a run is closed, or its connection is lost",
    user_sees="nothing; with `nohup` the run goes on",
    outcome="a checkpoint of the last finished step is saved; code 129; the next launch resumes there",
)
@pytest.mark.parametrize(("answer", "code"), [(signal.SIG_DFL, 129), (signal.SIG_IGN, 0)])
def test_a_closed_terminal_asks_for_a_checkpoint_and_takes_no_words(tmp_path, answer, code):
    ours, terminal = os.openpty()

    def prepare():
        ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, answer)  # as the shell or nohup leaves it

    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", TRAINS, str(tmp_path)],
            cwd=HOME,
            stdin=terminal,
            stdout=terminal,
            stderr=said,
            start_new_session=True,
            preexec_fn=prepare,
        )
    os.close(terminal)
    while not (tmp_path / "trains").exists():
        assert process.poll() is None, (tmp_path / "said").read_text()
        time.sleep(0.01)
    os.close(ours)
    (tmp_path / "closed").touch()
    assert process.wait(60) == code, (tmp_path / "said").read_text()
    assert (tmp_path / "stop").exists() == (code == 129)
