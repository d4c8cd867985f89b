"""`seal evaluate bfcl-v4`, `tau2` and `agentdojo`: official suites, in environments of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import ListCommand
from shelf.suites.cli.evaluate_options import (
    FAILED,
    BaseUrl,
    Checkpoint,
    Concurrency,
    Deadline,
    Envs,
    Handler,
    Limit,
    Model,
    Rounds,
    ServeArgs,
    Stall,
    Tokenizer,
    UserBaseUrl,
    UserKey,
    UserModel,
    Wait,
    attempts_of,
    default_folder,
    of_how,
    of_tasks,
    plain_console,
    printing,
    progress_bar,
    show_results,
    simulated_user,
)
from shelf.suites.cli.interruptible import one_sentence

HANDLER = "Qwen/Qwen3-8B-FC"

app = typer.Typer(add_completion=False)


@app.command("bfcl-v4", cls=ListCommand)
def bfcl_v4(
    base_url: BaseUrl = None,
    model: Model = None,
    checkpoint: Checkpoint = None,
    serve_args: ServeArgs = "",
    tokenizer: Tokenizer = None,
    handler: Handler = HANDLER,
    categories: Annotated[list[str] | None, of_tasks("Only these categories or groups (default: all).")] = None,
    limit: Limit = None,
    temperature: Annotated[float, of_how("The tool's default is 0.001.")] = 0.001,
    concurrency: Concurrency = 32,
    attempts: Rounds = 3,
    wait: Wait = 120.0,
    stall: Stall = 1800.0,
    deadline: Deadline = 86400.0,
    envs: Envs = None,
    out: Annotated[Path | None, of_how("Results (default: experiments/bfcl-v4_MODEL).")] = None,
) -> None:
    """Evaluate a model on BFCL V4 with the official tool.

    Exits with 1 if items have no verdict for technical reasons.
    """
    with one_sentence("seal evaluate bfcl-v4"):
        from shelf.suites.bfcl_v4.categories import expand
        from shelf.suites.bfcl_v4.run import BfclV4, evaluate
        from shelf.suites.endpoint import Model as Evaluated

        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        folder = out or default_folder("bfcl-v4", chosen.name)
        source = _tokenizer(tokenizer, checkpoint)
        names = expand(categories or ["all"])
        console, tries = plain_console(), attempts_of(attempts, wait, stall, deadline)
        with chosen.served(folder / "vllm.log") as served, progress_bar("bfcl-v4", console) as on_progress:
            suite = BfclV4(served, source, folder, names, limit, handler, temperature, concurrency, envs, tries)
            evaluate(suite, printing(console), on_progress)
        failed = show_results(folder, console)
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
    solo: Annotated[bool, of_tasks("Only telecom without a user.")] = False,
    domains: Annotated[
        list[str] | None, of_tasks("Of airline, retail, telecom, telecom_solo (default: the first 3).")
    ] = None,
    limit: Limit = None,
    trials: Annotated[int, of_tasks("Attempts at each task (pass^k).", least=1)] = 1,
    temperature: Annotated[float, of_how("Of the agent.")] = 0.0,
    user_temperature: Annotated[float, of_how("Of the simulated user.")] = 0.0,
    seed: Annotated[int, of_how("Seed of the first trial; later trials count up.")] = 0,
    concurrency: Concurrency = 8,
    timeout: Annotated[float, of_how("Seconds for one request.")] = 600.0,
    attempts: Rounds = 3,
    wait: Wait = 120.0,
    stall: Stall = 3600.0,
    deadline: Deadline = 86400.0,
    envs: Envs = None,
    out: Annotated[Path | None, of_how("Results (default: experiments/tau2_MODEL).")] = None,
) -> None:
    """Evaluate a model on tau2-bench with the official tool. The endpoint must read tool calls itself.

    Exits with 1 if attempts have no verdict for technical reasons.
    """
    with one_sentence("seal evaluate tau2"):
        from shelf.suites.endpoint import Model as Evaluated
        from shelf.suites.tau2.domains import SOLO, WITH_USER
        from shelf.suites.tau2.run import Tau2, evaluate

        if solo and domains:
            raise ValueError("--solo plays telecom_solo only: leave --domains out, or name telecom_solo in it.")
        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        user = simulated_user(user_base_url, user_model, user_key)
        folder = out or default_folder("tau2", chosen.name)
        names = (SOLO,) if solo else tuple(domains or WITH_USER)
        console, tries = plain_console(), attempts_of(attempts, wait, stall, deadline)
        with chosen.served(folder / "vllm.log") as served, progress_bar("tau2", console) as on_progress:
            temperatures = {"temperature": temperature, "user_temperature": user_temperature, "seed": seed}
            how = {"concurrency": concurrency, "timeout_s": timeout, "envs": envs, "attempts": tries, **temperatures}
            evaluate(Tau2(served, folder, user, names, trials, limit, **how), printing(console), on_progress)
        failed = show_results(folder, console)
    raise typer.Exit(FAILED if failed else 0)


def _tokenizer(folder: Path | None, checkpoint: Path | None) -> Path:
    if folder is None and checkpoint is None:
        raise ValueError(
            "--base-url needs --tokenizer: a folder with the model's config.json and tokenizer, to count tokens with "
            "(`hf download MODEL --exclude '*.safetensors' --local-dir DIR`)."
        )
    return folder or checkpoint or Path()
