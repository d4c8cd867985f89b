"""`seal evaluate`: play the benchmark or synthesised tasks with a model, and write official result files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from shlex import split as split_words
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from seal.cli.commands import option
from seal.settings import EnvServiceSettings
from seal.settings.data import BENCHMARK
from shelf.list_command import ListCommand
from shelf.suites import OFFICIAL_TOOL_CALLS
from shelf.suites.bar import Bar
from shelf.suites.cli import shared
from shelf.suites.cli.evaluate_suites import app as suites

if TYPE_CHECKING:
    from seal.data.rows import TaskRow
    from seal.records.trajectory import TrajectoryRecord
    from seal.rollout.harness.task import Harness
    from shelf.suites.benchmark import Evaluation, EvaluationOutcome
    from shelf.suites.journal import Journal

SERVICE = EnvServiceSettings()
TASKS = f"Play these files of synthesised tasks; `{BENCHMARK}` among them adds the benchmark."

OFFICIAL_STEPS = 20
"""The benchmark's limit of messages with calls per user turn."""


class EnvironmentGroup(TyperGroup):
    """The commands, and the benchmark's command for every further environment: `seal evaluate ENVIRONMENT`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name."""
        from env_service.environments.registry import locations

        return super().get_command(ctx, cmd_name) or (
            super().get_command(ctx, BENCHMARK) if cmd_name in locations() else None
        )


app = typer.Typer(
    cls=EnvironmentGroup,
    help="Evaluate a model on the plain benchmark (BFCL V3 multi-turn), synthesised tasks, another environment (by its "
    "name: `seal env list`) or official suites.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(suites)


@app.command(cls=ListCommand)
def bfcl(
    ctx: typer.Context,
    base_url: shared.BaseUrl = None,
    model: shared.Model = None,
    checkpoint: shared.Checkpoint = None,
    serve_args: shared.ServeArgs = "",
    tasks: Annotated[list[str] | None, shared.of_tasks(TASKS, "FILE...")] = None,
    split: Annotated[Literal["eval", "train", "all"], shared.of_tasks("Side of the benchmark.")] = "eval",
    categories: Annotated[list[str] | None, shared.of_tasks("Only these categories.")] = None,
    prefix_turns: Annotated[list[int] | None, shared.of_tasks("Only the first k user turns, for each k.")] = None,
    task_file: Annotated[str | None, shared.of_tasks("A list of task ids.")] = None,
    limit: Annotated[int | None, shared.of_tasks("At most this many tasks of each category.")] = None,
    samples: Annotated[int, shared.of_tasks("Rollouts per task (avg@k, pass@k).")] = 1,
    prompt_mode: Annotated[str | None, shared.of_how("Prompt and parser (default: the environment's first).")] = None,
    harness: Annotated[
        str | None, shared.of_how("Play with your agent: module:function, or a command in quotes (docs/harness.md).")
    ] = None,
    user_base_url: Annotated[
        str | None, shared.of_user("The endpoint of a model that plays the users; its key is in SEAL_USER_API_KEY.")
    ] = None,
    user_model: Annotated[str, shared.of_user("Its name there.")] = "",
    user_temperature: Annotated[float, shared.of_user("Of its messages.", least=0)] = 0.0,
    temperature: Annotated[float | None, shared.of_how("Default: 0, or 1 with several samples.")] = None,
    top_p: Annotated[float | None, shared.of_how("Share of the probability mass to sample from (default: 1).")] = None,
    max_tokens: Annotated[
        int | None, shared.of_how("Tokens of one assistant message, or what the context leaves (default: 4096).")
    ] = None,
    max_steps: Annotated[
        int | None, shared.of_how("Messages with calls per user turn (default: the environment's; bfcl: 20).", least=1)
    ] = None,
    extra: Annotated[
        str | None, shared.of_how('More fields of each request, as JSON: {"enable_thinking": false}.')
    ] = None,
    seed: Annotated[int | None, shared.of_how("Of the samples (default: 0).")] = None,
    concurrency: Annotated[int, shared.of_how("Rollouts at once.")] = 32,
    timeout: Annotated[float, shared.of_how("Seconds for one request.")] = 600.0,
    wait: Annotated[
        float | None, shared.of_how("Seconds to wait for an endpoint that goes down (default: 60).", least=0)
    ] = None,
    deadline: Annotated[float, shared.of_how("Seconds for one rollout.")] = 1800.0,
    env_url: Annotated[str, shared.of_how("The service; started here if nothing answers.")] = SERVICE.env_url,
    out: Annotated[Path | None, shared.of_how("Results (default: experiments/eval_MODEL, or eval_NAME_MODEL).")] = None,
) -> None:
    """Evaluate a model on an environment: on bfcl, or on the one named in its place.

    Exits with 1 if rollouts failed for reasons other than the policy.
    """
    environment = ctx.info_name or BENCHMARK
    with shared.one_sentence(f"seal evaluate {environment}"):
        from env_service.environments.kit.tool_calls import MODE, NATIVE
        from env_service.environments.registry import get_environment
        from seal.settings.user import UserSettings
        from shelf.statistics.tables import console as wide_console
        from shelf.suites.benchmark import EpisodeSettings, Evaluation
        from shelf.suites.endpoint import EvaluatedModel, Sampling

        named = EvaluatedModel.named(model, base_url, checkpoint, serve_args)
        chosen = {"categories": categories, "prefix_turns": prefix_turns, "task_file": task_file, "limit": limit}
        given = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        own = {
            name for name, value in {**given, "seed": seed, "wait": wait, "extra": extra}.items() if value is not None
        }
        if harness and own:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(own))
            raise ValueError(f"{options} is for SEAL's own requests: with --harness the agent decides; set it there.")
        sampling = {"temperature": float(samples > 1)} | {
            name: given[name] for name in given if given[name] is not None
        }
        if environment == BENCHMARK:
            max_steps = max_steps or OFFICIAL_STEPS
        mode = prompt_mode or get_environment(environment).formats[0]
        if mode == NATIVE:
            raise ValueError(
                f"--prompt-mode {NATIVE} is for training, where SEAL has the model's template: evaluate the model with "
                f"--prompt-mode {MODE} on a server that reads its calls (vLLM: --tool-call-parser)."
            )
        told = {"base_url": user_base_url, "model": user_model, "temperature": user_temperature, "timeout_s": timeout}
        params = ({"native": True} if harness else {}) | ({"user": True} if user_base_url else {})
        suite = "eval" if environment == BENCHMARK else f"eval_{environment}"
        evaluation = Evaluation(
            rows=select(split, tasks or (), environment, **chosen),
            model=named,
            out=out or shared.default_folder(suite, named.name),
            samples=samples,
            sampling=Sampling(**sampling),
            episode=EpisodeSettings(mode, max_steps, deadline, seed or 0, params),
            env_url=env_url,
            concurrency=concurrency,
            timeout_s=timeout,
            wait_s=60.0 if wait is None else wait,
            harness=None if harness is None else named_harness(harness),
            task_files=tuple(name for name in tasks or () if name != BENCHMARK),
            extra=shared.extra_fields(extra or "{}"),
            user=UserSettings.read(told, "seal.user"),
        )
        console = wide_console(highlight=False)
        outcome = _play(evaluation, named.name, console)
        _show(outcome, f"{named.name}, {mode}", console, reads_calls=not harness)
    raise typer.Exit(shared.FAILED if outcome.failed else 0)


