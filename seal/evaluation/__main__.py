"""Commands: ``python -m seal.evaluation bfcl`` evaluates a model, ``export-bfcl`` writes official result files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from env_service.environments.bfcl.splits import CATEGORIES, DEFAULT_SPLIT, SPLITS
from seal.data.rows import TaskRow
from seal.data.selection import Selection
from seal.data.suspected import load_suspected
from seal.errors import LaunchError
from seal.evaluation.benchmark import Journal, Outcome, evaluate
from seal.evaluation.endpoint import ChatEndpoint, EndpointRefused, Sampling
from seal.evaluation.episode import EpisodeSettings
from seal.evaluation.export import OFFICIAL_MODE, OFFICIAL_MODEL, export_bfcl
from seal.evaluation.serving import environment_service, served_checkpoint
from seal.evaluation.summary import summarise, suspected_tasks
from seal.evaluation.tables import console as wide_console
from seal.evaluation.tables import summary_table
from seal.files import json_hash
from seal.records.validation import read_log
from seal.rollout.env_client import EnvironmentClient, EnvironmentFault

SERVICE_URL = "http://127.0.0.1:8082"
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 when rollouts failed, 2 for bad input, 130 when interrupted."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, OSError, LaunchError, EndpointRefused, EnvironmentFault) as error:
        Console(stderr=True, soft_wrap=True).print(f"seal.evaluation {options.command}: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True, soft_wrap=True).print("Interrupted; the same command resumes where this stopped.")
        return INTERRUPTED


def _bfcl(options: argparse.Namespace) -> int:
    console = wide_console()
    if (options.base_url is None) == (options.checkpoint is None):
        raise ValueError("Give either --base-url (with --model) or --checkpoint.")
    if options.base_url and not options.model:
        raise ValueError("--base-url needs --model: the name under which the endpoint serves the model.")
    if min(options.samples, options.concurrency) < 1:
        raise ValueError("--samples and --concurrency must be at least 1.")
    rows = _rows(options)
    name = options.model or options.checkpoint.resolve().name
    out = options.out or Path("experiments") / ("eval_" + re.sub(r"[^\w.-]+", "_", name))
    temperature = options.temperature if options.temperature is not None else float(options.samples > 1)
    sampling = Sampling(temperature, options.top_p, options.max_tokens)
    with ExitStack() as stack:
        service = stack.enter_context(environment_service(options.env_url, out / "service.log"))
        settings = EpisodeSettings(
            options.prompt_mode, options.max_steps, options.deadline, options.seed, service=str(service["service"])
        )
        journal = Journal(out, _recorded(options, rows, sampling, service))
        base_url = options.base_url or stack.enter_context(
            served_checkpoint(options.checkpoint, name, options.serve_args, out / "vllm.log")
        )
        outcome = asyncio.run(_play(options, rows, name, base_url, sampling, settings, journal, out, console))
    log = read_log(outcome.log)
    suspected = suspected_tasks(log.lines, load_suspected())
    less = {(row.step, row.name): row for row in summarise(log, suspected)} if suspected else {}
    console.print(summary_table(summarise(log), f"{name}, {options.prompt_mode}", less))
    console.print(f"{outcome.played} rollouts played, {outcome.kept} kept from before; log: {outcome.log}")
    if outcome.failed:
        console.print(
            f"{outcome.failed} rollouts failed for reasons other than the policy and are not counted; the same command "
            "plays them again.",
            style="bold red",
        )
    return 1 if outcome.failed else 0


async def _play(
    options: argparse.Namespace,
    rows: Sequence[TaskRow],
    name: str,
    base_url: str,
    sampling: Sampling,
    settings: EpisodeSettings,
    journal: Journal,
    out: Path,
    console: Console,
) -> Outcome:
    endpoint = ChatEndpoint(base_url, name, sampling, options.timeout)
    service = EnvironmentClient(options.env_url, "bfcl", options.timeout, attempts=4)
    total = len(rows) * options.samples
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(name, total=total, completed=len(journal.finished()))
        tally = {"passed": sum(bool(line["score"]) for line in journal.lines.values()), "failed": 0}

        def on_line(line: Mapping[str, Any]) -> None:
            tally["passed"] += bool(line["score"])
            tally["failed"] += line["infra"] is not None
            failed = f", {tally['failed']} failed" if tally["failed"] else ""
            progress.update(bar, advance=1, description=f"{name}: {tally['passed']} passed{failed}")

        try:
            await endpoint.check()
            await _try_prompt_mode(rows[0], service, settings)
            return await evaluate(
                rows, options.samples, endpoint, service, settings, journal, out, options.concurrency, on_line
            )
        finally:
            await endpoint.close()
            await service.close()


async def _try_prompt_mode(row: TaskRow, service: EnvironmentClient, settings: EpisodeSettings) -> None:
    """Open and close one episode, so that a wrong setting is one sentence and not a log of failures."""
    probe = "seal-evaluation-probe"
    await service.create(row.task_id, probe, {"split": "eval", "tool_prompt_mode": settings.prompt_mode})
    await service.release(probe)


def _rows(options: argparse.Namespace) -> tuple[TaskRow, ...]:
    chosen = {
        "scheme": options.scheme,
        "categories": options.categories,
        "prefix_turns": options.prefix_turns,
        "task_file": options.task_file,
        "limit": options.limit,
    }
    sides = ("train", "eval") if options.split == "all" else (options.split,)
    return tuple(row for side in sides for row in Selection.from_config({**chosen, "split": side}).rows())


def _recorded(
    options: argparse.Namespace, rows: Sequence[TaskRow], sampling: Sampling, service: Mapping[str, str]
) -> dict[str, Any]:
    """What results depend on; an evaluation is resumed with the same values only."""
    return {
        "model": options.model or str(options.checkpoint.resolve()),
        "prompt_mode": options.prompt_mode,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "max_steps": options.max_steps,
        "seed": options.seed,
        "samples": options.samples,
        "tasks": len(rows),
        "tasks_sha256": json_hash([[row.task_id, row.turns] for row in rows]),
        "data_hash": service["data_hash"],
        "bfcl_eval": service["bfcl_eval"],
    }


def _export(options: argparse.Namespace) -> int:
    log = options.run_or_log
    if log.is_dir():
        logs = sorted((log / "validation_log").glob("*.jsonl"), key=lambda path: (len(path.stem), path.stem))
        if not logs:
            raise ValueError(f"{log} holds no validation_log/<step>.jsonl: name a run or one log.")
        log = log / "validation_log" / f"{options.step}.jsonl" if options.step is not None else logs[-1]
    if not log.is_file():
        raise ValueError(f"{log} does not exist: name a run and one of its validation steps, or one log.")
    made = export_bfcl(log, options.out, options.model, options.sample)
    console = Console(soft_wrap=True)
    counts = ", ".join(f"{category} {count}" for category, count in made.tasks.items())
    console.print(f"{made.folder}: {counts}", highlight=False)
    if made.prefixes or made.failed:
        console.print(f"left out: {made.prefixes} prefixes of tasks, {made.failed} failed rollouts", highlight=False)
    categories = ",".join(f"multi_turn_{category}" for category in made.tasks)
    console.print(
        f"Now, where bfcl-eval is installed with its dependencies:\n  BFCL_PROJECT_ROOT={options.out} bfcl evaluate "
        f"--model {options.model} --test-category {categories} --partial-eval",
        highlight=False,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m seal.evaluation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    play = commands.add_parser("bfcl", help="evaluate a model on the plain benchmark (BFCL V3 multi-turn)")
    model = play.add_argument_group("the model")
    model.add_argument("--base-url", help="an OpenAI-compatible endpoint (http://host:port/v1)")
    model.add_argument("--model", help="the model's name at the endpoint")
    model.add_argument("--checkpoint", type=Path, help="an HF folder, served here by vLLM")
    model.add_argument("--serve-args", default="", help="further options of vllm serve, as one string")
    tasks = play.add_argument_group("the tasks")
    tasks.add_argument("--split", choices=("eval", "train", "all"), default="eval", help="side (default: eval)")
    tasks.add_argument("--scheme", choices=SPLITS, default=DEFAULT_SPLIT)
    tasks.add_argument("--categories", nargs="+", choices=CATEGORIES)
    tasks.add_argument("--prefix-turns", nargs="+", type=int, help="only the first k user turns, for each k")
    tasks.add_argument("--task-file", help="list of task ids")
    tasks.add_argument("--limit", type=int, help="at most so many tasks of each category")
    tasks.add_argument("--samples", type=int, default=1, help="rollouts a task (avg@k, pass@k)")
    how = play.add_argument_group("how")
    how.add_argument("--prompt-mode", default=OFFICIAL_MODE, help=f"prompt and parser (default: {OFFICIAL_MODE})")
    how.add_argument("--temperature", type=float, help="default: 0, or 1 with several samples")
    how.add_argument("--top-p", type=float, default=1.0)
    how.add_argument("--max-tokens", type=int, default=1024, help="of one assistant message (default: 1024)")
    how.add_argument("--max-steps", type=int, default=20, help="calls a user turn, as the official tool (20)")
    how.add_argument("--seed", type=int, default=0)
    how.add_argument("--concurrency", type=int, default=32, help="tasks at once (default: 32)")
    how.add_argument("--timeout", type=float, default=600.0, help="seconds for one request (default: 600)")
    how.add_argument("--deadline", type=float, default=1800.0, help="seconds for one task (default: 1800)")
    how.add_argument("--env-url", default=SERVICE_URL, help="the service; started here when nothing answers")
    how.add_argument("--out", type=Path, help="folder of results (default: experiments/eval_MODEL)")
    play.set_defaults(run=_bfcl)

    export = commands.add_parser("export-bfcl", help="write a validation as the official tool's result files")
    export.add_argument("run_or_log", type=Path, metavar="RUN", help="a run, or one <step>.jsonl")
    export.add_argument("--step", type=int, help="of a run: this validation (default: the last)")
    export.add_argument("--sample", type=int, default=0, help="which of several samples (default: 0)")
    export.add_argument("--out", type=Path, required=True, help="folder, the official tool's BFCL_PROJECT_ROOT")
    export.add_argument("--model", default=OFFICIAL_MODEL, help="a model that the official tool knows")
    export.set_defaults(run=_export)
    return parser


if __name__ == "__main__":
    sys.exit(main())
