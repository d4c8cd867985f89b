"""Runs what is missing in a matrix: each run is a separate launch, and the launcher resumes an interrupted run."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.lock import CannotLock, Locked, lock
from seal.system.net import free_port
from seal.system.paths import HOME
from seal.system.processes import start, stop_tree
from seal.system.text import last_line
from shelf.lab.experiment.arms import ComposedArm, record_configuration, require_unchanged
from shelf.lab.experiment.collect import Attempt, collect, collect_finished, drop, hold_run, is_whole, write_results
from shelf.lab.experiment.matrix import Cell, Experiment, Registration

POLL_S = 0.5
LAUNCHER = (sys.executable, str(HOME / "launcher.py"))
STARTS = {exits.REFUSED: 1, exits.USAGE: 1, exits.CHECKPOINT: 1}
"""The most starts of a run in a session, by exit code; two for any other code."""
FAILURES = 3
"""After this number of failed runs in a row, no further run is started, because they share a cause."""
ENDING_S = 900
"""Seconds for the runs of a killed session to end before a new session gives up."""
STOP_S = 120
"""Seconds for a launcher to end, in addition to the time that its trainer has to save."""


class SessionOptions(NamedTuple):
    """Options of a session. launcher: its command. jobs: runs at a time. devices: their GPUs; () lets each see all.

    only: the arms to run; () runs all.
    """

    launcher: Sequence[str] = LAUNCHER
    jobs: int = 1
    devices: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


@dataclass
class Session:
    """How a session ended: failed runs with their causes, the number of missing runs, the signals that stopped it."""

    failed: dict[Cell, str] = field(default_factory=dict)
    missing: int = 0
    signals: list[int] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code of the command."""
        if self.signals:
            return 128 + self.signals[0]
        return exits.FAILED if self.failed or self.missing else exits.FINISHED


class Running(NamedTuple):
    """A launch in progress. log_start: where its output begins in the log, which also holds earlier launches."""

    cell: Cell
    process: subprocess.Popen
    started: float
    devices: tuple[str, ...]
    log_start: int


def run_experiment(
    experiment: Experiment, arms: Mapping[str, ComposedArm], options: SessionOptions, tell: Callable[[str], None]
) -> Session:
    """Run what is missing, until all is done or the first signal arrives; LaunchError if it cannot start."""
    for name in options.only:
        if name not in experiment.design.arms:
            raise LaunchError(f"--only {name} is not an arm; they are {', '.join(experiment.design.arms)}.")
    require_devices(arms, options)
    session = Session()
    with _signals(session.signals), _alone(experiment, tell, session.signals) as descriptor:
        require_unchanged(experiment, arms)
        registered = Registration.ensure(experiment.folder, experiment.text)
        if changes := registered.changes(experiment.text):
            tell(f"[yellow]warning:[/yellow] the file has changed since its registration: {', '.join(changes)}")
        collect_finished(experiment, drops=True)
        _Runs(experiment, arms, options, tell, session, descriptor).run()
    return session


def require_devices(arms: Mapping[str, ComposedArm], options: SessionOptions) -> None:
    """LaunchError if runs of the chosen arms do not have their own GPUs when they run at the same time."""
    most = max(arms[name].devices for name in options.only or arms)
    if most and (options.jobs > 1 or options.devices) and len(options.devices) < options.jobs * most:
        raise LaunchError(
            f"--jobs {options.jobs} with {most} GPUs per run needs {options.jobs * most} GPUs, and --devices names "
            f"{len(options.devices)}: name them, as in --devices 0,1,2,3, or lower --jobs."
        )


def words_of(experiment: Experiment, cell: Cell) -> tuple[str, ...]:
    """The recipe and the overrides of a run, as scripts/slurm.sh takes them."""
    return str(experiment.design.recipe_of(cell.arm)), *experiment.overrides(cell.arm), *experiment.own_overrides(cell)


def prepare(experiment: Experiment, arms: Mapping[str, ComposedArm]) -> list[tuple[str, ...]]:
    """Register the experiment for runs that others start; return the words of each missing run."""
    Registration.ensure(experiment.folder, experiment.text)
    for arm in arms.values():
        record_configuration(experiment, arm)
    collect_finished(experiment)
    done = {cell for cell, _result in experiment.finished()}
    return [words_of(experiment, cell) for cell in experiment.cells if cell not in done]


