"""`seal tasks`: synthesise, explore and check tasks."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seal.cli.commands import option, refusing
from seal.system import exits
from shelf.list_command import ListCommand

if TYPE_CHECKING:
    from shelf.testbed.synthesis.llm.production import Production

app = typer.Typer(help="Synthesise and check tasks of your own.", no_args_is_help=True, add_completion=False)

File = Annotated[Path, typer.Argument(help="File of tasks (JSONL).", show_default=False)]
Out = Annotated[Path, option("File to write.", "FILE")]

_INCOMPLETE = 1
"""The exit code of an exploration that gave fewer tasks than requested, unless its endpoint failed."""
_ENDPOINT = (
    "An OpenAI-compatible endpoint (default: OPENAI_BASE_URL, else that of OPENAI_API_KEY or DASHSCOPE_API_KEY)."
)
_asked = partial(option, panel="The model")


@app.command(cls=ListCommand)
def synthesise(
    out: Out,
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 1000,
    seed: Annotated[int, option("The same seed gives the same file.")] = 0,
    level: Annotated[
        Literal["train", "values", "phrases", "paths"],
        option("New to training: nothing, values, some phrases, or paths too."),
    ] = "train",
    documents: Annotated[
        int | None,
        option("Only tasks of 1 or 2 requests and 4 to 6 tools, with documents of at most this many characters.", "N"),
    ] = None,
) -> None:
    """Make verified tasks and write them to a file."""
    from env_service.environments.bfcl.task_file import write_task_file
    from shelf.testbed.synthesis.grammar import Grammar
    from shelf.testbed.synthesis.make import synthesise as make
    from shelf.testbed.synthesis.sampler import short

    with refusing("seal tasks synthesise"):
        sampler = None if documents is None else short(documents)
        write_task_file(make(Grammar(), count, seed, level, sampler), out)
    typer.echo(f"{out}: {count} tasks")


@app.command(cls=ListCommand)
def explore(
    out: Out,
    per_seed: Annotated[int, typer.Option(min=1, help="Tasks per training scenario.")] = 1,
    scenarios: Annotated[
        list[int] | None, option("Training scenarios to start from; all that may be used by default.", "N...")
    ] = None,
    seed: Annotated[int, option("Of the samples.")] = 0,
    max_calls: Annotated[int, typer.Option(min=2, help="Calls of one exploration.")] = 12,
    model: Annotated[str | None, _asked("The model's name at the endpoint.")] = None,
    base_url: Annotated[str | None, _asked(_ENDPOINT)] = None,
    temperature: Annotated[float, _asked("Temperature of calls and messages.")] = 1.0,
    max_tokens: Annotated[int, _asked("Tokens of one answer, thoughts included.")] = 2048,
    max_tokens_total: Annotated[
        int | None, _asked("Limit on the tokens of all prompts and answers for this file.")
    ] = None,
    concurrency: Annotated[int, _asked("Tasks at once.")] = 8,
    timeout: Annotated[float, _asked("Seconds for one attempt at a request.")] = 120.0,
    draws: Annotated[int, _asked("Draws per task before it is given up.")] = 4,
    extra: Annotated[str, _asked('More fields of every request, such as {"enable_thinking": false}.', "JSON")] = "{}",
) -> None:
    """Let a model find tasks in the states of training scenarios.

    It acts there, then says what a user could have wanted. An interrupted command resumes.
    """
    from rich.console import Console

    from shelf.suites.bar import Bar
    from shelf.suites.cli.shared import extra_fields, one_sentence
    from shelf.suites.endpoint import Endpoint, Sampling
    from shelf.testbed.synthesis.llm.explorer import Explorer, seed_tasks
    from shelf.testbed.synthesis.llm.production import RequestSettings, make_file

    console = Console(emoji=False, stderr=True)
    with one_sentence("seal tasks explore"):
        if not model:
            raise ValueError("Name the model that is asked with --model.")
        endpoint = Endpoint.named(base_url, model, extra_fields(extra))
        requests = RequestSettings(endpoint, concurrency, timeout, max_tokens_total, draws)
        explorer = partial(
            Explorer,
            seeds=seed_tasks(scenarios),
            seed=seed,
            most_calls=max_calls,
            sampling=Sampling(temperature, max_tokens=max_tokens),
        )
        count = per_seed * len(explorer.keywords["seeds"])
        with Bar(console) as progress:
            bar = progress.add_task(model, total=count)

            def on_draw(made: Production) -> None:
                said = f"{model}: {made.rejected.total()} rejected, {made.total.total:,} tokens"
                progress.update(bar, completed=len(made.tasks), description=said)

            made = make_file(requests, explorer, count, seed, out, on_draw)
    _tell(made, out)
    if made.stopped or made.given_up:
        failed = made.stopped is not None and made.stopped.kind == "endpoint"
        raise typer.Exit(exits.INFRASTRUCTURE if failed else _INCOMPLETE)


@app.command()
def check(file: File) -> None:
    """Verify ids, references and sources of a file's tasks; exit with 1 if something is wrong."""
    from env_service.environments.bfcl.task_file import parse_task_file
    from shelf.testbed.synthesis.verify import problems

    with refusing("seal tasks check"):
        tasks, bad = parse_task_file(file)
    wrong = [*map(str, bad), *problems(tasks)]
    wrong += [] if tasks or wrong else [f"{file} holds no task: make it with seal tasks synthesise."]
    for problem in wrong:
        typer.echo(problem, err=True)
    if wrong:
        raise typer.Exit(1)
    counts = Counter(f"{task.level} {task.category}" for task in tasks)
    said = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    typer.echo(f"{file}: {len(tasks)} tasks ({said}); the verifier passes every reference and needs each of its calls")


def _tell(made: Production, out: Path) -> None:
    total = made.total
    reasons = ", ".join(f"{reason} {count}" for reason, count in made.rejected.most_common())
    rejected = f" (rejected: {reasons})" if reasons else ""
    typer.echo(f"{out}: {len(made.tasks)} of {made.wanted} tasks, {made.draws} draws{rejected}")
    per_task = f", {total.total / len(made.tasks):,.0f} per task" if made.tasks else ""
    typer.echo(f"{total.requests} requests, {total.read:,} tokens read, {total.written:,} written{per_task}")
    if made.given_up:
        typer.echo(f"{made.given_up} tasks were given up: raise --draws to try again.", err=True)
    if made.stopped:
        typer.echo(made.stopped.sentence, err=True)
