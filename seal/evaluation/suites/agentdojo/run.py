"""AgentDojo's user tasks without attacks, played by a program in the package's own environment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seal.evaluation.journal import require_same_settings
from seal.evaluation.suites.agentdojo.results import SUITE, Played
from seal.evaluation.suites.agentdojo.tasks import SUITES, Attempt, data_hash, planned
from seal.evaluation.suites.attempts import Attempts, Progress
from seal.evaluation.suites.endpoint import Served, without_proxy
from seal.evaluation.suites.environment import SuiteEnvironment
from seal.evaluation.suites.process import finish
from seal.files import write_json
from seal.records.suite import SuiteHead, write_results

PACKAGE = "agentdojo"
BENCHMARK = "v1.2.2"
"""The version of the tasks, the package's default."""

PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True)
class AgentDojo:
    """An evaluation of one model.

    trials: attempts at each task. limit: tasks of each suite. seed: of the first trial; the
    next ones count up.
    """

    served: Served
    out: Path
    suites: Sequence[str] = tuple(SUITES)
    trials: int = 1
    limit: int | None = None
    temperature: float = 0.0
    seed: int = 0
    concurrency: int = 8
    timeout_s: float = 600.0
    envs: Path | None = None
    attempts: Attempts = field(default_factory=Attempts)

    def __post_init__(self) -> None:
        unknown = [name for name in self.suites if name not in SUITES]
        if unknown:
            raise ValueError(f"Unknown suite {unknown[0]!r}: expected one of {', '.join(SUITES)}.")
        if min(self.trials, self.concurrency) < 1:
            raise ValueError("--trials and --concurrency must be at least 1.")


def evaluate(suite: AgentDojo, say: Callable[[str], None], on_progress: Progress) -> Path:
    """Play and score what is missing; returns the folder of the results.

    Raises EndpointRefused if the endpoint cannot be asked at all, ValueError for what a user
    can fix.
    """
    suite.served.require()
    environment = SuiteEnvironment(SUITE, (SUITE,), suite.envs)
    environment.install(say)
    version, package = environment.version(PACKAGE), environment.packages / PACKAGE
    settings = {"benchmark": BENCHMARK, "temperature": suite.temperature, "seed": suite.seed}
    require_same_settings(suite.out, {"model": suite.served.model, "version": version, **settings})
    wanted = planned(suite.suites, suite.trials, suite.limit)
    kept = Played(suite.out)
    _play(suite, environment, wanted, kept, on_progress)
    head = SuiteHead(
        suite=SUITE,
        model=suite.served.model,
        package=PACKAGE,
        version=version,
        data_hash=data_hash(package),
        settings=settings,
    )
    write_results(suite.out, head, [kept.record(attempt) for attempt in wanted])
    return suite.out


def _play(
    suite: AgentDojo,
    environment: SuiteEnvironment,
    wanted: Sequence[Attempt],
    kept: Played,
    on_progress: Progress,
) -> None:
    """Run the program until nothing is missing, at most as often as is allowed."""
    plan, log = suite.out.resolve() / "plan.json", suite.out / "program.log"

    def progress() -> int:
        count = kept.read()
        on_progress(sum(attempt in kept.records for attempt in wanted), len(wanted))
        return count

    for _ in range(suite.attempts.rounds):
        missing = [attempt for attempt in wanted if attempt not in kept.records]
        on_progress(len(wanted) - len(missing), len(wanted))
        if not missing or not suite.served.answers_within(suite.attempts.wait_s):
            return
        kept.repair()
        write_json(_plan(suite, missing, kept.path.resolve()), plan)
        finish(
            [environment.program("python"), "-P", str(PROGRAM), str(plan)],
            log=log,
            cwd=suite.out.resolve(),
            env=tool_variables(suite),
            deadlines=suite.attempts.deadlines,
            progress=progress,
        )


def _plan(suite: AgentDojo, attempts: Sequence[Attempt], out: Path) -> dict[str, object]:
    return {
        "base_url": suite.served.base_url.rstrip("/"),
        "model": suite.served.model,
        "benchmark": BENCHMARK,
        "temperature": suite.temperature,
        "seed": suite.seed,
        "timeout_s": suite.timeout_s,
        "concurrency": suite.concurrency,
        "out": str(out),
        "attempts": [list(attempt) for attempt in attempts],
    }


def tool_variables(suite: AgentDojo) -> dict[str, str]:
    """The environment variables of the program: the endpoint's key, and nothing of this process's Python."""
    url = suite.served.base_url
    return {"OPENAI_API_KEY": suite.served.key, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1", **without_proxy(url)}