def named_harness(text: str) -> Harness:
    """`module:function`, or the words of a command, with shell quotes around words that contain spaces."""
    if which(text):
        return [text]
    try:
        words = split_words(text)
    except ValueError as error:
        raise ValueError(f"--harness {text!r} is not a command ({error}): close each quote, as in a shell.") from None
    if not words:
        raise ValueError("--harness is empty: name module:function, or a command in quotes.")
    return words if len(words) > 1 or which(words[0]) else words[0]


@app.command()
def export_bfcl(
    run_or_log: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or one <step>.jsonl.")],
    out: Annotated[Path, option("A folder, the official tool's BFCL_PROJECT_ROOT.")],
    step: Annotated[int | None, option("Of a run: this validation (default: the last).")] = None,
    sample: Annotated[int, option("Which of several samples.")] = 0,
    model: Annotated[
        str | None, option("A model that the official tool knows (default: one that writes as the log).")
    ] = None,
) -> None:
    """Write a validation as the official tool's result files.

    Prefixes and synthesised tasks, which the tool does not know, are left out.
    """
    with shared.one_sentence("seal evaluate export-bfcl"):
        from shelf.suites.bfcl.export import export_bfcl, find_log

        made = export_bfcl(find_log(run_or_log, step), out, model, sample)
    console = Console(emoji=False, soft_wrap=True, highlight=False)
    console.print(f"{made.folder}: {', '.join(f'{category} {count}' for category, count in made.tasks.items())}")
    for what, count in made.left_out.items():
        console.print(f"left out: {count} {what}")
    categories = ",".join(f"multi_turn_{category}" for category in made.tasks)
    key = " OPENAI_API_KEY=none" if made.model == OFFICIAL_TOOL_CALLS else ""  # its handler requires one
    console.print(
        f"Now, in an environment with bfcl-eval and its dependencies:\n  BFCL_PROJECT_ROOT={quote(str(out))}{key} "
        f"bfcl evaluate --model {quote(made.model)} --test-category {categories} --partial-eval"
    )


