"""`seal evaluate`: play the benchmark or synthesised tasks with a model, and write official result files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from seal.cli.commands import ListCommand, one_sentence, option
from seal.cli.evaluate_suites import app as suites
from seal.settings import EnvServiceSettings
from seal.settings.data import BENCHMARK

if TYPE_CHECKING:
    from seal.data.rows import TaskRow
    from seal.evaluation.benchmark import Evaluation, Outcome
    from seal.evaluation.journal import Journal
    from seal.records.trajectory import TrajectoryRecord

FAILED = 1
SERVICE = EnvServiceSettings()
OFFICIAL_MODEL = "Qwen/Qwen3-8B-FC"
TASKS = f"Play these files of synthesised tasks; `{BENCHMARK}` among them adds the benchmark."

app = typer.Typer(
    help="Evaluate a model on the plain benchmark (BFCL V3 multi-turn), synthesised tasks or official suites.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(suites)


_model = partial(option, panel="The model")
_tasks = partial(option, panel="The tasks")
_how = partial(option, panel="How")


@app.command(cls=ListCommand)
def bfcl(
    base_url: Annotated[str | None, _model("An OpenAI-compatible endpoint (http://host:port/v1).")] = None,
    model: Annotated[str | None, _model("The model's name at the endpoint.")] = None,
    checkpoint: Annotated[Path | None, _model("An HF folder, served here by vLLM.")] = None,
    serve_args: Annotated[str, _model("More options of vllm serve, as one string.")] = "",
    tasks: Annotated[list[str] | None, _tasks(TASKS, "FILE...")] = None,
    split: Annotated[Literal["eval", "train", "all"], _tasks("Side of the benchmark.")] = "eval",
    scheme: Annotated[str, _tasks("How the sides are split: scenario or released_ids.")] = "scenario",
    categories: Annotated[list[str] | None, _tasks("Only these categories.")] = None,
    prefix_turns: Annotated[list[int] | None, _tasks("Only the first k user turns, for each k.")] = None,
    task_file: Annotated[str | None, _tasks("A list of task ids.")] = None,
    limit: Annotated[int | None, _tasks("At most this many tasks of each category.")] = None,
    samples: Annotated[int, _tasks("Rollouts per task (avg@k, pass@k).")] = 1,
    prompt_mode: Annotated[str, _how("Prompt and parser.")] = SERVICE.prompt_mode,
    temperature: Annotated[float | None, _how("Default: 0, or 1 with several samples.")] = None,
    top_p: Annotated[float, _how("Share of the probability that is sampled from.")] = 1.0,
    max_tokens: Annotated[int, _how("Of one assistant message, or what the context leaves.")] = 4096,
    max_steps: Annotated[int, _how("Messages with calls per user turn, like the official tool.")] = 20,
    seed: Annotated[int, _how("Of the samples.")] = 0,
    concurrency: Annotated[int, _how("Rollouts at once.")] = 32,
    timeout: Annotated[float, _how("Seconds for one request.")] = 600.0,
    deadline: Annotated[float, _how("Seconds for one rollout.")] = 1800.0,
    env_url: Annotated[str, _how("The service; started here if nothing answers.")] = SERVICE.env_url,
    out: Annotated[Path | None, _how("Results (default: experiments/eval_MODEL).")] = None,
) -> None:
    """Evaluate a model on the benchmark, or on the synthesised tasks of --tasks.

    Exits with 1 if rollouts failed for reasons other than the policy.
    """
    with one_sentence("seal evaluate bfcl"):
        from seal.chat import Sampling
        from seal.evaluation.benchmark import Evaluation
        from seal.evaluation.episode import EpisodeSettings
        from seal.evaluation.tables import console as wide_console

        if base_url and not model:
            raise ValueError("--base-url needs --model: the name under which the endpoint serves the model.")
        name = model or (checkpoint.resolve().name if checkpoint else "")
        chosen = {"categories": categories, "prefix_turns": prefix_turns, "task_file": task_file, "limit": limit}
        if temperature is None:
            temperature = float(samples > 1)
        evaluation = Evaluation(
            rows=select(split, tasks or (), scheme=scheme, **chosen),
            model=name,
            out=out or Path("experiments") / ("eval_" + re.sub(r"[^\w.-]+", "_", name)),
            base_url=base_url,
            checkpoint=checkpoint,
            serve_args=serve_args,
            samples=samples,
            sampling=Sampling(temperature, top_p, max_tokens),
            episode=EpisodeSettings(prompt_mode, max_steps, deadline, seed),
            env_url=env_url,
            concurrency=concurrency,
            timeout_s=timeout,
            task_files=tuple(name for name in tasks or () if name != BENCHMARK),
        )
        console = wide_console()
        outcome = play(evaluation, name, console)
        _show(outcome, f"{name}, {prompt_mode}", console)
    raise typer.Exit(FAILED if outcome.failed else 0)


@app.command()
def export_bfcl(
    run_or_log: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or one <step>.jsonl.")],
    out: Annotated[Path, option("A folder, the official tool's BFCL_PROJECT_ROOT.")],
    step: Annotated[int | None, option("Of a run: this validation (default: the last).")] = None,
    sample: Annotated[int, option("Which of several samples.")] = 0,
    model: Annotated[str, option("A model that the official tool knows.")] = OFFICIAL_MODEL,
) -> None:
    """Write a validation as the official tool's result files.

    Prefixes and synthesised tasks, which the tool does not know, are left out.
    """
    with one_sentence("seal evaluate export-bfcl"):
        from seal.evaluation.export import export_bfcl, find_log

        made = export_bfcl(find_log(run_or_log, step), out, model, sample)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{made.folder}: {', '.join(f'{category} {count}' for category, count in made.tasks.items())}")
    left_out = [
        (made.prefixes, "rollouts of prefixes", "the official tool plays whole tasks"),
        (made.made, "rollouts of synthesised tasks", "the official tool does not know them"),
        (made.failed, "failed rollouts", "they say nothing about the model"),
    ]
    for count, what, why in left_out:
        if count:
            console.print(f"left out: {count} {what} ({why})")
    categories = ",".join(f"multi_turn_{category}" for category in made.tasks)
    console.print(
        f"Now, in an environment with bfcl-eval and its dependencies:\n  BFCL_PROJECT_ROOT={out} bfcl evaluate "
        f"--model {model} --test-category {categories} --partial-eval"
    )


def select(split: str, tasks: Sequence[str] = (), **filters: Any) -> tuple[TaskRow, ...]:
    """The benchmark's rows of one side, or of both ("all"), that pass the filters of a Selection.

    tasks: files of synthesised tasks, whose rows are selected instead; BENCHMARK among them
    keeps its own.
    """
    from seal.data.selection import Selection, made_rows, selected_rows

    rows: list[TaskRow] = []
    if not tasks or BENCHMARK in tasks:
        for side in ("train", "eval") if split == "all" else (split,):
            rows += selected_rows(Selection.read({**filters, "split": side}))
    for file in dict.fromkeys(tasks):
        if file != BENCHMARK:
            rows += made_rows(file, Selection.read({**filters, "split": "eval"}))
    return tuple(dict.fromkeys(rows))


def play(evaluation: Evaluation, title: str, console: Console) -> Outcome:
    """Run an evaluation under a progress bar."""
    from seal.evaluation.benchmark import evaluate

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    passed = failed = 0
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(title, total=len(evaluation.rows) * evaluation.samples)

        def on_start(journal: Journal) -> None:
            nonlocal passed
            passed = sum(bool(line["score"]) for line in journal.lines.values())
            progress.update(bar, completed=len(journal.finished()))

        def on_rollout(record: TrajectoryRecord) -> None:
            nonlocal passed, failed
            passed += bool(record.score)
            failed += record.infra is not None
            lost = f", {failed} failed" if failed else ""
            progress.update(bar, advance=1, description=f"{title}: {passed} passed{lost}")

        return evaluate(evaluation, on_start, on_rollout)


def _show(outcome: Outcome, title: str, console: Console) -> None:
    from seal.data.suspected import load_suspected
    from seal.evaluation.reach import Ledger, cost_table, spent_record
    from seal.evaluation.summary import summarise, suspected_tasks
    from seal.evaluation.tables import summary_table
    from seal.records.validation import read_log

    log = read_log(outcome.log)
    suspected = suspected_tasks(log.lines, load_suspected())
    less = {(row.step, row.name): row for row in summarise(log, suspected)} if suspected else {}
    console.print(summary_table(summarise(log), title, less))
    if cost := cost_table([spent_record(each, None) for each in Ledger(outcome.log.parents[1], log).spent()]):
        console.print(cost)
    console.print(f"{outcome.played} rollouts played, {outcome.kept} kept from before; log: {outcome.log}")
    if outcome.failed:
        console.print(
            f"{outcome.failed} rollouts failed for reasons other than the policy and are not counted; the same command "
            "plays them again.",
            style="bold red",
        )
