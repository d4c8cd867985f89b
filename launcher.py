"""Run a recipe: `python launcher.py --conf exp/NAME.yaml [--with-bfcl] [-- key=value ...]`.

Composes the recipe, checks it, records it under launcher_record/, starts the
environment service when asked, starts Ray and verl's trainer, shows progress,
and stops everything that it started. Results lie under experiments/<name>/.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from seal.launch.errors import LaunchError


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The launcher's own options, and the overrides after `--`."""
    own, overrides = argv, []
    if "--" in argv:
        cut = argv.index("--")
        own, overrides = argv[:cut], argv[cut + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--conf", required=True, metavar="RECIPE", help="a recipe, for instance exp/quickstart.yaml")
    parser.add_argument("--with-bfcl", action="store_true", help="start the environment service too")
    parser.add_argument(
        "--resume",
        default="auto",
        metavar="auto|never|PATH",
        help="continue from the last checkpoint (auto), start over (never), or from a global_step_N folder",
    )
    parser.add_argument("--print-config", action="store_true", help="print the resolved configuration and stop")
    return parser.parse_args(own), overrides


def main(argv: list[str] | None = None) -> int:
    """Run the launcher; returns the exit code (0 success, 1 failure, 130 interrupted)."""
    argv = sys.argv[1:] if argv is None else argv
    arguments, overrides = parse_arguments(argv)
    # SIGTERM takes the same way out as Ctrl-C, so that a scheduler's stop cleans up too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        return run(arguments, overrides, argv, console)
    except LaunchError as error:
        console.print(f"[red]error:[/red] {error}", soft_wrap=True, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped; start again to resume", highlight=False)
        return 130


def run(arguments: argparse.Namespace, overrides: list[str], argv: list[str], console: Console) -> int:
    """Compose, check, start, follow, report."""
    from omegaconf import OmegaConf

    from seal.launch import preflight, record, resume
    from seal.launch.follow import failure_reason, follow
    from seal.launch.processes import adopt_orphans, start, stop_descendants, stop_tree
    from seal.launch.recipe import HOME, compose_recipe
    from seal.launch.service import Service, require_service

    recipe = Path(arguments.conf)
    config = compose_recipe(recipe, overrides)
    if arguments.print_config:
        console.print(OmegaConf.to_yaml(config), highlight=False, markup=False, soft_wrap=True)
        return 0
    recipe = recipe.resolve()
    if arguments.resume not in ("auto", "never"):
        arguments.resume = str(Path(arguments.resume).resolve())
    os.chdir(HOME)
    preflight.check(config)
    run_dir = HOME / config.seal.run_dir
    if not resume.prepare(config, arguments.resume):
        console.print(
            f"{config.trainer.experiment_name} is complete; remove {run_dir} or name another "
            "trainer.experiment_name to run it again.",
            highlight=False,
            soft_wrap=True,
        )
        return _report(run_dir, console)
    train_rows, val_rows = preflight.write_data(config)
    folder = record.write_record(config, recipe, overrides, [sys.executable, "launcher.py", *argv])

    adopt_orphans()
    service = Service(config.env_service.env_url, run_dir / "service.log")
    trainer = None
    try:
        if arguments.with_bfcl:
            started = service.start()
            console.print(f"environment service {'started' if started else 'found'} at {service.url}", highlight=False)
        record.add_service(folder, require_service(service.url))
        console.print(
            f"{config.trainer.experiment_name}: {train_rows} training tasks, {val_rows} validation tasks; "
            f"record in {os.path.relpath(folder)}, log in {os.path.relpath(run_dir / 'train.log')}",
            highlight=False,
            soft_wrap=True,
        )
        log = run_dir / "train.log"
        log.unlink(missing_ok=True)
        trainer = start(
            [sys.executable, "-m", "seal.training.main", str(folder / "config.yaml")],
            log=log,
            cwd=HOME,
            env={key: str(value) for key, value in config.seal.process_env.items()},
        )

        def running() -> bool:
            if notice := service.ensure_running():
                console.print(f"[yellow]warning:[/yellow] {notice}", soft_wrap=True, highlight=False)
            return trainer.poll() is None

        follow(run_dir, log, running, deadline_s=config.seal.step_deadline_s, console=console)
        if trainer.returncode != 0:
            raise LaunchError(f"Training ended with code {trainer.returncode}: {failure_reason(log)} (log: {log})")
    finally:
        if trainer is not None:
            stop_tree(trainer, grace_s=20)
        service.stop()
        stop_descendants()
    return _report(run_dir, console)


def _report(run_dir: Path, console: Console) -> int:
    from seal.report import summarise

    for part in summarise(run_dir):
        console.print(part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
