"""A launch: the recipe fitted to this machine and its folder, then started and followed to its end.

`launcher.py` and `seal train` are this function. Results are written under `experiments/<name>/`, the record of the
launch under `launcher_record/`. Exit codes: docs/operate.md#exit-codes.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import psutil
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seal.launch import preflight
from seal.launch.folder import Start, find_start, locked
from seal.launch.follow import WARNING, Interrupt, tell, train
from seal.launch.plan import total_steps
from seal.launch.recipe import Recipe, read_recipe
from seal.launch.record import TRAINER_CONFIG, write_record
from seal.launch.service import FIX, Service, own_address, require_service_for, service_urls
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.system.processes import adopt_orphans, stop_descendants
from seal.training.log import RunLog


class Request(NamedTuple):
    """The launch that the command line asks for, in the words of `seal train`; overrides: KEY=VALUE each."""

    source: Path
    overrides: tuple[str, ...] = ()
    with_bfcl: bool = False
    resume: str = "auto"


class Fitted(NamedTuple):
    """A run that can start on this machine, in a folder that only this launcher works in.

    recipe: as it is recorded. source: its file. trainer: its configuration with the keys of a resume. urls: of the
    environment services. lock: the descriptor of the folder's lock.
    """

    recipe: Recipe
    source: Path
    trainer: DictConfig
    start: Start
    urls: tuple[str, ...]
    lock: int


def launch(request: Request, console: Console) -> int:
    """Run a recipe to its end; returns the exit code (seal.system.exits). LaunchError if it cannot run."""
    interrupt = Interrupt()
    interrupt.install()
    try:
        with fitted(request, console) as run:
            folder = run.recipe.run_dir
            if run.start.complete:
                again = f"remove {folder} or set another trainer.experiment_name to run it again"
                tell(console, f"{run.recipe.name} is complete; {again}.")
            else:
                started(run, request, console, interrupt)
            tell(console, f"`seal report {quote(str(folder))}` shows what was learnt")
    except KeyboardInterrupt:
        return interrupt.exit_code
    return exits.FINISHED


def show(request: Request, console: Console) -> int:
    """Print the resolved configuration of a recipe, and start nothing."""
    config = read_recipe(request.source, request.overrides).config
    console.print(OmegaConf.to_yaml(config), highlight=False, markup=False, soft_wrap=True)
    return exits.FINISHED


def rehearse(request: Request, console: Console) -> int:
    """Check everything that is checked before a run starts, and start nothing."""
    recipe = read_recipe(request.source, request.overrides)
    os.chdir(HOME)
    for warning in preflight.check(recipe):
        tell(console, warning, WARNING)
    rows = recipe.rows
    tell(console, f"{recipe.name} can start: {len(rows.train)} training tasks, {len(rows.val)} validation tasks.")
    return exits.FINISHED


def refused(error: LaunchError, console: Console) -> int:
    """Print an error, a sentence in each line; returns its exit code."""
    for sentence in str(error).splitlines():
        tell(console, sentence, "[red]error:[/red] ")
    return error.code


@contextmanager
def fitted(request: Request, console: Console) -> Iterator[Fitted]:
    """The recipe, checked and fitted to this machine; the folder is locked while it is open.

    Whatever cannot run raises LaunchError. Until the folder is locked nothing is
    written, so that a refusal leaves neither a folder nor a record.
    """
    recipe, with_bfcl = read_recipe(request.source, request.overrides), request.with_bfcl
    source = request.source.resolve() if request.source.is_file() else HOME / request.source
    resume = request.resume if request.resume in ("auto", "never") else str(Path(request.resume).resolve())
    os.chdir(HOME)
    warnings = preflight.check(recipe)
    recipe, fallback = preflight.with_attention(recipe)
    for each in filter(None, (*warnings, fallback)):
        tell(console, each, WARNING)
    urls, existed = service_urls(recipe.config, to_start=with_bfcl), recipe.run_dir.exists()
    if with_bfcl:
        url, moved = own_address(recipe, urls[0])
        urls = (url,)
        if moved:
            tell(console, moved, WARNING)
    elif not existed:
        require_service_for(recipe, urls)
    with locked(recipe.run_dir) as lock:
        start = find_start(recipe, resume, total_steps(recipe.config, len(recipe.rows.train)))
        if start.notice:
            tell(console, start.notice)
        if not start.complete:
            if existed and not with_bfcl:
                require_service_for(recipe, urls)
            recipe.rows.write(HOME / recipe.config.data.train_files, HOME / recipe.config.data.val_files)
            RunLog(recipe.run_dir).keep_through(start.step)
        address = {"env_service": {"env_url": urls[0]}} if with_bfcl else {}
        trainer = OmegaConf.merge(recipe.config, {"trainer": dict(start.settings), **address})
        yield Fitted(recipe, source, trainer, start, urls, lock)


def started(run: Fitted, request: Request, console: Console, interrupt: Interrupt) -> None:
    """Start the service, record the launch, start the trainer, follow both, and stop them."""
    recipe = run.recipe
    adopt_orphans()
    log, service_log = RunLog(recipe.run_dir), recipe.run_dir / "service.log"
    log.start("checks", at=psutil.Process().create_time())
    service = Service(run.urls[0], service_log, recipe.task_files)
    try:
        log.start("service")
        if request.with_bfcl:
            how = "started" if service.start() else "found"
            tell(console, f"environment service {how} at {service.url}")
        version = require_service_for(recipe, run.urls, f"{service_log} says more" if request.with_bfcl else FIX)
        command = [sys.executable, *sys.argv]
        folder, facts = write_record(recipe, run.trainer, run.source, request.overrides, command, version)
        log.launch(facts, step=run.start.step)
        tell(
            console,
            f"{recipe.name}: {len(recipe.rows.train)} training tasks, {len(recipe.rows.val)} validation tasks; record "
            f"in {folder}, log in {recipe.run_dir / 'train.log'}",
        )
        log.start("ray")
        train(recipe, folder / TRAINER_CONFIG, service, run.lock, console, interrupt)
    finally:
        service.stop()
        stop_descendants()
