"""Runs what a matrix lacks: each run is a launch of its own, resumed where it was interrupted."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.lock import CannotLock, Holder, Locked, lock
from seal.system.net import free_port
from seal.system.paths import HOME
from seal.system.processes import start, stop_tree
from seal.system.text import last_line
from shelf.lab.experiment.arms import ComposedArm, record_configuration, require_unchanged
from shelf.lab.experiment.collect import (
    Attempt,
    certify,
    collect,
    collect_finished,
    drop,
    held,
    is_whole,
    write_results,
)
from shelf.lab.experiment.matrix import Cell, Experiment
from shelf.lab.experiment.registration import Registration

POLL_S = 0.5
LAUNCHER = (sys.executable, str(HOME / "launcher.py"))
STARTS = 3
"""How often a run is started in one session if infrastructure ends it, or a signal."""
STARTS_BY_CODE = {exits.REFUSED: 1, exits.USAGE: 1, exits.CHECKPOINT: 1, exits.FAILED: 2}
"""How often if it ends with one of these codes. An error may still be a machine under load, once."""
FAILURES = 3
"""After so many failed runs in a row no further run is started: they share a cause."""
ENDING_S = 900
"""Seconds that the runs of an interrupted experiment have to end before a new session gives up."""
SILENT_S = 900
"""Seconds without output, beyond a run's own deadline, after which its launcher counts as hung."""
STOP_S = 120
"""Seconds that a launcher has to end beyond the time that its trainer has to save."""


class Job(NamedTuple):
    """How runs are started: the launcher's command, how many at a time, and the GPUs that they share ("" each: all).

    only: the arms to run; () runs all.
    """

    launcher: Sequence[str] = LAUNCHER
    jobs: int = 1
    devices: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


@dataclass
class Session:
    """How a session ended: the runs that finished in it, those that failed and why, and the signal that ended it."""

    finished: list[Cell] = field(default_factory=list)
    failed: dict[Cell, str] = field(default_factory=dict)
    missing: int = 0
    signum: int | None = None

    @property
    def code(self) -> int:
        """The exit code of the command."""
        if self.signum:
            return 128 + self.signum
        return exits.FAILED if self.failed or self.missing else exits.FINISHED


def run_experiment(
    experiment: Experiment, arms: Mapping[str, ComposedArm], job: Job, tell: Callable[[str], None]
) -> Session:
    """Run what is missing, to its end or to the first signal; LaunchError for what cannot start."""
    require_devices(arms, job)
    require_arms(experiment, job)
    with _interrupts() as interrupt, _alone(experiment, tell, interrupt) as descriptor:
        require_unchanged(experiment, arms)
        registered = Registration.ensure(experiment)
        for change in registered.changes(experiment):
            tell(f"[yellow]warning:[/yellow] the file has changed since its registration: {change}")
        collect_finished(experiment)
        if experiment.published:
            raise LaunchError(f"{experiment.folder} is published without its runs: give the experiment another name.")
        return _Runs(experiment, arms, job, tell, interrupt, descriptor).run()


def require_devices(arms: Mapping[str, ComposedArm], job: Job) -> None:
    """LaunchError if the runs that go on at a time do not have a GPU each for themselves."""
    most = max(arm.devices for arm in arms.values())
    if not most or (job.jobs == 1 and not job.devices):
        return
    if len(job.devices) < job.jobs * most:
        raise LaunchError(
            f"--jobs {job.jobs} with {most} GPUs per run needs {job.jobs * most} GPUs, and --devices names "
            f"{len(job.devices)}: name them, as in --devices 0,1,2,3, or lower --jobs."
        )


def require_arms(experiment: Experiment, job: Job) -> None:
    """LaunchError if the job names an arm that the experiment does not have."""
    for name in job.only:
        if name not in experiment.design.arms:
            raise LaunchError(f"--only {name} is not an arm; they are {', '.join(experiment.design.arms)}.")


class Interrupt:
    """Counts Ctrl-C and SIGTERM: the first lets runs save and end, the second ends them at once."""

    def __init__(self) -> None:
        self.count = 0
        self.signum: int | None = None

    def handle(self, signum: int, _frame: FrameType | None) -> None:
        """Note a signal; a scheduler may send SIGTERM more than once, so only Ctrl-C counts twice."""
        if self.signum is None or signum == signal.SIGINT:
            self.count += 1
        self.signum = self.signum or signum