@dataclass
class _Runs:
    experiment: Experiment
    arms: Mapping[str, ComposedArm]
    options: SessionOptions
    tell: Callable[[str], None]
    session: Session
    descriptor: int

    def run(self) -> None:
        """Start, watch and collect runs until none is left; a signal lets them save, a later Ctrl-C kills them."""
        cells, finished = self.experiment.cells, {cell for cell, _result in self.experiment.finished()}
        self.tell(f"{self.experiment.design.name}: {len(finished)} of {len(cells)} runs are finished")
        wanted = (cell for cell in cells if not self.options.only or cell.arm in self.options.only)
        self.pending = deque(cell for cell in wanted if cell not in finished)
        self.devices, self.starts, self.failures = list(self.options.devices), Counter(), 0
        running: list[Running] = []
        stopped = 0.0
        try:
            while running or (self.pending and self.may_start):
                while self.pending and self.may_start and len(running) < self.options.jobs:
                    running.append(self.start(self.pending.popleft()))
                if self.session.signals and not stopped:
                    stopped = time.monotonic()
                    for each in running:
                        each.process.send_signal(signal.SIGINT)
                        self.tell(f"{each.cell}: stopping, it saves a checkpoint; Ctrl-C again to stop at once")
                for each in running:
                    patience = self.arms[each.cell.arm].settings.stop_grace_s + STOP_S
                    impatient = signal.SIGINT in self.session.signals[1:]
                    if stopped and (impatient or time.monotonic() - stopped > patience):
                        stop_tree(each.process, grace_s=0)
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    self.ended(each)
                time.sleep(POLL_S if running else 0)
        finally:
            for each in running:
                stop_tree(each.process, grace_s=STOP_S)
        self.session.missing = len(self.pending)

    @property
    def may_start(self) -> bool:
        return not self.session.signals and self.failures < FAILURES

    def start(self, cell: Cell) -> Running:
        """Launch a run with its own service, once everything that a killed launcher left running has ended."""
        record_configuration(self.experiment, self.arms[cell.arm])
        deadline, folder = time.monotonic() + STOP_S, self.experiment.run(cell).path
        while folder.is_dir() and time.monotonic() < deadline and not self.session.signals:
            with hold_run(folder) as free:
                if free:
                    break
            time.sleep(POLL_S)
        devices = tuple(self.devices.pop(0) for _ in range(self.arms[cell.arm].devices)) if self.options.devices else ()
        env = {"PYTHONUNBUFFERED": "1"} | ({"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {})
        recipe, *overrides = words_of(self.experiment, cell)
        words = [*self.options.launcher, "--conf", recipe, "--with-service", "--", *overrides]
        if not any(word.lstrip("+").startswith("env_service.env_url=") for word in words):
            words.append(f"env_service.env_url=http://127.0.0.1:{free_port()}")
        log = self.experiment.log(cell)
        before = log.stat().st_size if log.exists() else 0
        process = start(words, log=log, cwd=HOME, env=env, keep=[self.descriptor])
        self.starts[cell] += 1
        self.tell(f"{cell}: started, log in {log}")
        return Running(cell, process, time.time(), devices, before)

    def ended(self, run: Running) -> None:
        """Collect a run, queue it again, or give it up."""
        cell, code = run.cell, run.process.returncode
        self.devices += run.devices
        reason = "" if code == exits.FINISHED else self.reason(run, code)
        with self.experiment.attempts.open("a", encoding="utf-8") as file:
            attempt = Attempt(str(cell), run.started, time.time(), code, reason)
            file.write(json.dumps(attempt._asdict(), ensure_ascii=False) + "\n")
        if code == exits.FINISHED and not (reason := self.take_in(cell)):
            self.failures = 0
        elif code != exits.FINISHED and (self.session.signals or self.starts[cell] < STARTS.get(code, 2)):
            self.pending.appendleft(cell)
            again = "the same command resumes it" if self.session.signals else "it is started again"
            self.tell(f"{cell}: ended with code {code} ({reason}); {again}")
        else:
            self.failures += 1
            self.session.failed[cell] = reason
            self.tell(f"[red]{cell}: failed:[/red] {reason}")
            if self.failures == FAILURES and self.pending:
                self.tell(f"{FAILURES} runs in a row have failed; no further one is started")

    def take_in(self, cell: Cell) -> str:
        """Keep the result of a successful run and drop what the experiment does not keep; return why not, or ""."""
        folder, arm = self.experiment.run(cell), self.arms[cell.arm]
        try:
            if not is_whole(folder, arm):
                raise ValueError(f"its logs end before step {arm.steps}")
            result = collect(self.experiment, cell, arm)
        except (ValueError, OSError) as error:
            return f"its logs cannot be used: {error}"
        drop(folder, self.experiment.design.keep)
        write_results(self.experiment)
        self.tell(f"{cell}: finished in {result.minutes:.1f} min; {len(self.pending)} to start")
        return ""

    def reason(self, run: Running, code: int) -> str:
        """Why a launch ended, according to its output."""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        text = self.experiment.log(run.cell).read_bytes()[run.log_start :].decode(errors="replace")
        errors = [line for line in text.splitlines() if line.startswith("error:")]
        return errors[-1].removeprefix("error:").strip() if errors else last_line(text, f"exit code {code}")


@contextmanager
def _signals(received: list[int]) -> Iterator[None]:
    """Collect Ctrl-C and SIGTERM while the block runs."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, lambda signum, _frame: received.append(signum)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _alone(experiment: Experiment, tell: Callable[[str], None], signals: Sequence[int]) -> Iterator[int]:
    """Hold the experiment's lock, and first wait for the runs of a killed session."""
    deadline, told = time.monotonic() + ENDING_S, False
    with ExitStack() as stack:
        while True:
            try:
                descriptor = stack.enter_context(lock(experiment.lock))
                break
            except Locked as error:
                holder = error.holder
                if not (holder and holder.gone) or time.monotonic() > deadline or signals:
                    who = f"process {holder.pid} on {holder.host} since {holder.since}" if holder else "another process"
                    raise LaunchError(f"{experiment.folder} is in use by {who}: wait for it or stop it.") from None
            except (CannotLock, OSError) as error:
                raise LaunchError(f"{experiment.lock} cannot be locked ({error}): use another file system.") from error
            if not told:
                tell("an earlier session was killed; waiting for its runs to save and end")
            told = True
            time.sleep(POLL_S)
        yield descriptor