def select(split: str, tasks: Sequence[str] = (), environment: str = BENCHMARK, **filters: Any) -> tuple[TaskRow, ...]:
    """An environment's rows of one side, or of both ("all"), that pass the filters of a Selection.

    tasks: files of synthesised tasks, whose rows are selected instead; with BENCHMARK among
    them, its own rows stay.
    """
    from env_service.environments.registry import locations
    from seal.data.selection import Selection, made_rows, selected_rows

    for name in tasks:
        if environment != BENCHMARK or (name != BENCHMARK and name in locations()):
            named = name if environment == BENCHMARK else environment
            raise ValueError(f"--tasks names files of the benchmark's kind: play {named} with `seal evaluate {named}`.")
    rows: list[TaskRow] = []
    if not tasks or BENCHMARK in tasks:
        for side in ("train", "eval") if split == "all" else (split,):
            rows += selected_rows(Selection.read({**filters, "split": side}), environment)
    for file in dict.fromkeys(tasks):
        if file != BENCHMARK:
            rows += made_rows(file, Selection.read({**filters, "split": "eval"}))
    return tuple(dict.fromkeys(rows))


def _play(evaluation: Evaluation, title: str, console: Console) -> EvaluationOutcome:
    """Run an evaluation under a progress bar."""
    from shelf.suites.benchmark import evaluate

    passed = failed = 0
    with Bar(console, "played") as progress:
        bar = progress.add_task(f"{title}: 0 passed", total=len(evaluation.rows) * evaluation.samples)

        def on_start(journal: Journal) -> None:
            nonlocal passed
            passed = sum(bool(line["score"]) for line in journal.lines.values())
            progress.update(bar, completed=len(journal.finished()), description=f"{title}: {passed} passed")

        def on_rollout(record: TrajectoryRecord) -> None:
            nonlocal passed, failed
            passed += bool(record.score)
            failed += record.infra is not None
            lost = f", {failed} not run" if failed else ""
            progress.update(bar, advance=record.infra is None, description=f"{title}: {passed} passed{lost}")

        return evaluate(evaluation, on_start, on_rollout)


def _show(outcome: EvaluationOutcome, title: str, console: Console, reads_calls: bool) -> None:
    from seal.records.trajectory import count_tokens
    from seal.rollout.speaker import REFUSAL
    from shelf.statistics.log import read_log
    from shelf.statistics.summary import load_suspected, summarise, suspected_tasks
    from shelf.statistics.tables import summary_table
    from shelf.suites.endpoint import ADDED, ADDITIONS, LEFT_OUT
    from shelf.suites.unread import unread

    log = read_log(outcome.log)
    suspected = suspected_tasks(log.lines, load_suspected())
    less = {(row.step, row.name): row for row in summarise(log, suspected)} if suspected else {}
    console.print(summary_table(summarise(log), title, less))
    say = partial(console.print, soft_wrap=True)
    known = " and ".join(f"{count:,} {way}" for way, count in count_tokens(log.lines).items() if count)
    tokens = f" (tokens: {known})" if known else ""  # the tokens of a harness are not known
    say(f"{outcome.played} rollouts played, {outcome.kept} kept from before{tokens}; log: {outcome.log}")
    for name, other in outcome.replaced.items():
        if other == ADDED:
            say(ADDITIONS[name])
            continue
        sent = "its own value counts" if other == LEFT_OUT else f"{other} was sent in its place"
        say(f"The endpoint does not take {name}: {sent}.")
    for stop, what in {REFUSAL: "ended with a refusal", "length": "exceeded the endpoint's context"}.items():
        if ended := [line.infra_message for line in log.lines if line.stop == stop and line.infra_message]:
            say(f"{len(ended)} rollouts {what} and count as failed: {ended[0]}")
    if reads_calls and (sentence := unread(log.lines).sentence):
        say(sentence, style="bold yellow")
    if outcome.failed:
        say(
            f"{outcome.failed} rollouts failed for reasons other than the policy and are not counted; the same command "
            "plays them again.",
            style="bold red",
        )
        causes = {line.infra: line.infra_message for line in log.lines if line.infra is not None}
        for cause, example in causes.items():
            say(f"{cause}: {example}")
