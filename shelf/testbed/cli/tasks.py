"""`seal tasks`: synthesise, show and check tasks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seal.cli.commands import ListCommand, option, refusing
from seal.system import exits

if TYPE_CHECKING:
    from collections.abc import Callable

    from seal.diagnosis.categories import Level
    from shelf.testbed.synthesis.llm.model import Model
    from shelf.testbed.synthesis.llm.production import Production, RequestSettings, Source
    from shelf.testbed.synthesis.sampler import SamplerSettings

app = typer.Typer(help="Synthesise, show and check tasks of your own.", no_args_is_help=True, add_completion=False)

File = Annotated[Path, typer.Argument(help="File of tasks (JSONL).", show_default=False)]

_INCOMPLETE = 1
_EXITS = {"interrupted": exits.INTERRUPTED, "endpoint": exits.INFRASTRUCTURE}
"""The exit codes of commands that a model's writer stopped early; _INCOMPLETE for other reasons."""


_asked = partial(option, panel="The model (explore, --writer llm)")
Out = Annotated[Path, option("File to write.", "FILE")]
ModelName = Annotated[str | None, _asked("The model's name at the endpoint.")]
_ENDPOINT = (
    "An OpenAI-compatible endpoint (default: OPENAI_BASE_URL, else that of OPENAI_API_KEY or DASHSCOPE_API_KEY)."
)
BaseUrl = Annotated[str | None, _asked(_ENDPOINT)]
Temperature = Annotated[float, _asked("Temperature of calls and messages.")]
MaxTokens = Annotated[int, _asked("Tokens of one answer, thoughts included.")]
MaxTokensTotal = Annotated[int | None, _asked("Limit on the tokens of all prompts and answers for this file.")]
Concurrency = Annotated[int, _asked("Tasks at once.")]
Timeout = Annotated[float, _asked("Seconds for one attempt at a request.")]
DrawsPerTask = Annotated[int, _asked("Draws per task before it is given up.")]
Extra = Annotated[str, _asked('More fields of every request, such as {"enable_thinking": false}.', "JSON")]


@app.command(cls=ListCommand)
def synthesise(
    out: Out,
    writer: Annotated[Literal["grammar", "llm"], option("Who puts a call path into words.")] = "grammar",
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 1000,
    seed: Annotated[int, option("The same seed gives the same file.")] = 0,
    level: Annotated[
        Literal["train", "values", "phrases", "paths"],
        option("New to training: nothing, values, some phrases, or paths too."),
    ] = "train",
    min_turns: Annotated[int, typer.Option(min=1, max=7, help="The fewest requests of a task.")] = 1,
    max_turns: Annotated[int, typer.Option(min=1, max=7, help="The most requests of a task.")] = 4,
    classes: Annotated[list[str] | None, option("Simulators to use; all by default.", "NAME...")] = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = 2048,
    max_tokens_total: MaxTokensTotal = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 120.0,
    draws: DrawsPerTask = 9,
    extra: Extra = "{}",
) -> None:
    """Make verified tasks and write them to a file.

    With the writer llm, an interrupted command resumes.
    """
    from shelf.testbed.synthesis.sampler import sampler_settings

    with refusing("seal tasks synthesise"):
        settings = sampler_settings(classes, range(min_turns, max_turns + 1))
        if writer == "grammar":
            if model or base_url:
                raise ValueError("--model and --base-url need --writer llm: the grammar asks no model.")
            _by_grammar(out, count, seed, level, settings)
            return
        requests = _requests(model, base_url, concurrency, timeout, max_tokens_total, draws, extra)

    def writer_of(asked: Model) -> Source:
        from shelf.testbed.synthesis.llm.writer import LlmWriter

        return LlmWriter(asked, seed, level, settings, temperature, max_tokens)

    _by_model("seal tasks synthesise", requests, writer_of, count, seed, out)


@app.command(cls=ListCommand)
def explore(
    out: Out,
    per_seed: Annotated[int, typer.Option(min=1, help="Tasks per training scenario.")] = 1,
    scenarios: Annotated[
        list[int] | None, option("Training scenarios to start from; all that may be used by default.", "N...")
    ] = None,
    seed: Annotated[int, option("Of the samples.")] = 0,
    max_calls: Annotated[int, option("Calls of one exploration.")] = 12,
    min_calls: Annotated[int, option("The fewest calls of a task.")] = 2,
    model: ModelName = None,
    base_url: BaseUrl = None,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = 2048,
    max_tokens_total: MaxTokensTotal = None,
    concurrency: Concurrency = 8,
    timeout: Timeout = 120.0,
    draws: DrawsPerTask = 4,
    extra: Extra = "{}",
) -> None:
    """Let a model find tasks in the states of training scenarios.

    It acts there, then says what a user could have wanted. An interrupted command resumes.
    """
    from shelf.testbed.synthesis.llm.explorer import Explorer, seed_tasks

    with refusing("seal tasks explore"):
        requests = _requests(model, base_url, concurrency, timeout, max_tokens_total, draws, extra)
        if not 1 <= min_calls <= max_calls:
            raise ValueError("--min-calls must be at least 1 and at most --max-calls.")
        seeds = seed_tasks(scenarios)

    def explorer_of(asked: Model) -> Source:
        return Explorer(asked, seeds, seed, max_calls, min_calls, temperature, max_tokens)

    _by_model("seal tasks explore", requests, explorer_of, per_seed * len(seeds), seed, out)