@dataclass
class _Running:
    """A launch under way."""

    cell: Cell
    process: subprocess.Popen
    started: float
    devices: tuple[str, ...]
    log_start: int
    stop_by: float | None = None
    size: int = -1
    heard: float = field(default_factory=time.monotonic)


class _Runs:
    def __init__(
        self,
        experiment: Experiment,
        arms: Mapping[str, ComposedArm],
        job: Job,
        tell: Callable[[str], None],
        interrupt: Interrupt,
        descriptor: int,
    ):
        self._experiment, self._arms, self._job, self._tell = experiment, arms, job, tell
        self._interrupt, self._descriptor = interrupt, descriptor
        wanted = [cell for cell in experiment.cells if not job.only or cell.arm in job.only]
        self._pending = deque(cell for cell in wanted if not experiment.result(cell).is_file())
        self._running: list[_Running] = []
        self._devices = list(job.devices)
        self._starts: Counter[Cell] = Counter()
        self._failures = 0
        self._ending = Session()

    def run(self) -> Session:
        """Start, watch and take in runs until none is left."""
        total, finished = len(self._experiment.cells), sum(1 for _ in self._experiment.finished())
        self._tell(f"{self._experiment.design.name}: {finished} of {total} runs are finished")
        try:
            while self._running or (self._pending and self._may_start):
                while self._pending and self._may_start and len(self._running) < self._job.jobs:
                    self._start(self._pending.popleft())
                self._watch()
                if self._running:
                    time.sleep(POLL_S)
        finally:
            for running in self._running:
                stop_tree(running.process, grace_s=STOP_S)
        self._ending.missing = len(self._pending)
        self._ending.signum = self._interrupt.signum
        return self._ending

    @property
    def _may_start(self) -> bool:
        return not self._interrupt.count and self._failures < FAILURES

    def _start(self, cell: Cell) -> None:
        experiment, arm = self._experiment, self._arms[cell.arm]
        record_configuration(experiment, arm)
        if experiment.run(cell).path.is_dir() and is_whole(experiment.run(cell), arm):
            self._take_in(cell)
            return
        self._await_rest(cell)
        devices = tuple(self._devices.pop(0) for _ in range(arm.devices)) if self._job.devices else ()
        env = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        log = experiment.log(cell)
        before = log.stat().st_size if log.exists() else 0
        process = start(
            self._command(cell), log=log, cwd=HOME, env={"PYTHONUNBUFFERED": "1", **env}, keep=[self._descriptor]
        )
        self._starts[cell] += 1
        self._running.append(_Running(cell, process, time.time(), devices, before))
        self._tell(f"{cell}: started, log in {log}")

    def _await_rest(self, cell: Cell) -> None:
        """Wait until what a killed launcher left has ended; one that lives on is refused by the launch itself."""
        deadline = time.monotonic() + STOP_S
        folder = self._experiment.run(cell).path
        while folder.is_dir() and time.monotonic() < deadline and not self._interrupt.count:
            with held(folder) as free:
                if free:
                    return
            time.sleep(POLL_S)

    def _command(self, cell: Cell) -> list[str]:
        experiment = self._experiment
        overrides = [*experiment.overrides(cell.arm), *experiment.own_overrides(cell)]
        if not any(override.lstrip("+").startswith("env_service.env_url=") for override in overrides):
            # A service of its own, which ends with the run and meets no other's.
            overrides.append(f"env_service.env_url=http://127.0.0.1:{free_port()}")
        recipe = str(experiment.design.recipe_of(cell.arm))
        return [*self._job.launcher, "--conf", recipe, "--with-bfcl", "--", *overrides]

    def _watch(self) -> None:
        for running in list(self._running):
            code = running.process.poll()
            if code is None:
                self._press(running)
                continue
            self._running.remove(running)
            self._devices += running.devices
            self._ended(running, code)

    def _press(self, running: _Running) -> None:
        """Pass an interrupt on, and end what ignores it or hangs."""
        now = time.monotonic()
        settings = self._arms[running.cell.arm].settings
        if self._interrupt.count and running.stop_by is None:
            running.process.send_signal(signal.SIGINT)
            running.stop_by = now + settings.stop_grace_s + STOP_S
            self._tell(f"{running.cell}: stopping, it saves a checkpoint; Ctrl-C again to stop at once")
        if self._interrupt.count > 1 or (running.stop_by is not None and now > running.stop_by):
            stop_tree(running.process, grace_s=0)
        size = self._written(running.cell)
        if size != running.size:
            running.size, running.heard = size, now
        elif now - running.heard > settings.step_deadline_s + SILENT_S:
            self._tell(f"{running.cell}: no output for {now - running.heard:.0f} s; stopped")
            stop_tree(running.process, grace_s=STOP_S)

    def _written(self, cell: Cell) -> int:
        folder = self._experiment.run(cell)
        files = (self._experiment.log(cell), folder.train_log, folder.log("stages"), folder.steps)
        return sum(path.stat().st_size for path in files if path.exists())

    def _ended(self, running: _Running, code: int) -> None:
        cell = running.cell
        reason = "" if code == exits.FINISHED else self._reason(running, code)
        attempt = Attempt(str(cell), running.started, time.time(), code, reason)
        with self._experiment.attempts.open("a", encoding="utf-8") as file:
            file.write(json.dumps(attempt._asdict(), ensure_ascii=False) + "\n")
        if code == exits.FINISHED:
            self._take_in(cell)
        elif self._interrupt.count:
            self._pending.appendleft(cell)
            self._tell(f"{cell}: stopped; the same command resumes it")
        elif self._starts[cell] < STARTS_BY_CODE.get(code, STARTS):
            self._pending.appendleft(cell)
            self._tell(f"{cell}: ended with code {code} ({reason}); it is started again")
        else:
            self._fail(cell, reason)

    def _take_in(self, cell: Cell) -> None:
        try:
            if not is_whole(self._experiment.run(cell), self._arms[cell.arm]):
                raise ValueError(f"its logs end before step {self._arms[cell.arm].steps}")
            if refused := certify(self._experiment, cell):
                self._tell(f"[yellow]warning:[/yellow] {cell} has no certificate: {refused}")
            result = collect(self._experiment, cell, self._arms[cell.arm])
        except (ValueError, OSError) as error:
            self._fail(cell, f"its logs cannot be used: {error}")
            return
        drop(self._experiment.run(cell), self._experiment.design.keep)
        write_results(self._experiment)
        self._failures = 0
        self._ending.finished.append(cell)
        left = len(self._pending) + len(self._running)
        self._tell(f"{cell}: finished in {result.minutes:.1f} min; {left} left")

    def _fail(self, cell: Cell, reason: str) -> None:
        self._failures += 1
        self._ending.failed[cell] = reason
        self._tell(f"[red]{cell}: failed:[/red] {reason}")
        if self._failures == FAILURES and self._pending:
            self._tell(f"{FAILURES} runs in a row have failed; no further one is started")

    def _reason(self, running: _Running, code: int) -> str:
        """Why a launch ended, from what it printed; the log holds earlier launches of the run too."""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        text = self._experiment.log(running.cell).read_bytes()[running.log_start :].decode(errors="replace")
        errors = [line for line in text.splitlines() if line.startswith("error:")]
        return errors[-1].removeprefix("error:").strip() if errors else last_line(text, f"exit code {code}")


