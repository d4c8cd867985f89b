"""The training process from start to end: one line per step, Ctrl-C and SIGTERM, and the reason when it fails.

It is started and ended here, and the run's logs are read; a request to stop is all that is written.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from seal.launch.checks.devices import AUTHENTICATION, inspect_cluster
from seal.launch.recipe import Recipe
from seal.launch.service import Service
from seal.records.ending import Ending
from seal.records.folder import FIRST, READY, START, RunFolder
from seal.records.step import PATIENCE, StepRecord, harness_warnings, nothing_learnt, read_steps
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.files import text_sha256
from seal.system.paths import HOME
from seal.system.processes import start, stop_tree
from seal.training.cluster import uses_existing_cluster

POLL_S = 0.5
PLAIN_S = 30.0  # between two lines on how many prompts are played, where no line is live
ROLLOUT = "the trainer waits for the agent-loop workers, which wait for the rollout engine or the environment service"
STAGES = {
    "validate": f"validation: {ROLLOUT}",
    "train": f"rollouts: {ROLLOUT}",
    "update": "log-probs and update: the trainer waits for the training workers",
    "save": "saving a checkpoint: the trainer waits for the training workers, which wait for the disk",
    "sync": "the weight sync: the training workers wait for the rollout engine to take the new weights",
}
"""The activity of a run by stage, and who waits for whom."""
SHOWN_LABELS = 3
WARNING = "[yellow]warning:[/yellow] "


def tell(console: Console, text: str, mark: str = "") -> None:
    """Print a sentence on one line; mark: rich's markup before it."""
    console.print(mark + escape(text), highlight=False, soft_wrap=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class JsonlTail:
    """The lines appended to a JSONL file since the last call; offset: of the first one in bytes, of the end without."""

    def __init__(self, path: Path, offset: int | None = None):
        self._path = path
        self._offset = _size(path) if offset is None else offset

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                lines, newline, _ = file.read().rpartition(b"\n")
            self._offset += len(lines) + len(newline)
            yield from map(json.loads, lines.splitlines())


class Shown:
    """A run on the console: the stages of its start with their seconds, validations, steps, and a live line.

    moved: when a stage began or a step ended, as time.monotonic() counts. where: the stage, and who waits for whom.
    """

    def __init__(self, folder: RunFolder, console: Console, progress: Progress):
        self._folder, self._console, self._progress = folder, console, progress
        self._bar = progress.add_task("starting", total=None)
        self._stages, self._steps = JsonlTail(folder.stages), JsonlTail(folder.steps)
        self._starts = JsonlTail(folder.start, 0)
        self.moved = self._said = time.monotonic()
        self.where = "its start"
        self._warned: set[str] = set()
        self._begun: dict[str, Any] | None = None
        earlier = [*self._starts]
        launched = max((place for place, line in enumerate(earlier) if line["stage"] == FIRST), default=0)
        for line in earlier[launched:]:
            self._start(line)

    def update(self) -> None:
        """Show what the run's logs have got since the last call."""
        for line in self._starts:
            self._start(line)
        for line in self._stages:
            self._stage(line)
        for step in map(StepRecord.from_line, self._steps):
            self._step(step)
        if self._begun and self._begun["stage"] in ("validate", "train"):
            self._rollouts(self._begun)

    def _start(self, line: dict[str, Any]) -> None:
        self.moved = time.monotonic()
        if self._begun:
            seconds = line["time"] - self._begun["time"]
            self._console.print(f"start: {self._begun['stage']} {seconds:.0f} s", highlight=False)
        self._begun = None if line["stage"] == READY else line
        what = START.get(line["stage"], READY)
        self.where = f"its start, {line['stage']}: {what}"
        self._progress.reset(self._bar, total=None, description=f"start: {what}")  # its clock begins at 0 again

    def _stage(self, line: dict[str, Any]) -> None:
        self.moved, self._begun = time.monotonic(), line
        name, step = line["stage"], line["step"]
        self.where = f"step {step}, {STAGES.get(name, name)}"
        if name == "validate":
            self._console.print(f"validating {line['of']} prompts at step {step}")
            self._progress.update(self._bar, description=f"validating {line['of']} prompts", total=None)
        else:
            self._progress.update(self._bar, description=f"step {step}: {name}", total=line["of"], completed=step - 1)

    def _rollouts(self, line: dict[str, Any]) -> None:
        """Show how many prompts are played."""
        path = self._folder.progress
        if not path.exists() or path.stat().st_mtime < line["time"]:
            return
        said = "{done} of {of} prompts played".format_map(json.loads(path.read_text(encoding="utf-8")))
        name = "validation" if line["stage"] == "validate" else f"step {line['step']}: {line['stage']}"
        self._progress.update(self._bar, description=f"{name}, {said}")
        if not self._console.is_terminal and time.monotonic() - max(self._said, self.moved) > PLAIN_S:
            self._said = time.monotonic()
            self._console.print(f"{name}, {said}", highlight=False)

    def _step(self, step: StepRecord) -> None:
        self.moved = time.monotonic()
        self._console.print(step_line(step), highlight=False)
        for name, sentence in harness_warnings(step).items():
            if name not in self._warned:
                tell(self._console, sentence, WARNING)
            self._warned.add(name)
        if step.step == PATIENCE and (notice := nothing_learnt(read_steps(self._folder.steps)[0])):
            tell(self._console, notice, WARNING)
        self._progress.update(self._bar, completed=step.step)


def follow(run_dir: Path, log: Path, running: Callable[[], bool], *, deadline_s: float, console: Console) -> None:
    """Show a run's progress while it runs; LaunchError if no stage begins and no step ends for `deadline_s` seconds."""
    columns = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        shown = Shown(RunFolder(run_dir), console, progress)
        ended = False
        while True:
            shown.update()
            if ended:
                return
            ended = not running()
            if not ended and time.monotonic() - shown.moved > deadline_s:
                raise LaunchError(
                    f"The run made no progress for {deadline_s:.0f} s (seal.step_deadline_s) in {shown.where}. It was "
                    f"stopped; its log is {log}. Start again to resume from the last checkpoint.",
                    exits.INFRASTRUCTURE,
                    "stalled",
                )
            time.sleep(POLL_S)


def step_line(step: StepRecord) -> str:
    """One step for the console: reward, groups with signal, commonest labels, w, cues and seconds."""
    shares = sorted(step.label_shares.items(), key=lambda item: -item[1])[:SHOWN_LABELS]
    labels = " ".join(f"{label} {share:.0%}" for label, share in shares)
    reward = "-" if step.reward_mean is None else f"{step.reward_mean:.3f}"
    weight = f"w {step.w.mean:.2f}" if step.w else "w -"
    cues = f"cues {len(step.cues)}" if step.omega else "no Omega"
    named = {"gen": step.seconds.get("gen"), "update": step.seconds.get("update_actor")}
    stages = " ".join(f"{name} {seconds:.0f}" for name, seconds in named.items() if seconds is not None)
    part = f"trained {step.trained_share:.0%}  " if step.trained_share < 1 else ""
    lost = f" [red]infra {sum(step.infra.values())}[/red]" if step.infra else ""
    return (
        f"step {step.step:>4}  reward {reward}  {step.groups_with_spread} groups with signal  {labels}  {weight}  "
        f"{cues}  {part}{step.total_seconds:.0f} s ({stages}){lost}"
    )


class Interrupt:
    """The launcher's answer to Ctrl-C and SIGTERM.

    The first one asks the trainer to save and end, a second Ctrl-C ends everything at once. Until there is a training
    process that can save (`deferred`), and after the grace, a signal raises KeyboardInterrupt wherever the launcher is.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.deferred = False
        self._deadline: float | None = None

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    @property
    def exit_code(self) -> int:
        """128 and the number of the first signal, as shells count."""
        return 128 + (self.signum or signal.SIGINT)

    def forward(self, request: Path, grace_s: float, can_save: bool, tell: Callable[[str], None]) -> None:
        """Pass a pending signal on to the trainer; KeyboardInterrupt if it has nothing to save or takes too long."""
        if self.signum is None:
            return
        if self._deadline is None:
            if not can_save:
                raise KeyboardInterrupt
            request.touch()
            self._deadline = time.monotonic() + grace_s
            tell(f"stopping: the trainer saves a checkpoint, within {grace_s:.0f} s; Ctrl-C again to stop at once")
        elif time.monotonic() > self._deadline:
            tell(f"no checkpoint was saved within seal.stop_grace_s={grace_s:.0f} s")
            raise KeyboardInterrupt

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        first = self.signum is None
        if first:
            self.signum = signum
        # A scheduler may send SIGTERM to every process of a job, and more than once.
        if not self.deferred or (not first and signum == signal.SIGINT):
            raise KeyboardInterrupt


@contextmanager
def record_launch_ending(folder: RunFolder, interrupt: Interrupt) -> Iterator[None]:
    """Write the ending that an error or a signal in the block means, unless one is told."""
    try:
        yield
    except LaunchError as error:
        Ending(error.code, error.cause, str(error)).write(folder.path)
        raise
    except KeyboardInterrupt:
        Ending(interrupt.exit_code, "stopped", "Stopped at once, without a new checkpoint.").write(folder.path)
        raise


def name_tracked_run(folder: RunFolder) -> dict[str, str]:
    """The variables by which Weights & Biases goes on with a resumed run: its first launch names it."""
    first = next(iter(JsonlTail(folder.launches, 0)))
    identity = text_sha256(f"{folder.path} {first['time']}")[:16]
    return {"WANDB_RUN_ID": os.environ.get("WANDB_RUN_ID", identity), "WANDB_RESUME": "allow"}


def train(recipe: Recipe, resolved: Path, service: Service, lock: int, console: Console, interrupt: Interrupt) -> None:
    """Run the training process to its end.

    resolved: the configuration, with the keys of a resume, as a file. lock: the descriptor of the folder's lock, which
    the process holds too. LaunchError if the process fails, KeyboardInterrupt if it was interrupted.
    """
    folder = recipe.folder
    log = folder.train_log
    log.unlink(missing_ok=True)
    before = _size(folder.stages)
    folder.stop.unlink(missing_ok=True)
    settings, environment = recipe.settings, name_tracked_run(folder) | recipe.settings.process_env
    if uses_existing_cluster(recipe.config):
        cluster = inspect_cluster(recipe.config.ray_kwargs.ray_init.address)
        environment = {AUTHENTICATION: cluster.authentication, **environment}
    command = [sys.executable, "-m", "seal.training.main", str(resolved)]
    trainer = start(command, log=log, cwd=HOME, env=environment, keep=[lock])

    def running() -> bool:
        training = _size(folder.stages) > before
        interrupt.forward(folder.stop, settings.stop_grace_s, training, partial(tell, console))
        if notice := service.ensure_running():
            tell(console, notice, WARNING)
        return trainer.poll() is None

    try:
        # Told before the run's processes are ended, which would tell of each other's end.
        with record_launch_ending(folder, interrupt):
            interrupt.deferred = True
            follow(folder.path, log, running, deadline_s=settings.step_deadline_s, console=console)
    finally:
        stop_tree(trainer, grace_s=20)
        folder.stop.unlink(missing_ok=True)
    ending = Ending.read(folder.path) or Ending.of_code(trainer.returncode, folder.path)
    if ending.cause == "stopped":  # the trainer knows no signal
        folder.ending.unlink()
        ending = ending._replace(code=interrupt.exit_code)
    ending.write(folder.path)
    if ending.cause == "stopped":
        tell(console, ending.sentence)
        raise KeyboardInterrupt
    if ending.cause != "finished":
        raise LaunchError(f"Training ended: {ending.sentence} (log: {log})", ending.code, ending.cause)
