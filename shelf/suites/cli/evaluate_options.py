"""What the commands of `seal evaluate` share: options by heading, a progress bar, and tables of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from seal.cli.commands import option

if TYPE_CHECKING:
    from shelf.suites.attempts import Attempts
    from shelf.suites.attempts import Progress as OnProgress
    from shelf.suites.endpoint import Served

FAILED = 1
"""The exit code if attempts have no verdict for technical reasons."""

ENVS = "Folder of the tools' environments (default: SEAL_ENVS, or ~/.cache/seal/envs)."

of_model = partial(option, panel="The model")
of_user = partial(option, panel="The simulated user")
of_tasks = partial(option, panel="The tasks")
of_how = partial(option, panel="How")

BaseUrl = Annotated[str | None, of_model("An OpenAI-compatible endpoint (http://host:port/v1).")]
Model = Annotated[str | None, of_model("The model's name at the endpoint.")]
Checkpoint = Annotated[Path | None, of_model("An HF folder, served here by vLLM.")]
ServeArgs = Annotated[str, of_model("More options of vllm serve, as one string.")]
Tokenizer = Annotated[Path | None, of_model("Folder of the model's tokenizer (default: --checkpoint).")]
Handler = Annotated[str, of_model("A model of the official tool that writes calls in the same way.")]
UserBaseUrl = Annotated[str | None, of_user("Its OpenAI-compatible endpoint.")]
UserModel = Annotated[str | None, of_user("Its name there.")]
UserKey = Annotated[str, of_user("The environment variable that holds its key.", "NAME")]
Limit = Annotated[int | None, of_tasks("At most this many items of each category.", least=1)]
Concurrency = Annotated[int, of_how("Requests or dialogues at once.", least=1)]
Rounds = Annotated[int, of_how("Runs of the tool, for what failed technically.", least=1)]
Wait = Annotated[float, of_how("Seconds to wait for an endpoint that is down, before each run.")]
Stall = Annotated[float, of_how("Seconds without any result after which a run is stopped.")]
Deadline = Annotated[float, of_how("Seconds for one run of the tool.")]
Envs = Annotated[Path | None, of_how(ENVS, "DIR")]


def simulated_user(base_url: str | None, model: str | None, key_variable: str) -> Served | None:
    """The simulated user that a command line names; ValueError if it names half of one."""
    from shelf.suites.endpoint import Served

    if (base_url is None) != (model is None):
        raise ValueError("--user-base-url and --user-model belong together: give both or neither.")
    return Served(base_url, model, key_variable) if base_url and model else None


def attempts_of(rounds: int, wait: float, stall: float, deadline: float) -> Attempts:
    """How often a suite runs its tool, from the options in seconds."""
    from shelf.suites.attempts import Attempts
    from shelf.suites.process import Deadlines

    return Attempts(rounds, wait, Deadlines(deadline, stall))


def default_folder(suite: str, name: str) -> Path:
    """Where results are written unless --out says so."""
    safe = re.sub(r"[^\w.-]+", "_", name)
    return Path("experiments") / f"{suite}_{safe}"


def plain_console() -> Console:
    """The console of all tables."""
    from seal.statistics.tables import console

    return console()


def printing(console: Console) -> Callable[[str], None]:
    """What prints sentences as they are."""
    return partial(console.print, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str, console: Console) -> Iterator[OnProgress]:
    """A progress bar, moved by what it yields."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def show_results(folder: Path, console: Console) -> bool:
    """Print the results of a suite; returns whether attempts have no verdict."""
    from shelf.suites.records import read_results
    from shelf.suites.stats import summarise_results

    for part in summarise_results(str(folder)).tables:
        console.print(part, highlight=False)
    failed = sum(item.infra is not None for item in read_results(folder).items)
    if failed:
        console.print(f"The same command plays the {failed} attempts without a verdict again.", style="bold red")
    return failed > 0
