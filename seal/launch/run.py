"""A launch in three steps: composed (what was asked for), fitted (to this machine and folder), started (to its end).

`launcher.py` and `seal train` are this function. Results are written under
`experiments/<name>/`, the record of the launch under `launcher_record/`.
Exit codes: docs/reliability.md.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seal.launch import preflight
from seal.launch.folder import Start, find_start, locked
from seal.launch.follow import Interrupt, tell, train
from seal.launch.recipe import compose_recipe
from seal.launch.record import TRAINER_CONFIG, Replay, add_service, launch_facts, write_record
from seal.launch.service import (
    Service,
    probe,
    require_agreement,
    require_environments,
    require_services,
    require_tasks,
    service_urls,
)
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.system.processes import adopt_orphans, stop_descendants
from seal.training.log import RunLog


class Request(NamedTuple):
    """What the command line asks for.

    source: a recipe's file, or if `replay` is set, the folder of a recorded launch.
    overrides: key=value each. with_bfcl: start the environment service too.
    resume: auto, never or a checkpoint's folder.
    """

    source: Path
    overrides: tuple[str, ...] = ()
    replay: bool = False
    with_bfcl: bool = False
    resume: str = "auto"


class Composed(NamedTuple):
    """What is to run: a resolved configuration, and the file or the record that it comes from."""

    config: DictConfig
    recipe: Path
    with_bfcl: bool
    replayed: Replay | None = None


class Fitted(NamedTuple):
    """A run that can start on this machine, in a folder that only this launcher works in.

    config: as it is recorded. trainer: the same with the keys of a resume. urls: the
    addresses of the environment services. tasks: how many tasks are trained and
    validated on. lock: the descriptor of the folder's lock.
    """

    config: DictConfig
    trainer: DictConfig
    start: Start
    urls: tuple[str, ...]
    tasks: tuple[int, int]
    lock: int

    @property
    def run_dir(self) -> Path:
        """The experiment folder."""
        return HOME / self.config.seal.run_dir


def launch(request: Request, console: Console) -> int:
    """Run a recipe to its end; returns the exit code (seal.system.exits)."""
    interrupt = Interrupt()
    interrupt.install()
    try:
        what = composed(request)
        with fitted(what, request.resume, console) as run:
            if run.start.complete:
                name = run.config.trainer.experiment_name
                again = f"remove {run.run_dir} or set another trainer.experiment_name to run it again"
                tell(console, f"{name} is complete; {again}.")
            else:
                started(run, what, request.overrides, console, interrupt)
            tell(console, f"`seal report {os.path.relpath(run.run_dir)}` shows what was learnt")
    except LaunchError as error:
        return refused(error, console)
    except KeyboardInterrupt:
        tell(console, "interrupted: everything that was started has been stopped; start again to resume")
        return interrupt.exit_code
    return exits.FINISHED


def show(request: Request, console: Console, *, plan: bool) -> int:
    """Print the step plan of a recipe, or else its resolved configuration, and start nothing."""
    try:
        config = composed(request).config
        if plan:
            console.print(preflight.plan_table(config))
        else:
            console.print(OmegaConf.to_yaml(config), highlight=False, markup=False, soft_wrap=True)
    except LaunchError as error:
        return refused(error, console)
    return exits.FINISHED


def refused(error: LaunchError, console: Console) -> int:
    """Print an error as its one sentence; returns its exit code."""
    tell(console, f"[red]error:[/red] {error}")
    return error.code


def composed(request: Request) -> Composed:
    """The first step: the configuration that a recipe, or a recorded launch, and the overrides make."""
    source = request.source.resolve()
    if not request.replay:
        return Composed(compose_recipe(request.source, request.overrides), source, request.with_bfcl)
    replayed = Replay(source)
    config = replayed.configuration(request.overrides)
    return Composed(config, replayed.recipe, request.with_bfcl or replayed.with_bfcl, replayed)


@contextmanager
def fitted(what: Composed, resume: str, console: Console) -> Iterator[Fitted]:
    """The second step: what was composed, checked and fitted to this machine; the folder is locked while it is open.

    Whatever cannot run raises LaunchError. Until the folder is locked nothing is
    written, so that a refusal leaves neither a folder nor a record.
    """
    resume = resume if resume in ("auto", "never") else str(Path(resume).resolve())
    os.chdir(HOME)
    preflight.check(what.config)
    config, warning = preflight.with_attention(what.config)
    if warning:
        tell(console, f"[yellow]warning:[/yellow] {warning}")
    urls = service_urls(config, to_start=what.with_bfcl)
    if config.env_service.delay_seconds and not what.with_bfcl:
        raise LaunchError("env_service.delay_seconds needs a service that the launcher starts: pass --with-bfcl.")
    answers = probe(urls[0]) is not None
    if config.env_service.delay_seconds and answers:
        raise LaunchError(
            f"A service already answers at {urls[0]}, and env_service.delay_seconds needs one that the launcher "
            "starts: stop that one, or set env_service.env_url to a free port."
        )
    if not what.with_bfcl or answers:
        require_agreement(urls[0], require_services(urls))
        require_tasks(urls, preflight.task_files(config))
        require_environments(urls, preflight.environments(config))
    run_dir = HOME / config.seal.run_dir
    with locked(run_dir) as lock:
        start = find_start(config, resume, preflight.total_steps(config))
        if start.notice:
            tell(console, start.notice)
        if not start.step and (initial := preflight.initial_interface(config)):
            tell(console, str(initial))
        tasks = (0, 0)
        if not start.complete:
            tasks = preflight.write_data(config)
            RunLog(run_dir).keep_through(start.step)
        trainer = OmegaConf.merge(config, {"trainer": dict(start.settings)})
        yield Fitted(config, trainer, start, urls, tasks, lock)


def started(run: Fitted, what: Composed, overrides: Sequence[str], console: Console, interrupt: Interrupt) -> None:
    """The third step: record the launch, start the service and the trainer, follow them, and stop both."""
    folder = write_record(run.config, run.trainer, what.recipe, overrides, [sys.executable, *sys.argv])
    adopt_orphans()
    task_files = preflight.task_files(run.config)
    delay = run.config.env_service.delay_seconds
    service = Service(run.urls[0], run.run_dir / "service.log", task_files, delay)
    try:
        if what.with_bfcl:
            found = "started" if service.start() else "found"
            tell(console, f"environment service {found} at {service.url}")
        version = require_services(run.urls)
        require_agreement(service.url, version)
        require_tasks(run.urls, task_files)
        require_environments(run.urls, preflight.environments(run.config))
        add_service(folder, version)
        RunLog(run.run_dir).launch(launch_facts(folder, version), step=run.start.step)
        for difference in what.replayed.differences(folder) if what.replayed else ():
            tell(console, f"[yellow]differs from the record:[/yellow] {difference}")
        training, validation = run.tasks
        tell(
            console,
            f"{run.config.trainer.experiment_name}: {training} training tasks, {validation} validation tasks; record "
            f"in {os.path.relpath(folder)}, log in {os.path.relpath(run.run_dir / 'train.log')}",
        )
        train(run.trainer, folder / TRAINER_CONFIG, service, run.lock, console, interrupt)
    finally:
        service.stop()
        stop_descendants()
