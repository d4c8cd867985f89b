"""Run a recipe: `python launcher.py --conf exp/NAME.yaml [--with-bfcl] [-- key=value ...]`.

`python launcher.py doctor [--conf exp/NAME.yaml]` says whether one can run here.

Composes the recipe, checks it, records it under launcher_record/, starts the
environment service when asked, starts Ray and verl's trainer, shows progress,
and stops everything that it started. Results lie under experiments/<name>/.
`--replay launcher_record/NAME/TIME` runs a recorded launch again, in a folder of
its own. Ctrl-C and SIGTERM save a checkpoint first. Exit codes: docs/reliability.md.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import sys
from pathlib import Path

try:
    from dotenv import load_dotenv
    from rich.console import Console
except ImportError:
    sys.exit(
        f"{sys.executable} lacks SEAL's packages: activate the environment (`source .venv/bin/activate` or "
        "`conda activate seal`), or make one (`bash install.sh`, without a GPU `bash install.sh --cpu`)."
    )

from seal import exits
from seal.launch.errors import LaunchError
from seal.launch.interrupt import Interrupt


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The launcher's own options, and the overrides after `--`."""
    own, overrides = argv, []
    if "--" in argv:
        cut = argv.index("--")
        own, overrides = argv[:cut], argv[cut + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--conf", metavar="RECIPE", help="a recipe, for instance exp/quickstart.yaml")
    source.add_argument("--replay", metavar="DIR", help="a record of an earlier launch, launcher_record/NAME/TIME")
    parser.add_argument("--with-bfcl", action="store_true", help="start the environment service too")
    parser.add_argument(
        "--resume",
        default="auto",
        metavar="auto|never|PATH",
        help="continue from the last checkpoint (auto), start over (never), or from a global_step_N folder",
    )
    parser.add_argument("--print-config", action="store_true", help="print the resolved configuration and stop")
    parser.add_argument("--print-plan", action="store_true", help="print a step's rows, batches and budgets and stop")
    return parser.parse_args(own), overrides


def main(argv: list[str] | None = None) -> int:
    """Run the launcher; returns the exit code (seal.exits)."""
    argv = sys.argv[1:] if argv is None else argv
    load_dotenv(Path(__file__).resolve().parent / ".env")
    if argv[:1] == ["doctor"]:
        from seal.launch import doctor

        return doctor.main(argv[1:])
    arguments, overrides = parse_arguments(argv)
    interrupt = Interrupt()
    interrupt.install()
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        return run(arguments, overrides, argv, console, interrupt)
    except LaunchError as error:
        console.print(f"[red]error:[/red] {error}", soft_wrap=True, highlight=False)
        return error.code
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped; start again to resume", highlight=False)
        return interrupt.exit_code


def run(
    arguments: argparse.Namespace, overrides: list[str], argv: list[str], console: Console, interrupt: Interrupt
) -> int:
    """Compose, check, start, follow, report."""
    from omegaconf import OmegaConf

    from seal.launch import attention, preflight, record, replay, resume
    from seal.launch.agreement import require_agreement
    from seal.launch.lock import locked
    from seal.launch.recipe import compose_recipe
    from seal.launch.service import Service, probe, require_services, service_urls
    from seal.paths import HOME
    from seal.processes import adopt_orphans, stop_descendants
    from seal.training.log import RunLog

    replayed = None
    if arguments.replay:
        replayed = replay.Replay(Path(arguments.replay).resolve())
        config, recipe = replayed.configuration(overrides), replayed.recipe
        arguments.with_bfcl = arguments.with_bfcl or replayed.with_bfcl
    else:
        config, recipe = compose_recipe(Path(arguments.conf), overrides), Path(arguments.conf).resolve()
    if arguments.print_config:
        console.print(OmegaConf.to_yaml(config), highlight=False, markup=False, soft_wrap=True)
        return exits.FINISHED
    if arguments.print_plan:
        console.print(preflight.plan_table(config))
        return exits.FINISHED
    if arguments.resume not in ("auto", "never"):
        arguments.resume = str(Path(arguments.resume).resolve())
    os.chdir(HOME)
    preflight.check(config)
    if warning := attention.fall_back(config):
        console.print(f"[yellow]warning:[/yellow] {warning}", highlight=False, soft_wrap=True)
    urls = service_urls(config, to_start=arguments.with_bfcl)
    if not arguments.with_bfcl or probe(urls[0]) is not None:
        require_agreement(urls[0], require_services(urls))  # what cannot be used leaves no folder and no record
    run_dir = HOME / config.seal.run_dir
    with locked(run_dir) as lock:
        composed = copy.deepcopy(config)
        start = resume.prepare(config, arguments.resume, preflight.total_steps(config))
        if start.notice:
            console.print(start.notice, highlight=False, soft_wrap=True)
        if start.complete:
            console.print(
                f"{config.trainer.experiment_name} is complete; remove {run_dir} or name another "
                "trainer.experiment_name to run it again.",
                highlight=False,
                soft_wrap=True,
            )
            return _report(run_dir, console)
        train_rows, val_rows = preflight.write_data(config)
        RunLog(run_dir).keep_through(start.step)
        folder = record.write_record(composed, config, recipe, overrides, [sys.executable, "launcher.py", *argv])

        adopt_orphans()
        service = Service(urls[0], run_dir / "service.log")
        try:
            if arguments.with_bfcl:
                started = service.start()
                console.print(
                    f"environment service {'started' if started else 'found'} at {service.url}", highlight=False
                )
            version = require_services(urls)
            require_agreement(service.url, version)
            record.add_service(folder, version)
            if replayed is not None:
                for difference in replayed.differences(folder):
                    console.print(f"[yellow]differs from the record:[/yellow] {difference}", soft_wrap=True)
            console.print(
                f"{config.trainer.experiment_name}: {train_rows} training tasks, {val_rows} validation tasks; "
                f"record in {os.path.relpath(folder)}, log in {os.path.relpath(run_dir / 'train.log')}",
                highlight=False,
                soft_wrap=True,
            )
            train(config, folder / record.TRAINER_CONFIG, run_dir, service, lock, console, interrupt)
        finally:
            service.stop()
            stop_descendants()
        return _report(run_dir, console)


def train(config, resolved: Path, run_dir: Path, service, lock: int, console: Console, interrupt: Interrupt) -> None:
    """Run the training process to its end; LaunchError or KeyboardInterrupt when it does not end by itself."""
    from seal.launch import cluster
    from seal.launch.follow import failure_reason, follow
    from seal.paths import HOME
    from seal.processes import start, stop_tree
    from seal.training.cluster import uses_existing_cluster
    from seal.training.stop import StopRequest

    joining = {}
    if uses_existing_cluster(config):
        joining[cluster.AUTHENTICATION] = cluster.look_at(config.ray_kwargs.ray_init.address).authentication
    log = run_dir / "train.log"
    log.unlink(missing_ok=True)
    stages = run_dir / "seal_log" / "stages.jsonl"
    before = stages.stat().st_size if stages.exists() else 0
    request = StopRequest(run_dir)
    request.withdraw()
    trainer = start(
        [sys.executable, "-m", "seal.training.main", str(resolved)],
        log=log,
        cwd=HOME,
        env={**joining, **{key: str(value) for key, value in config.seal.process_env.items()}},
        keep=[lock],
    )

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    def running() -> bool:
        training = stages.exists() and stages.stat().st_size > before
        interrupt.pursue(request, config.seal.stop_grace_s, training, say)
        if notice := service.ensure_running():
            say(f"[yellow]warning:[/yellow] {notice}")
        return trainer.poll() is None

    try:
        interrupt.defer()
        follow(run_dir, log, running, deadline_s=config.seal.step_deadline_s, console=console)
    finally:
        stop_tree(trainer, grace_s=20)
        request.withdraw()
    if trainer.returncode == exits.STOPPED:
        say(failure_reason(log))
        raise KeyboardInterrupt
    if trainer.returncode < 0:
        name = signal.Signals(-trainer.returncode).name
        raise LaunchError(
            f"The training process was ended from outside by {name}, perhaps for want of memory (log: {log}). Start "
            "again to resume from the last checkpoint.",
            exits.INFRASTRUCTURE,
        )
    if trainer.returncode != exits.FINISHED:
        known = trainer.returncode in (exits.INFRASTRUCTURE, exits.CHECKPOINT)
        code = trainer.returncode if known else exits.FAILED
        raise LaunchError(f"Training ended: {failure_reason(log)} (log: {log})", code)


def _report(run_dir: Path, console: Console) -> int:
    from seal.report import summarise

    for part in summarise(run_dir):
        console.print(part)
    return exits.FINISHED


if __name__ == "__main__":
    sys.exit(main())