@contextmanager
def _interrupts() -> Iterator[Interrupt]:
    """Count signals while the block runs, and answer them as before afterwards."""
    interrupt = Interrupt()
    before = {number: signal.signal(number, interrupt.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _alone(experiment: Experiment, tell: Callable[[str], None], interrupt: Interrupt) -> Iterator[int]:
    """Hold the experiment's lock; waits for the runs of a session that was killed."""
    deadline, told = time.monotonic() + ENDING_S, False
    with ExitStack() as stack:
        while True:
            try:
                descriptor = stack.enter_context(lock(experiment.lock))
                break
            except Locked as error:
                holder = error.holder
                waiting = holder is not None and holder.gone
                if not waiting or time.monotonic() > deadline or interrupt.count:
                    raise LaunchError(_in_use(experiment.folder, holder), exits.REFUSED) from None
                if not told:
                    tell("an earlier session was killed; waiting for its runs to save and end")
                    told = True
                time.sleep(POLL_S)
            except (CannotLock, OSError) as error:
                raise LaunchError(
                    f"{experiment.lock} cannot be locked ({error}): put the experiment's folder on a file system that "
                    "can be written and supports flock."
                ) from error
        yield descriptor


def _in_use(folder: Path, holder: Holder | None) -> str:
    who = f"process {holder.pid} on {holder.host} since {holder.since}" if holder else "another process"
    if holder and holder.gone:
        return f"Runs of an earlier session still work in {folder}: stop them, or start again when they have ended."
    return f"{folder} is in use by {who}: wait for it or stop it; give another experiment another name."
