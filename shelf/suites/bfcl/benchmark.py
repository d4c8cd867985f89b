"""A whole evaluation: many tasks at once, written as they finish, resumed after an interruption.

Every finished rollout is appended to ``journal.jsonl``; once all are there they
become ``validation_log/0.jsonl`` in the order of tasks. The same evaluation
started again plays what is missing and what failed for reasons other than the
policy, and nothing else. A restart of the service costs nothing: episodes are
rebuilt, as in training.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from env_service.client import AsyncServiceClient
from seal.data.rows import TaskRow
from seal.launch.service import Service
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.services import Services
from seal.system.files import json_hash, write_jsonl
from shelf.suites.bfcl.episode import STEP, EpisodeSettings, play_row
from shelf.suites.bfcl.journal import Journal
from shelf.suites.bfcl.serving import environment_service, keep_running, served_checkpoint
from shelf.suites.chat import FIXED, ChatClient, Sampling

ATTEMPTS = 4
RESTART_WAIT_S = 120.0
"""Seconds that an episode waits for its service to answer again."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation: its tasks, its model and its options.

    Either base_url (an OpenAI-compatible endpoint that serves `model`) or
    checkpoint (an HF folder, served here by vLLM with the options in serve_args).
    samples: rollouts per task. timeout_s: for one request. concurrency: rollouts
    at once. out: the folder of the results. rows: at least one, all of one environment.
    task_files: those from which synthesised tasks among the rows are.
    """

    rows: Sequence[TaskRow]
    model: str
    out: Path
    env_url: str
    base_url: str | None = None
    checkpoint: Path | None = None
    serve_args: str = ""
    samples: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    episode: EpisodeSettings = field(default_factory=EpisodeSettings)
    concurrency: int = 32
    timeout_s: float = 600.0
    task_files: Sequence[str] = ()

    def __post_init__(self) -> None:
        if min(self.samples, self.concurrency) < 1:
            raise ValueError("--samples and --concurrency must be at least 1.")
        if len({row.environment for row in self.rows}) != 1:
            raise ValueError("An evaluation plays tasks of one environment, and at least one task.")

    @property
    def environment(self) -> str:
        return self.rows[0].environment

    def recorded(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings that results depend on; an evaluation is resumed only with the same values.

        versions: of the environment's data and packages, as the service has them.
        """
        return {
            "model": self.model if self.base_url else str(self.checkpoint.resolve()),
            "prompt_mode": self.episode.prompt_mode,
            **asdict(self.sampling),
            "max_steps": self.episode.max_steps,
            "seed": self.episode.seed,
            "samples": self.samples,
            "tasks": len(self.rows),
            "tasks_sha256": json_hash([[row.task_id, row.turns] for row in self.rows]),
            **versions,
            **self.episode.params,
        }


class EvaluationOutcome(NamedTuple):
    """The log of an evaluation, and how many rollouts were played now, kept from before, and failed."""

    log: Path
    played: int
    kept: int
    failed: int


def evaluate(
    evaluation: Evaluation, on_start: Callable[[Journal], None], on_rollout: Callable[[TrajectoryRecord], None]
) -> EvaluationOutcome:
    """Start what is not running yet, play every row `samples` times, and write the log.

    on_start gets the journal of what is finished, on_rollout each rollout.
    EndpointRefused, LaunchError and ServiceError end the evaluation; the
    journal keeps what had finished.
    """
    out = evaluation.out
    with ExitStack() as stack:
        service, versions = stack.enter_context(
            environment_service(evaluation.env_url, out / "service.log", evaluation.task_files, evaluation.environment)
        )
        fixed = FIXED if evaluation.checkpoint or asyncio.run(_takes_fixed(evaluation)) else {}
        journal = Journal(out, {**evaluation.recorded(versions), **fixed})
        on_start(journal)
        base_url = evaluation.base_url or stack.enter_context(
            served_checkpoint(evaluation.checkpoint, evaluation.model, evaluation.serve_args, out / "vllm.log")
        )
        wanted = [(row, sample) for row in evaluation.rows for sample in range(evaluation.samples)]
        done = journal.finished()
        queue = [(row, sample) for row, sample in wanted if (row.task_id, row.turns, sample) not in done]

        def on_record(record: TrajectoryRecord) -> None:
            journal.add(record.line())
            on_rollout(record)

        asyncio.run(_play_all(evaluation, base_url, fixed, queue, service, on_record))
    ordered = [journal.lines[row.task_id, row.turns, sample] for row, sample in wanted]
    log = out / "validation_log" / f"{STEP}.jsonl"
    write_jsonl(ordered, log)
    failed = sum(line.get("infra") is not None for line in ordered)
    return EvaluationOutcome(log, len(queue), len(wanted) - len(queue), failed)


async def _takes_fixed(evaluation: Evaluation) -> bool:
    endpoint = ChatClient(evaluation.base_url or "", evaluation.model, evaluation.timeout_s)
    try:
        return await endpoint.check()
    finally:
        await endpoint.close()


async def _play_all(
    evaluation: Evaluation,
    base_url: str,
    fixed: Mapping[str, Any],
    queue: Sequence[tuple[TaskRow, int]],
    service: Service,
    on_record: Callable[[TrajectoryRecord], None],
) -> None:
    endpoint = ChatClient(base_url, evaluation.model, evaluation.timeout_s, extra=fixed)
    client = AsyncServiceClient(
        evaluation.env_url, evaluation.environment, deadline_s=evaluation.timeout_s, attempts=ATTEMPTS
    )
    services = Services([client], RESTART_WAIT_S)
    gate = asyncio.Semaphore(evaluation.concurrency)

    async def one(row: TaskRow, sample: int) -> None:
        async with gate:
            record = await play_row(row, sample, endpoint, evaluation.sampling, services, evaluation.episode)
        on_record(record)

    try:
        await _check_settings(client, evaluation)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(keep_running(service))
            await asyncio.gather(*(group.create_task(one(row, sample)) for row, sample in queue))
            watch.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one ended the others
    finally:
        await endpoint.close()
        await services.close()


async def _check_settings(client: AsyncServiceClient, evaluation: Evaluation) -> None:
    """Open and close one episode, so that a wrong setting gives one sentence and not a log of failures."""
    row, probe = evaluation.rows[0], "seal-evaluation-probe"
    await client.create(row.task_id, probe, evaluation.episode.create_params(row.turns))
    await client.release(probe)
