"""`seal evaluate paper`: what the paper reports for one model, beside the published figures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

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
    of_model,
    of_tasks,
    plain_console,
    printing,
    progress_bar,
    simulated_user,
)
from shelf.suites.cli.evaluate_suites import HANDLER
from shelf.suites.cli.interruptible import one_sentence

BASE = "Qwen2.5-7B-Instruct"

app = typer.Typer(add_completion=False)


@app.command("paper", cls=ListCommand)
def paper(
    base_url: BaseUrl = None,
    model: Model = None,
    checkpoint: Checkpoint = None,
    serve_args: ServeArgs = "",
    base: Annotated[str, of_model("The base model whose published figures are shown.")] = BASE,
    tokenizer: Tokenizer = None,
    handler: Handler = HANDLER,
    prompt_mode: Annotated[str, of_model("Prompt and parser of the multi-turn tasks.")] = "bfcl_qwen_fc",
    user_base_url: UserBaseUrl = None,
    user_model: UserModel = None,
    user_key: UserKey = "OPENAI_API_KEY",
    scheme: Annotated[Literal["scenario", "released_ids"], of_tasks("Split of the multi-turn tasks.")] = "scenario",
    limit: Limit = None,
    concurrency: Concurrency = 8,
    attempts: Rounds = 3,
    wait: Wait = 120.0,
    stall: Stall = 3600.0,
    deadline: Deadline = 86400.0,
    env_url: Annotated[str | None, of_how("The environment service; started here if nothing answers.")] = None,
    envs: Envs = None,
    json: Annotated[Path | None, of_how("The table as JSON.", "FILE")] = None,
    out: Annotated[Path | None, of_how("Results (default: experiments/paper_MODEL).")] = None,
) -> None:
    """Measure what the paper reports for one model, and show it beside the published figures.

    A suite that cannot run gets a row that says why. Exits with 1 if anything is missing.
    """
    with one_sentence("seal evaluate paper"):
        from seal.settings import EnvServiceSettings
        from seal.system.files import write_json
        from shelf.suites.endpoint import Model as Evaluated
        from shelf.suites.paper import paper_record, paper_rows, paper_table
        from shelf.suites.reproduce import Reproduction, differences, reproduce

        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        user = simulated_user(user_base_url, user_model, user_key)
        folder = out or default_folder("paper", chosen.name)
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
            attempts=attempts_of(attempts, wait, stall, deadline),
        )
        paper_rows(base, (), {}, {}, {})  # refuses an unknown base before anything runs
        console = plain_console()
        found = reproduce(plan, printing(console), partial(progress_bar, console=console))
        rows = paper_rows(base, found.records, found.heads, differences(plan, found.heads), found.failed)
        console.print(paper_table(rows, chosen.name, base))
        console.print(f"results: {folder}; `seal stats --val-dir {folder}` shows every category", highlight=False)
        if json:
            write_json({"model": chosen.name, "base": base, "rows": [paper_record(row) for row in rows]}, json)
    raise typer.Exit(FAILED if any(row.ours is None or not row.ours.complete for row in rows) else 0)
