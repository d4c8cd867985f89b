"""`seal evaluate bfcl-v4`, `tau2` and `paper`: official suites, in environments of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from seal.cli.commands import ListCommand, one_sentence, option

if TYPE_CHECKING:
    from seal.evaluation.suites.attempts import Attempts
    from seal.evaluation.suites.attempts import Progress as OnProgress

FAILED = 1
BASE = "Qwen2.5-7B-Instruct"
HANDLER = "Qwen/Qwen3-8B-FC"
ENVS = "Folder of the tools' environments (default: SEAL_ENVS, or ~/.cache/seal/envs)."

app = typer.Typer(add_completion=False)

_model = partial(option, panel="The model")
_user = partial(option, panel="The simulated user")
_tasks = partial(option, panel="The tasks")
_how = partial(option, panel="How")

BaseUrl = Annotated[str | None, _model("An OpenAI-compatible endpoint (http://host:port/v1).")]
Model = Annotated[str | None, _model("The model's name at the endpoint.")]
Checkpoint = Annotated[Path | None, _model("An HF folder, served here by vLLM.")]
ServeArgs = Annotated[str, _model("More options of vllm serve, as one string.")]
Tokenizer = Annotated[Path | None, _model("Folder of the model's tokenizer (default: --checkpoint).")]
Handler = Annotated[str, _model("A model of the official tool that writes calls in the same way.")]
UserBaseUrl = Annotated[str | None, _user("Its OpenAI-compatible endpoint.")]
UserModel = Annotated[str | None, _user("Its name there.")]
UserKey = Annotated[str, _user("The environment variable that holds its key.", "NAME")]
Limit = Annotated[int | None, _tasks("At most this many items of each category.", least=1)]
Concurrency = Annotated[int, _how("Requests or dialogues at once.", least=1)]
Rounds = Annotated[int, _how("Runs of the tool, for what failed technically.", least=1)]
Wait = Annotated[float, _how("Seconds to wait for an endpoint that is down, before each run.")]
Stall = Annotated[float, _how("Seconds without any result after which a run is stopped.")]
Deadline = Annotated[float, _how("Seconds for one run of the tool.")]
Envs = Annotated[Path | None, _how(ENVS, "DIR")]


@app.command("bfcl-v4", cls=ListCommand)
def bfcl_v4(
    base_url: BaseUrl = None,
    model: Model = None,
    checkpoint: Checkpoint = None,
    serve_args: ServeArgs = "",
    tokenizer: Tokenizer = None,
    handler: Handler = HANDLER,
    categories: Annotated[list[str] | None, _tasks("Only these categories or groups (default: all).")] = None,
    limit: Limit = None,
    temperature: Annotated[float, _how("The tool's default is 0.001.")] = 0.001,
    concurrency: Concurrency = 32,
    attempts: Rounds = 3,
    wait: Wait = 120.0,
    stall: Stall = 1800.0,
    deadline: Deadline = 86400.0,
    envs: Envs = None,
    out: Annotated[Path | None, _how("Results (default: experiments/bfcl-v4_MODEL).")] = None,
) -> None:
    """Evaluate a model on BFCL V4 with the official tool.

    Exits with 1 if items have no verdict for technical reasons.
    """
    with one_sentence("seal evaluate bfcl-v4"):
        from seal.evaluation.suites.bfcl_v4.categories import expand
        from seal.evaluation.suites.bfcl_v4.run import BfclV4, evaluate
        from seal.evaluation.suites.endpoint import Model as Evaluated

        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        folder = out or _folder("bfcl-v4", chosen.name)
        source = _tokenizer(tokenizer, checkpoint)
        names = expand(categories or ["all"])
        console, tries = _console(), _attempts(attempts, wait, stall, deadline)
        with chosen.served(folder / "vllm.log") as served, _progress("bfcl-v4", console) as on_progress:
            suite = BfclV4(served, source, folder, names, limit, handler, temperature, concurrency, envs, tries)
            evaluate(suite, _say(console), on_progress)
        failed = _show(folder, console)
    raise typer.Exit(FAILED if failed else 0)


@app.command("tau2", cls=ListCommand)
def tau2(
    base_url: BaseUrl = None,
    model: Model = None,
    checkpoint: Checkpoint = None,
    serve_args: ServeArgs = "",
    user_base_url: UserBaseUrl = None,
    user_model: UserModel = None,
    user_key: UserKey = "OPENAI_API_KEY",
    solo: Annotated[bool, _tasks("Only telecom without a user.")] = False,
    domains: Annotated[
        list[str] | None, _tasks("Of airline, retail, telecom, telecom_solo (default: the first 3).")
    ] = None,
    limit: Limit = None,
    trials: Annotated[int, _tasks("Attempts at each task (pass^k).", least=1)] = 1,
    temperature: Annotated[float, _how("Of the agent.")] = 0.0,
    user_temperature: Annotated[float, _how("Of the simulated user.")] = 0.0,
    seed: Annotated[int, _how("Of the first trial; the next ones count up.")] = 0,
    concurrency: Concurrency = 8,
    timeout: Annotated[float, _how("Seconds for one request.")] = 600.0,
    attempts: Rounds = 3,
    wait: Wait = 120.0,
    stall: Stall = 3600.0,
    deadline: Deadline = 86400.0,
    envs: Envs = None,
    out: Annotated[Path | None, _how("Results (default: experiments/tau2_MODEL).")] = None,
) -> None:
    """Evaluate a model on tau2-bench with the official tool. The endpoint must read tool calls itself.

    Exits with 1 if attempts have no verdict for technical reasons.
    """
    with one_sentence("seal evaluate tau2"):
        from seal.evaluation.suites.endpoint import Model as Evaluated
        from seal.evaluation.suites.tau2.domains import SOLO, WITH_USER
        from seal.evaluation.suites.tau2.run import Tau2, evaluate

        if solo and domains:
            raise ValueError("--solo plays telecom_solo only: leave --domains out, or name telecom_solo in it.")
        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        user = _simulated(user_base_url, user_model, user_key)
        folder = out or _folder("tau2", chosen.name)
        names = (SOLO,) if solo else tuple(domains or WITH_USER)
        console, tries = _console(), _attempts(attempts, wait, stall, deadline)
        with chosen.served(folder / "vllm.log") as served, _progress("tau2", console) as on_progress:
            temperatures = {"temperature": temperature, "user_temperature": user_temperature, "seed": seed}
            how = {"concurrency": concurrency, "timeout_s": timeout, "envs": envs, "attempts": tries, **temperatures}
            evaluate(Tau2(served, folder, user, names, trials, limit, **how), _say(console), on_progress)
        failed = _show(folder, console)
    raise typer.Exit(FAILED if failed else 0)


@app.command("paper", cls=ListCommand)
def paper(
    base_url: BaseUrl = None,
    model: Model = None,
    checkpoint: Checkpoint = None,
    serve_args: ServeArgs = "",
    base: Annotated[str, _model("The base model whose published figures are shown.")] = BASE,
    tokenizer: Tokenizer = None,
    handler: Handler = HANDLER,
    prompt_mode: Annotated[str, _model("Prompt and parser of the multi-turn tasks.")] = "bfcl_qwen_fc",
    user_base_url: UserBaseUrl = None,
    user_model: UserModel = None,
    user_key: UserKey = "OPENAI_API_KEY",
    scheme: Annotated[Literal["scenario", "released_ids"], _tasks("Split of the multi-turn tasks.")] = "scenario",
    limit: Limit = None,
    concurrency: Concurrency = 8,
    attempts: Rounds = 3,
    wait: Wait = 120.0,
    stall: Stall = 3600.0,
    deadline: Deadline = 86400.0,
    env_url: Annotated[str | None, _how("The environment service; started here if nothing answers.")] = None,
    envs: Envs = None,
    json: Annotated[Path | None, _how("The table as JSON.", "FILE")] = None,
    out: Annotated[Path | None, _how("Results (default: experiments/paper_MODEL).")] = None,
) -> None:
    """Measure what the paper reports for one model, and show it beside the published figures.

    A suite that cannot run is a row that says why. Exits with 1 if anything is missing.
    """
    with one_sentence("seal evaluate paper"):
        from seal.evaluation.suites.endpoint import Model as Evaluated
        from seal.evaluation.suites.paper import paper_record, paper_rows, paper_table
        from seal.evaluation.suites.reproduce import Reproduction, differences, reproduce
        from seal.files import write_json
        from seal.settings import EnvServiceSettings

        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        user = _simulated(user_base_url, user_model, user_key)
        folder = out or _folder("paper", chosen.name)
        plan = Reproduction(
            model=chosen,
            out=folder,
            tokenizer=tokenizer or checkpoint,
            handler=handler,
            prompt_mode=prompt_mode,
            user=user,
            scheme=scheme,
            limit=limit,
            concurrency=concurrency,
            env_url=env_url or EnvServiceSettings().env_url,
            envs=envs,
            attempts=_attempts(attempts, wait, stall, deadline),
        )
        paper_rows(base, (), {}, {}, {})  # refuses an unknown base before anything runs
        console = _console()
        found = reproduce(plan, _say(console), partial(_progress, console=console))
        rows = paper_rows(base, found.records, found.heads, differences(plan, found.heads), found.failed)
        console.print(paper_table(rows, chosen.name, base))
        console.print(f"results: {folder}; `seal stats --val-dir {folder}` shows every category", highlight=False)
        if json:
            write_json({"model": chosen.name, "base": base, "rows": [paper_record(row) for row in rows]}, json)
    raise typer.Exit(FAILED if any(row.ours is None or not row.ours.complete for row in rows) else 0)


def _simulated(base_url: str | None, model: str | None, key_variable: str):
    from seal.evaluation.suites.endpoint import Served

    if (base_url is None) != (model is None):
        raise ValueError("--user-base-url and --user-model belong together: give both or neither.")
    return Served(base_url, model, key_variable) if base_url and model else None


def _tokenizer(folder: Path | None, checkpoint: Path | None) -> Path:
    if folder is None and checkpoint is None:
        raise ValueError(
            "--base-url needs --tokenizer: a folder with the model's config.json and tokenizer, to count tokens with "
            "(`hf download MODEL --exclude '*.safetensors' --local-dir DIR`)."
        )
    return folder or checkpoint or Path()


def _attempts(rounds: int, wait: float, stall: float, deadline: float) -> Attempts:
    from seal.evaluation.suites.attempts import Attempts
    from seal.evaluation.suites.process import Deadlines

    return Attempts(rounds, wait, Deadlines(deadline, stall))


def _folder(suite: str, name: str) -> Path:
    safe = re.sub(r"[^\w.-]+", "_", name)
    return Path("experiments") / f"{suite}_{safe}"


def _console() -> Console:
    from seal.evaluation.tables import console

    return console()


def _say(console: Console) -> Callable[[str], None]:
    return partial(console.print, highlight=False, soft_wrap=True)


@contextmanager
def _progress(title: str, console: Console) -> Iterator[OnProgress]:
    """A progress bar, moved by what it yields."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _show(folder: Path, console: Console) -> bool:
    """Print the results of a suite; returns whether attempts have no verdict."""
    from seal.evaluation.suites.stats import summarise_results
    from seal.records.suite import read_results

    for part in summarise_results(str(folder)).tables:
        console.print(part, highlight=False)
    failed = sum(item.infra is not None for item in read_results(folder).items)
    if failed:
        console.print(f"The same command plays the {failed} attempts without a verdict again.", style="bold red")
    return failed > 0
