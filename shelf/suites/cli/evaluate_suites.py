"""`seal evaluate bfcl-v4` and `tau2`: official suites, in separate environments; `show` and `compare` results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from seal.cli.commands import option, refusing
from shelf.list_command import ListCommand
from shelf.suites import OFFICIAL_MODEL
from shelf.suites.cli import shared

if TYPE_CHECKING:
    from shelf.suites.report import Report
    from shelf.suites.runner import Plan, Suite

FOLDERS = "Folders of results to compare with the first; commas join the seeds of one side."

Tokenizer = Annotated[Path | None, shared.of_model("Folder of the model's tokenizer (default: --checkpoint).")]
Handler = Annotated[str, shared.of_model("A model of the official tool that writes calls in the same way.")]
UserBaseUrl = Annotated[str | None, shared.of_user("Its OpenAI-compatible endpoint.")]
UserModel = Annotated[str | None, shared.of_user("Its name there.")]
UserKey = Annotated[str, shared.of_user("The environment variable that holds its key.", "NAME")]
JsonFile = Annotated[Path | None, option("The figures as JSON.", "FILE")]

app = typer.Typer(add_completion=False)


@app.command("bfcl-v4", cls=ListCommand)
def bfcl_v4(
    base_url: shared.BaseUrl = None,
    model: shared.Model = None,
    checkpoint: shared.Checkpoint = None,
    serve_args: shared.ServeArgs = "",
    tokenizer: Tokenizer = None,
    handler: Handler = OFFICIAL_MODEL,
    categories: Annotated[list[str] | None, shared.of_tasks("Only these categories or groups (default: all).")] = None,
    limit: shared.Limit = None,
    temperature: Annotated[float, shared.of_how("The tool's default is 0.001.")] = 0.001,
    concurrency: shared.Concurrency = 32,
    attempts: shared.Rounds = 3,
    wait: shared.Wait = 120.0,
    stall: shared.Stall = 1800.0,
    deadline: shared.Deadline = 86400.0,
    envs: shared.Envs = None,
    out: shared.Out = None,
) -> None:
    """Evaluate a model on BFCL V4 with the official tool.

    Exits with 1 if items have no verdict for technical reasons.
    """

    def suite(plan: Plan) -> Suite:
        from shelf.suites.bfcl_v4.categories import expand
        from shelf.suites.bfcl_v4.run import BfclV4

        return BfclV4(plan, expand(categories or ["all"]), tokenizer or checkpoint, handler, temperature)

    how = {"limit": limit, "concurrency": concurrency, "envs": envs, "rounds": attempts, "wait_s": wait}
    how |= {"stall_s": stall, "deadline_s": deadline}
    _evaluate("bfcl-v4", (model, base_url, checkpoint, serve_args), out, suite, how)


@app.command("tau2", cls=ListCommand)
def tau2(
    base_url: shared.BaseUrl = None,
    model: shared.Model = None,
    checkpoint: shared.Checkpoint = None,
    serve_args: shared.ServeArgs = "",
    user_base_url: UserBaseUrl = None,
    user_model: UserModel = None,
    user_key: UserKey = "OPENAI_API_KEY",
    solo: Annotated[bool, shared.of_tasks("Only telecom without a user.")] = False,
    domains: Annotated[
        list[str] | None, shared.of_tasks("Of airline, retail, telecom, telecom_solo (default: the first 3).")
    ] = None,
    limit: shared.Limit = None,
    trials: Annotated[int, shared.of_tasks("Attempts at each task (pass^k).", least=1)] = 1,
    temperature: Annotated[float, shared.of_how("Of the agent.")] = 0.0,
    user_temperature: Annotated[float, shared.of_how("Of the simulated user.")] = 0.0,
    seed: Annotated[int, shared.of_how("Seed of the first trial; later trials count up.")] = 0,
    concurrency: shared.Concurrency = 8,
    timeout: Annotated[float, shared.of_how("Seconds for one request.")] = 600.0,
    attempts: shared.Rounds = 3,
    wait: shared.Wait = 120.0,
    stall: shared.Stall = 3600.0,
    deadline: shared.Deadline = 86400.0,
    envs: shared.Envs = None,
    out: shared.Out = None,
) -> None:
    """Evaluate a model on tau2-bench with the official tool. The endpoint must read tool calls itself.

    Exits with 1 if attempts have no verdict for technical reasons.
    """

    def suite(plan: Plan) -> Suite:
        from shelf.suites.endpoint import Endpoint
        from shelf.suites.tau2.run import SOLO, WITH_USER, Tau2

        if solo and domains:
            raise ValueError("--solo plays telecom_solo only: leave --domains out, or name telecom_solo in it.")
        if (user_base_url is None) != (user_model is None):
            raise ValueError("--user-base-url and --user-model belong together: give both or neither.")
        user = Endpoint(user_base_url, user_model, user_key) if user_base_url and user_model else None
        names = (SOLO,) if solo else tuple(domains or WITH_USER)
        return Tau2(plan, names, user, trials, temperature, user_temperature, seed, timeout)

    how = {"limit": limit, "concurrency": concurrency, "envs": envs, "rounds": attempts, "wait_s": wait}
    how |= {"stall_s": stall, "deadline_s": deadline}
    _evaluate("tau2", (model, base_url, checkpoint, serve_args), out, suite, how)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of an evaluation of a suite.")],
    json: JsonFile = None,
) -> None:
    """Tabulate the results of an official suite."""
    with refusing("seal evaluate show"):
        from shelf.suites.report import summarise_results

        _print(summarise_results(folder), json)


@app.command()
def compare(
    folders: Annotated[list[str], typer.Argument(metavar="DIR...", help=FOLDERS)], json: JsonFile = None
) -> None:
    """Compare models on an official suite: paired differences with intervals."""
    with refusing("seal evaluate compare"):
        from shelf.suites.report import compare_results

        _print(compare_results(folders), json)


def _evaluate(
    name: str,
    model: tuple[str | None, str | None, Path | None, str],
    out: Path | None,
    suite_of: Callable[[Plan], Suite],
    how: dict[str, Any],
) -> None:
    """Run a suite under a progress bar and show its results; exits with 1 if attempts have no verdict."""
    with shared.one_sentence(f"seal evaluate {name}"):
        from shelf.statistics.tables import console as wide_console
        from shelf.suites.bar import Bar
        from shelf.suites.endpoint import Endpoint, EvaluatedModel
        from shelf.suites.records import read_results
        from shelf.suites.report import summarise_results
        from shelf.suites.runner import Plan, evaluate

        chosen, console = EvaluatedModel.named(*model), wide_console()
        folder = out or shared.default_folder(name, chosen.name)
        suite = suite_of(Plan(Endpoint(chosen.base_url or "", chosen.name), folder, chosen, **how))
        with chosen.served(folder / "vllm.log", reads_calls=True) as endpoint, Bar(console) as progress:
            bar = progress.add_task(name, total=None)
            say = partial(console.print, highlight=False, soft_wrap=True)
            suite.plan = replace(suite.plan, served=endpoint)
            evaluate(suite, say, lambda done, total: progress.update(bar, completed=done, total=total))
        _print(summarise_results(folder), None)
        failed = sum(item.infra is not None for item in read_results(folder).items)
        if failed:
            console.print(f"The same command plays the {failed} attempts without a verdict again.", style="bold red")
    raise typer.Exit(shared.FAILED if failed else 0)


def _print(report: Report, json: Path | None) -> None:
    from seal.system.files import write_json
    from shelf.statistics.tables import console as wide_console

    console: Console = wide_console()
    for part in report.tables:
        console.print(part, highlight=False)
    if json:
        write_json(report.records, json)
        console.print(f"wrote {json}", highlight=False)
