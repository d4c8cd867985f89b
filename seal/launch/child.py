"""The training process from start to end, and the ending that it, an error or a signal means.

This module starts and ends it; in the run's folder it writes only the ending, a request to stop and the process's log.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from seal.launch.checks.devices import AUTHENTICATION, inspect_cluster
from seal.launch.console import WARNING, JsonlTail, Shown, size_of, tell
from seal.launch.recipe import Recipe
from seal.launch.service import Service
from seal.launch.signals import Interrupt
from seal.records.ending import Ending
from seal.records.folder import RunFolder
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.files import text_sha256
from seal.system.paths import HOME
from seal.system.processes import start, stop_tree
from seal.training.cluster import uses_existing_cluster

POLL_S = 0.5


def train(recipe: Recipe, resolved: Path, service: Service, lock: int, console: Console, interrupt: Interrupt) -> None:
    """Run the training process to its end.

    resolved: the configuration, with the keys of a resume, as a file. lock: the descriptor of the folder's lock, which
    the process holds too. LaunchError if the process fails, KeyboardInterrupt if it was interrupted.
    """
    folder = recipe.folder
    log = folder.train_log
    log.unlink(missing_ok=True)
    before = size_of(folder.stages)
    folder.stop.unlink(missing_ok=True)
    settings, environment = recipe.settings, name_tracked_run(folder) | recipe.settings.process_env
    if uses_existing_cluster(recipe.config):
        cluster = inspect_cluster(recipe.config.ray_kwargs.ray_init.address)
        environment = {AUTHENTICATION: cluster.authentication, **environment}
    command = [sys.executable, "-m", "seal.training.main", str(resolved)]
    trainer = start(command, log=log, cwd=HOME, env=environment, keep=[lock])

    def running() -> bool:
        training = size_of(folder.stages) > before
        interrupt.forward(folder.stop, settings.stop_grace_s, training, partial(tell, console))
        if notice := service.ensure_running():
            tell(console, notice, WARNING)
        return trainer.poll() is None

    try:
        # Written before the run's processes are ended, which would report each other's end.
        with record_launch_ending(folder, interrupt):
            interrupt.deferred = True
            follow(folder.path, log, running, deadline_s=settings.step_deadline_s, console=console)
    finally:
        stop_tree(trainer, grace_s=20)
        folder.stop.unlink(missing_ok=True)
    ending = Ending.read(folder.path) or Ending.of_code(trainer.returncode, folder.path)
    if ending.cause == "stopped":  # the trainer does not know the signal
        folder.ending.unlink()
        ending = ending._replace(code=interrupt.exit_code)
    ending.write(folder.path)
    if ending.cause == "stopped":
        tell(console, ending.sentence)
        raise KeyboardInterrupt
    if ending.cause != "finished":
        raise LaunchError(f"Training ended: {ending.sentence} (log: {log})", ending.code, ending.cause)


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


@contextmanager
def record_launch_ending(folder: RunFolder, interrupt: Interrupt) -> Iterator[None]:
    """Write the ending that an error or a signal in the block means, unless one is written already."""
    try:
        yield
    except LaunchError as error:
        Ending(error.code, error.cause, str(error)).write(folder.path)
        raise
    except KeyboardInterrupt:
        Ending(interrupt.exit_code, "stopped", "Stopped at once, without a new checkpoint.").write(folder.path)
        raise


def name_tracked_run(folder: RunFolder) -> dict[str, str]:
    """The variables by which Weights & Biases continues a resumed run: its first launch names it."""
    first = next(iter(JsonlTail(folder.launches, 0)))
    identity = text_sha256(f"{folder.path} {first['time']}")[:16]
    return {"WANDB_RUN_ID": os.environ.get("WANDB_RUN_ID", identity), "WANDB_RESUME": "allow"}