@app.command()
def show(
    file: File,
    task_id: Annotated[str | None, typer.Argument(help="Show this task in full; its last digits are enough.")] = None,
) -> None:
    """List the tasks of a file, or show one in full."""
    from env_service.environments.bfcl.task_file import read_task_file
    from shelf.testbed.synthesis.show import describe, overview

    with refusing("seal tasks show"):
        tasks = read_task_file(file)
        if task_id is None:
            typer.echo(overview(tasks))
            return
        matching = [task for task in tasks if task.id.endswith(task_id)]
        if len(matching) != 1:
            raise ValueError(f"{len(matching)} tasks of {file} have an id that ends with {task_id!r}: give a whole id.")
        typer.echo(describe(matching[0]))


@app.command()
def check(file: File) -> None:
    """Verify ids, references and sources of a file's tasks; exits with 1 if something is wrong."""
    from env_service.environments.bfcl.task_file import parse_task_file
    from shelf.testbed.synthesis.check import problems

    with refusing("seal tasks check"):
        tasks, bad = parse_task_file(file)
    wrong = [*map(str, bad), *problems(tasks)]
    for problem in wrong:
        typer.echo(problem, err=True)
    if not tasks and not bad:
        typer.echo(f"{file} holds no task: make it with seal tasks synthesise.", err=True)
    if wrong or not tasks:
        raise typer.Exit(1)
    typer.echo(f"{file}: {len(tasks)} tasks; the verifier passes every reference and needs each of its calls")


def _by_grammar(out: Path, count: int, seed: int, level: Level, settings: SamplerSettings) -> None:
    import time

    from rich.console import Console
    from rich.progress import track

    from env_service.environments.bfcl.task_file import write_task_file
    from shelf.testbed.synthesis.grammar import Grammar
    from shelf.testbed.synthesis.make import Draws
    from shelf.testbed.synthesis.make import synthesise as make

    draws, began = Draws(), time.process_time()
    made = make(Grammar(), count, seed, level, settings, draws)
    console = Console(stderr=True)
    write_task_file(track(made, "synthesising", total=count, console=console, disable=not console.is_terminal), out)
    rate = draws.kept / (time.process_time() - began)
    typer.echo(f"{out}: {draws.kept} tasks of {draws.made} draws, {rate:.0f} per CPU second")


def _requests(
    model: str | None,
    base_url: str | None,
    concurrency: int,
    timeout: float,
    max_tokens_total: int | None,
    draws: int,
    extra: str,
) -> RequestSettings:
    import json

    from shelf.suites.chat import address_of
    from shelf.testbed.synthesis.llm.production import RequestSettings

    if not model:
        raise ValueError("Name the model that is asked with --model.")
    try:
        fields = json.loads(extra)
    except json.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError(f"--extra is {extra!r}: give a JSON object such as '{{\"enable_thinking\": false}}'.")
    limits = {"concurrency": concurrency, "timeout_s": timeout, "max_tokens_total": max_tokens_total, "draws": draws}
    return RequestSettings(model, address_of(base_url), extra=fields, **limits)


def _by_model(
    command: str, requests: RequestSettings, source_of: Callable[[Model], Source], count: int, seed: int, out: Path
) -> None:
    """Make a file under a progress bar, say what it cost, and exit with a code other than 0 if it is incomplete."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from shelf.suites.chat import EndpointRefused
    from shelf.testbed.synthesis.llm.production import make_file

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        refusing(command, EndpointRefused),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task(requests.model, total=count)

        def on_draw(made: Production) -> None:
            said = f"{requests.model}: {made.rejected.total()} rejected, {made.total.total:,} tokens"
            progress.update(bar, completed=len(made.tasks), description=said)

        made = make_file(requests, source_of, count, seed, out, on_draw)
    _tell(made, out)
    if made.stopped:
        raise typer.Exit(_EXITS.get(made.stopped.kind, _INCOMPLETE))
    if made.given_up:
        raise typer.Exit(_INCOMPLETE)


def _tell(made: Production, out: Path) -> None:
    total = made.total
    rejected = f" (rejected: {made.reasons})" if made.rejected else ""
    typer.echo(f"{out}: {len(made.tasks)} of {made.wanted} tasks, {made.draws} draws{rejected}")
    per_task = f", {total.total / len(made.tasks):,.0f} per task" if made.tasks else ""
    before = total.requests - made.spent.requests
    kept = f"; {before} of them answered in earlier runs" if before else ""
    typer.echo(f"{total.requests} requests, {total.read:,} tokens read, {total.written:,} written{per_task}{kept}")
    if made.given_up:
        typer.echo(f"{made.given_up} tasks were given up: raise --draws to try again.", err=True)
    if made.stopped:
        typer.echo(made.stopped.sentence, err=True)
