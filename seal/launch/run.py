"""A launch: a recipe is prepared for this machine and its folder, then carried out to its end.

`launcher.py` and `seal train` call `launch`. Results are written under `experiments/<name>/`, the record of the
launch under `launcher_record/`. Exit codes: docs/operate.md#exit-codes.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import psutil
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from env_service import variable
from seal.launch.checks import preflight
from seal.launch.checks.harness import require_trial
from seal.launch.child import record_launch_ending, train
from seal.launch.console import WARNING, tell
from seal.launch.folder import hold
from seal.launch.recipe import Recipe, read_recipe
from seal.launch.record import TRAINER_CONFIG, write_record
from seal.launch.service import Found, Needs, Service, find_or_place, find_running, service_urls
from seal.launch.signals import Interrupt
from seal.launch.start import OWNER, Start, find_start
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.files import write_text
from seal.system.paths import HOME
from seal.system.processes import adopt_orphans, stop_descendants
from seal.training.checkpoints import Checkpoints
from seal.training.log import RunLog


class Request(NamedTuple):
    """The launch that the command line asks for, in the words of `seal train`; overrides: KEY=VALUE each."""

    source: Path
    overrides: tuple[str, ...] = ()
    with_service: bool = False
    resume: str = "auto"


class Prepared(NamedTuple):
    """A run that can start on this machine, in a folder that only this launcher works in.

    recipe: as it is recorded. source: its file. lock: the descriptor of the folder's lock.
    """

    recipe: Recipe
    source: Path
    start: Start
    lock: int

    @property
    def needs(self) -> Needs:
        """What the run needs from its services."""
        return Needs(self.recipe.environments, self.recipe.task_files)

    @property
    def plan(self) -> str:
        """What remains to be done, in a sentence for the user."""
        recipe, step = self.recipe, self.start.step
        if self.start.complete:
            again = f"remove {recipe.run_dir} or set another trainer.experiment_name to run it again"
            return f"{recipe.name} is complete; {again}."
        where = f"continues after step {step}" if step else "can start"
        rows, played = recipe.rows, recipe.rows.withdrawal if recipe.settings.shows_omega else ()
        more = f" and {len(played)} prompts with and without cues" if played else ""
        return f"{recipe.name} {where}: {len(rows.train)} training tasks, {len(rows.val)} validation tasks{more}."


def launch(request: Request, console: Console) -> int:
    """Run a recipe to its end; returns the exit code (seal.system.exits). LaunchError if it cannot run."""
    interrupt = Interrupt()
    interrupt.install()
    try:
        with prepare(request, console) as run:
            tell(console, run.plan)
            if not run.start.complete:
                found = find_services(run, request)
                with record_launch_ending(run.recipe.folder, interrupt):
                    carry_out(run, found, request, console, interrupt)
            tell(console, f"`seal report {quote(str(run.recipe.run_dir))}` shows what was learnt")
    except KeyboardInterrupt:
        return interrupt.exit_code
    return exits.FINISHED


def rehearse(request: Request, console: Console) -> int:
    """Say what a launch would do; LaunchError if it cannot run. Nothing is started, and a service may be missing."""
    with prepare(request, console) as run:
        tell(console, run.plan)
        if run.start.complete:
            return exits.FINISHED
        try:
            find_services(run, request)
        except LaunchError as error:
            tell(console, str(error), WARNING)
    return exits.FINISHED


def show(request: Request, console: Console) -> int:
    """Print the resolved configuration of a recipe, and start nothing."""
    config = read_recipe(request.source, request.overrides).config
    console.print(OmegaConf.to_yaml(config), highlight=False, markup=False, soft_wrap=True)
    return exits.FINISHED


def refuse(error: LaunchError, console: Console) -> int:
    """Print an error, a sentence in each line; returns its exit code."""
    for sentence in str(error).splitlines():
        tell(console, sentence, "[red]error:[/red] ")
    return error.code


@contextmanager
def prepare(request: Request, console: Console) -> Iterator[Prepared]:
    """Check a recipe, fit it to this machine and hold its folder; nothing is written there: a refusal leaves no folder.

    Raises LaunchError for whatever cannot run.
    """
    recipe = read_recipe(request.source, request.overrides)
    source = request.source.resolve() if request.source.is_file() else HOME / request.source
    resume = request.resume if request.resume in ("auto", "never") else str(Path(request.resume).resolve())
    os.chdir(HOME)
    recipe, warnings = preflight.fit(recipe)
    for each in warnings:
        tell(console, each, WARNING)
    with hold(recipe.folder) as lock:
        start = find_start(recipe, resume)
        for change in start.changes:
            tell(console, change, WARNING)
        yield Prepared(recipe, source, start, lock)


def find_services(run: Prepared, request: Request) -> Found:
    """The services that run, or the place for one; each is asked once. LaunchError if they cannot play the recipe."""
    find = find_or_place if request.with_service else find_running
    return find(service_urls(run.recipe.config), run.needs)


def carry_out(run: Prepared, found: Found, request: Request, console: Console, interrupt: Interrupt) -> None:
    """Start the service, record the launch, train, and stop all that was started."""
    adopt_orphans()
    began, recipe = time.time(), run.recipe
    recipe.folder.ending.unlink(missing_ok=True)
    harness = recipe.settings.rollout.harness is not None
    if harness and found.version is None:  # code that a command or the policy runs here must not be a client
        os.environ.setdefault(variable("token"), secrets.token_hex(24))
    service = Service(found, run.needs, recipe.run_dir / "service.log")
    try:
        version = service.start()
        if request.with_service:
            if service.notice:
                tell(console, service.notice, WARNING)
            tell(console, f"environment service {'started' if found.version is None else 'found'} at {service.url}")
        if harness:
            require_trial(recipe, service.url)
            tell(console, "the harness played a trial rollout")
        address = {"env_service": {"env_url": service.url}} if request.with_service else {}
        trainer = OmegaConf.merge(recipe.config, {"trainer": dict(run.start.settings), **address})
        folder = record(run, trainer, request.overrides, version, began)
        tell(console, f"record in {folder}, log in {recipe.folder.train_log}")
        train(recipe, folder / TRAINER_CONFIG, service, run.lock, console, interrupt)
    finally:
        service.stop()
        stop_descendants()


def record(
    run: Prepared, trainer: DictConfig, overrides: Sequence[str], version: Mapping[str, Any], began: float
) -> Path:
    """Write what the training process reads and what the launch is: rows, logs up to its start, record; its folder.

    began: when the launch turned to the service, in seconds since 1970.
    """
    recipe, start, log = run.recipe, run.start, RunLog(run.recipe.run_dir)
    recipe.rows.write(HOME / recipe.config.data.train_files, HOME / recipe.config.data.val_files)
    if start.checkpoint is not None:  # with the logs, so that a launch that ends here loses neither
        Checkpoints(recipe.checkpoints, recipe.settings.checkpoints).continue_from(start.checkpoint, start.step)
    log.keep_through(start.step)
    log.start("checks", at=psutil.Process().create_time())
    log.start("service", at=began)
    folder, facts = write_record(recipe, trainer, run.source, overrides, [sys.executable, *sys.argv], version)
    log.launch(facts, step=start.step)
    if not recipe.checkpoints.is_relative_to(recipe.run_dir):  # after the log, without which it would be another run's
        write_text(recipe.name, recipe.checkpoints / OWNER)
    log.start("ray")
    return folder
