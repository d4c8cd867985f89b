"""Runs of the real launcher: the real service, Ray, verl, vLLM and the committed policy."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
import requests
from rich.console import Console

from seal.launch.run import Request, find_services, prepare
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.net import free_port
from tests.support.processes import commands, runs

HOME = Path(__file__).resolve().parents[2]
START_DEADLINE_S, SEEN_S = 600, 5


def free_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


def plays_episodes(url: str) -> bool:
    """Return whether a service plays an episode that has answered a message: one without any has nothing to rebuild."""
    try:
        figures = requests.get(f"{url}/metrics", timeout=5).text
    except requests.RequestException:
        return False
    return "env_service_messages_kept 0\n" not in figures


def service_process(parent: int, port: int) -> psutil.Process:
    """The service at a port among the processes that descend from one, not its workers."""
    return next(
        child
        for child, command, environment in commands(psutil.Process(parent).children(recursive=True))
        if command[-2:] == ["-m", "env_service"] and environment.get("BFCL_PORT") == str(port)
    )


def launch(*arguments: str) -> subprocess.CompletedProcess:
    """A launch that is over within seconds."""
    command = [sys.executable, "launcher.py", *arguments]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120, check=False)


def refused(*overrides: str, with_service: bool = False) -> str:
    """The one sentence with which a launch of the quickstart is refused, in this process; it must leave nothing."""
    name = f"test-{uuid4().hex[:8]}"
    run_dir, record = HOME / "experiments" / name, HOME / "launcher_record" / name
    request = Request(HOME / "exp" / "quickstart.yaml", (f"trainer.experiment_name={name}", *overrides), with_service)
    try:
        with pytest.raises(LaunchError) as error, prepare(request, Console(quiet=True)) as run:
            find_services(run, request)
        assert error.value.code == exits.REFUSED and "\n" not in str(error.value)
        assert not record.exists() and not run_dir.exists()
        return str(error.value)
    finally:
        for folder in (run_dir, record):
            shutil.rmtree(folder, ignore_errors=True)


def one_error(done: subprocess.CompletedProcess) -> str:
    """The only error that a refused launch tells."""
    assert done.returncode == exits.REFUSED, done.stdout + done.stderr
    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in done.stdout
    return errors[0]


SHORT = (
    "seal.data.train={categories: [base], prefix_turns: [1], mixture: []}",
    "seal.data.withdrawal=null",
    "actor_rollout_ref.rollout.val_kwargs={n: 1, temperature: 0.0, do_sample: false}",
    "trainer.n_gpus_per_node=1",
    "seal.logprob_check_every=1",
)
"""The short tasks of the quickstart's band, validated once and greedily; one process that checks every step."""


@dataclass
class Run:
    """One experiment folder and the launches in it.

    loggers: where it logs to beside its own files; None leaves the recipe's.
    recipe: the file that its launches name.
    """

    name: str
    overrides: tuple[str, ...]
    prefix: tuple[str, ...] = ()
    with_service: bool = True
    loggers: str | None = "[console]"
    port: int = field(default_factory=free_port)
    recipe: str = "exp/quickstart.yaml"

    @property
    def folder(self) -> Path:
        return HOME / "experiments" / self.name

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def saved(self) -> int:
        """The step that a resumed run would go on from; 0 without a checkpoint."""
        tracker = self.checkpoints / "latest_checkpointed_iteration.txt"
        return int(tracker.read_text()) if tracker.exists() else 0

    @property
    def logged(self) -> list[int]:
        return [step["step"] for step in self.lines("seal_log/steps.jsonl")]

    @property
    def stage(self) -> tuple[str, int]:
        """The run's present stage and step."""
        stages = self.lines("seal_log/stages.jsonl")
        return (stages[-1]["stage"], stages[-1]["step"]) if stages else ("", 0)

    def reached(self, stage: str, step: int, since: float) -> bool:
        """Return whether the launch started at `since` is in this stage of this step or a later one."""
        stages = self.lines("seal_log/stages.jsonl")
        last = stages[-1] if stages else {"time": 0.0}
        return last["time"] > since and last["stage"] == stage and last["step"] >= step

    def command(self, *extra: str, options: tuple[str, ...] = ()) -> list[str]:
        """A launch of the run; extra: overrides, options: the launcher's own."""
        own = (
            *SHORT,
            f"trainer.experiment_name={self.name}",
            f"env_service.env_url=http://127.0.0.1:{self.port}",
            *((f"trainer.logger={self.loggers}",) if self.loggers else ()),
        )
        service = ("--with-service",) if self.with_service else ()
        return [
            *(*self.prefix, sys.executable, "launcher.py"),
            *("--conf", self.recipe, *options, *service, "--", *own, *self.overrides, *extra),
        ]

    def start(self, *extra: str, options: tuple[str, ...] = ()) -> subprocess.Popen:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = self.command(*extra, options=options)
        return subprocess.Popen(command, cwd=HOME, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(
        self, *extra: str, options: tuple[str, ...] = (), deadline_s: float = START_DEADLINE_S
    ) -> subprocess.CompletedProcess:
        process = self.start(*extra, options=options)
        try:
            output, _ = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # it stops what it started
            process.communicate(timeout=90)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def lines(self, relative: str) -> list[dict]:
        path = self.folder / relative
        if not path.exists():
            return []
        # The last line may be under way.
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, process: subprocess.Popen, condition, what: str, pause_s: float = 0.1) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not condition():
            if process.poll() is not None:
                raise AssertionError(f"the launcher ended before {what}: {process.stdout.read()}")
            if time.monotonic() > deadline:
                process.kill()
                raise AssertionError(f"no {what} within {START_DEADLINE_S} s")
            time.sleep(pause_s)

    def process(self, launcher: subprocess.Popen, title: str) -> psutil.Process:
        """The process of a running launch whose title or command line holds `title`, which may show it late."""
        deadline = time.monotonic() + SEEN_S
        while not (found := self.processes(launcher, title)):
            assert time.monotonic() < deadline, f"no process {title}"
            time.sleep(0.05)
        return found[0]

    def processes(self, launcher: subprocess.Popen, title: str) -> list[psutil.Process]:
        """All such processes; none while they are not started yet."""
        found = []
        for process in psutil.Process(launcher.pid).children(recursive=True):
            try:
                if title in " ".join(process.cmdline()) or title in process.name():
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def service(self, launcher: subprocess.Popen) -> psutil.Process:
        """The service that a running launch has started, not its workers."""
        return service_process(launcher.pid, self.port)

    def family(self, launcher: subprocess.Popen) -> list[psutil.Process]:
        """Everything that a running launch has started."""
        return psutil.Process(launcher.pid).children(recursive=True)

    def wait_gone(self, family: list[psutil.Process], deadline_s: float) -> None:
        """Wait until none of these processes is left."""
        _, alive = psutil.wait_procs(family, timeout=deadline_s)
        alive = [process for process in alive if runs(process.pid)]
        assert not alive, alive

    def leftovers(self) -> list[str]:
        """Processes of this run that still live: the service by its port, the trainer by its record."""
        found = []
        for _, words, environment in commands(psutil.process_iter()):
            command = " ".join(words)
            mine = self.name in command or self.name in environment.get("TENSORBOARD_DIR", "")
            if mine or environment.get("BFCL_PORT") == str(self.port):
                found.append(command)
        return found
