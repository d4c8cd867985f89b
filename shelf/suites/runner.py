"""One runner for every official suite: install its tool, run what is missing, keep what is finished, write results.

A suite defines what the tool needs, which program plays the missing items, and how to read its files. Finished items
are kept outside the tool's own files, so the same command plays the rest after an interruption.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from shelf.suites.endpoint import Endpoint, EvaluatedModel
from shelf.suites.journal import hold, require_same_settings
from shelf.suites.records import ItemRecord, SuiteHead, write_results
from shelf.suites.tool import Deadlines, Program, Tool, finish

Progress = Callable[[int, int], None]
"""Receives the number of finished items and the total."""


@dataclass(frozen=True)
class Plan:
    """The model to evaluate, the folder of the results, and how often and how long the tool runs.

    model: as the user names it, which answers at `served`. limit: items per category. concurrency: requests or
    dialogues at once. envs: the folder of the tools' environments, None for the default. rounds: runs of the tool, each
    for what has failed technically so far. wait_s: patience with an endpoint that is down, before each round. stall_s:
    time without any result after which a run of the tool is stopped. deadline_s: limit for one run of the tool.
    """

    served: Endpoint
    out: Path
    model: EvaluatedModel
    limit: int | None = None
    concurrency: int = 8
    envs: Path | None = None
    rounds: int = 3
    wait_s: float = 120.0
    stall_s: float = 1800.0
    deadline_s: float = 24 * 3600.0


class ToolRun(NamedTuple):
    """A program that plays missing items.

    watch: collects what the program has finished, and returns a number that changes with it.
    """

    program: Program
    watch: Callable[[], int]


class Suite(ABC):
    """An official suite.

    parts: the requested categories or domains that can run, ValueError if there is none. skipped: why others cannot.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    locks: ClassVar[tuple[str, ...]]
    total: int
    """The number of items, finished or not; `begin` counts them."""

    def __init__(self, plan: Plan, parts: Sequence[str]):
        self.plan = plan
        self.skipped = {part: why for part in parts if (why := self.need(part))}
        self.parts = tuple(part for part in parts if part not in self.skipped)
        if not self.parts:
            raise ValueError(f"Nothing is left to run: {'; '.join(dict.fromkeys(self.skipped.values()))}.")

    @abstractmethod
    def need(self, part: str) -> str | None:
        """One sentence about what a part lacks here, and how to provide it; None if it can run."""

    def tool(self) -> Tool:
        """The environment of the tool."""
        return Tool(self.name.replace("-", "_"), self.locks, self.plan.envs)

    def endpoints(self) -> list[Endpoint]:
        """The endpoints that are needed; before the first run, EndpointRefused if one of them cannot be used."""
        return [self.plan.served]

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings that results depend on, besides model, version and data."""

    @abstractmethod
    def data_hash(self, tool: Tool) -> str:
        """sha256 of the items."""

    @abstractmethod
    def begin(self, tool: Tool) -> None:
        """Read the items of the parts that can run, and which of them are finished."""

    @abstractmethod
    def missing(self) -> Sequence[Any]:
        """The unfinished items, in order."""

    @abstractmethod
    def jobs(self) -> Iterator[ToolRun]:
        """The programs of one round over what is missing."""

    @abstractmethod
    def records(self) -> list[ItemRecord]:
        """The results of all items."""

    def official(self, records: Sequence[ItemRecord]) -> Mapping[str, float]:
        """Figures that the tool computed."""
        return {}


def evaluate(suite: Suite, say: Callable[[str], None], on_progress: Progress) -> None:
    """Play and score what is missing, and write the results.

    Raises EndpointRefused if an endpoint cannot be used at all, ValueError for errors that a
    user can fix, such as another evaluation in the same folder.
    """
    with hold(suite.plan.out):
        plan = suite.plan
        for part, why in suite.skipped.items():
            say(f"{part} is skipped: it {why}.")
        for endpoint in suite.endpoints():
            endpoint.require()
        tool = suite.tool()
        tool.install(say)
        version, data_hash = tool.version(suite.package), suite.data_hash(tool)
        settings = {**suite.settings(), **plan.served.extra}
        tasks = {"version": version, "data_hash": data_hash}
        require_same_settings(plan.out, {**plan.model.settings, **tasks, **settings})
        suite.begin(tool)
        _play(suite, say, on_progress)
        records = suite.records()
        head = SuiteHead(
            suite=suite.name,
            model=plan.served.model,
            package=suite.package,
            version=version,
            data_hash=data_hash,
            settings=settings,
            skipped=suite.skipped,
            official=dict(suite.official(records)),
        )
        write_results(plan.out, head, records)


def _play(suite: Suite, say: Callable[[str], None], on_progress: Progress) -> None:
    """Run the tool until nothing is missing, for at most the allowed number of rounds."""
    deadlines = Deadlines(suite.plan.deadline_s, suite.plan.stall_s)

    def watching(job: ToolRun) -> int:
        count = job.watch()
        on_progress(suite.total - len(suite.missing()), suite.total)
        return count

    for _ in range(suite.plan.rounds):
        on_progress(suite.total - len(suite.missing()), suite.total)
        if not suite.missing() or not all(each.answers_within(suite.plan.wait_s) for each in suite.endpoints()):
            return
        for job in suite.jobs():
            try:
                problem = finish(job.program, deadlines, lambda job=job: watching(job))
            finally:
                job.watch()
            if problem:
                say(f"{Path(job.program.command[0]).name} {problem} (log: {job.program.log}).")
