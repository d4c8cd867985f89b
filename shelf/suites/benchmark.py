"""A whole evaluation: many tasks at once, written as they finish, resumed after an interruption.

Every finished rollout is appended to ``journal.jsonl``; once all are there, they
become ``validation_log/0.jsonl`` in the order of tasks. If the same evaluation is
started again, it plays only what is missing and what failed for reasons other
than the policy. A restart of the service costs nothing: episodes are rebuilt, as
in training.
"""

import asyncio
import signal
import sys
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from env_service.client import AsyncServiceClient
from env_service.environments.kit.tool_calls import MODE, write_message
from seal.data.rows import TaskRow
from seal.launch.service import Service
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.episode import Episode
from seal.rollout.harness.task import Address, Harness, require_harness
from seal.rollout.play import Terms, play
from seal.rollout.services import Services
from seal.rollout.speaker import REFUSAL, Said, Speaker
from seal.rollout.user import ModelUser, User
from seal.settings.user import UserSettings
from seal.system import exits
from seal.system.files import json_hash, write_jsonl
from shelf.statistics.log import REPLACED
from shelf.suites import FIXED
from shelf.suites.answers import CallRejected, ContextExceeded, RequestRefused
from shelf.suites.endpoint import ChatClient, Endpoint, EvaluatedModel, Sampling
from shelf.suites.journal import Journal, hold
from shelf.suites.serving import environment_service, keep_running
from shelf.suites.tool_calls import ChatRequest, chat_request

STEP = 0
"""The training step under which results are logged."""
UNREADABLE = "parse_error"
"""The stop of a dialogue that cannot continue after an unreadable call."""
OWN_FIELDS = frozenset(
    ("model", "messages", "tools", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "n", "stream")
)
"""Fields of a request that follow from the task or have their own options."""
ATTEMPTS = 4
RESTART_WAIT_S = 120.0
"""Seconds for which an episode waits for its service to answer again."""


@dataclass(frozen=True)
class EpisodeSettings:
    """Settings of every episode. max_steps: None for the environment's own. params: further parameters of /create."""

    prompt_mode: str = "bfcl_qwen_fc"
    max_steps: int | None = None
    deadline_s: float = 1800.0
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def calls_tools(self) -> bool:
        """True if tools and calls use the API's fields, not the prompt."""
        return self.prompt_mode == MODE

    def create_params(self, turns: int) -> dict[str, Any]:
        """The parameters of /create for a task, or for its first turns if `turns` is positive."""
        params = {"split": "eval", "tool_prompt_mode": self.prompt_mode, **self.params}
        limits = {"max_steps": self.max_steps, "turns": turns if turns > 0 else None}
        return params | {name: value for name, value in limits.items() if value is not None}


class EndpointSpeaker(Speaker):
    """A model at a chat endpoint. name: that of the rollout, which determines seeds and request ids.

    It sends the benchmark's own prompt as messages, or tools and calls in the API's fields (`calls_tools`).
    """

    def __init__(self, client: ChatClient, sampling: Sampling, name: str, seed: int, calls_tools: bool = False):
        self._client, self._sampling, self._calls_tools = client, sampling, calls_tools
        self._rollout, self._seed = name, seed
        self._tokens = self._tokens_in = 0
        self._thoughts: list[Mapping[str, Any]] = []

    async def say(self, dialogue: Dialogue) -> Said | None:
        name = f"{self._rollout}/{len(dialogue.turns)}"
        seed = zlib.crc32(f"{self._seed}/{name}".encode())
        asked = chat_request(dialogue.messages) if self._calls_tools else ChatRequest(dialogue.messages, None)
        try:
            reply = await self._client.complete(asked.messages, self._sampling, seed, name, asked.tools, self._thoughts)
        except ContextExceeded as exceeded:
            dialogue.note = str(exceeded)
            return Said("", truncated=True)
        except RequestRefused as refused:
            self.limit, dialogue.note = REFUSAL, str(refused)
            return None
        except CallRejected as rejected:
            if not asked.is_open:
                raise
            self.limit, dialogue.note = UNREADABLE, str(rejected)  # the endpoint cannot read its model's own call again
            return None
        self._tokens += reply.tokens
        self._tokens_in += reply.prompt_tokens
        self._thoughts.append(reply.thoughts)
        text = write_message(reply.text, reply.calls) if self._calls_tools else reply.text
        return Said(text, reply.truncated)

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        return {"tokens": self._tokens, "tokens_in": self._tokens_in or None}  # not every endpoint counts


async def play_row(
    row: TaskRow,
    sample: int,
    speaker: Speaker,
    services: Services,
    settings: EpisodeSettings,
    user: User | None = None,
) -> TrajectoryRecord:
    """Play one task once, through restarts of its service; EndpointRefused propagates."""
    known = {name: getattr(row, name) for name in ("task_id", "data_source", "category", "split")}
    return await play(
        Episode(services, row.task_id, settings.create_params(row.turns)),
        speaker,
        known | {"step": STEP, "sample": sample, "cluster": row.scenario, "prompt_mode": settings.prompt_mode},
        Terms(deadline_s=settings.deadline_s, deadline="--deadline"),
        user,
    )


@dataclass(frozen=True)
class Evaluation:
    """An evaluation: its tasks, its model and its options.

    samples: rollouts per task. timeout_s: limit per request. wait_s: patience with an endpoint that is down.
    concurrency: rollouts at once. out: the folder of the results. rows: at least one, all of one environment. harness:
    plays with the model; its own requests determine the sampling. extra: more fields of each request. task_files: the
    files of the synthesised tasks among the rows. user: the model that plays users.
    """

    rows: Sequence[TaskRow]
    model: EvaluatedModel
    out: Path
    env_url: str
    samples: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    episode: EpisodeSettings = field(default_factory=EpisodeSettings)
    concurrency: int = 32
    timeout_s: float = 600.0
    wait_s: float = 60.0
    task_files: Sequence[str] = ()
    harness: Harness | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    user: UserSettings = field(default_factory=UserSettings)

    def __post_init__(self) -> None:
        if min(self.samples, self.concurrency) < 1:
            raise ValueError("--samples and --concurrency must be at least 1.")
        if len({row.environment for row in self.rows}) != 1:
            raise ValueError("An evaluation plays tasks of one environment, and at least one task.")
        if own := sorted(OWN_FIELDS & self.extra.keys()):
            raise ValueError(
                f"--extra may not set {', '.join(own)}: SEAL fills these fields; --temperature, --top-p, --max-tokens, "
                "--seed and --samples set what can be chosen."
            )
        if self.harness is not None:
            if self.extra:
                raise ValueError("--extra is for SEAL's own requests: with --harness, set the fields in the agent.")
            if self.episode.calls_tools:
                raise ValueError(
                    f"--prompt-mode {MODE} is for SEAL's own requests: leave it out with --harness, whose agent offers "
                    "the tools to the model itself."
                )
            if "?" in (self.model.base_url or ""):
                raise ValueError("--harness takes no --base-url with a query: an agent's client would lose it.")
            require_harness(self.harness)

    @property
    def environment(self) -> str:
        return self.rows[0].environment

    def recorded(self, versions: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that results depend on; an evaluation is resumed only with the same values.

        A harness chooses its own sampling, which is unknown here: None.
        versions: those of the environment's data and packages in the service. fields: more of each request.
        """
        own = {
            **self.model.settings,
            "prompt_mode": self.episode.prompt_mode,
            **{name: None if self.harness else value for name, value in asdict(self.sampling).items()},
            "max_steps": self.episode.max_steps,
            "seed": None if self.harness else self.episode.seed,
            "samples": self.samples,
            "tasks": len(self.rows),
            "tasks_sha256": json_hash([[row.task_id, row.turns] for row in self.rows]),
            **versions,
            **self.episode.params,
            **({"user": self.user.model, "user_temperature": self.user.temperature} if self.user.base_url else {}),
            **({"harness": self.harness} if self.harness else {}),
        }
        return own | {f"extra.{n}" if n in {*own, "user", REPLACED} else n: value for n, value in fields.items()}


class EvaluationOutcome(NamedTuple):
    """The log of an evaluation, and how many rollouts were played now, kept from before, and failed.

    replaced: the fields of requests that the endpoint did not accept (`ChatClient`).
    """

    log: Path
    played: int
    kept: int
    failed: int
    replaced: Mapping[str, str]


def evaluate(
    evaluation: Evaluation, on_start: Callable[[Journal], None], on_rollout: Callable[[TrajectoryRecord], None]
) -> EvaluationOutcome:
    """Start what is not running yet, play every row `samples` times, and write the log.

    on_start gets the journal of what is finished, on_rollout each rollout.
    EndpointRefused, LaunchError and ServiceError end the evaluation; the
    journal keeps what has finished.
    """
    out = evaluation.out
    with ExitStack() as stack:
        stack.enter_context(hold(out))
        model = evaluation.model
        named = Endpoint(model.base_url or "", model.name)
        if not model.checkpoint:
            named.require()
        takes = not evaluation.harness and (model.checkpoint or named.takes_fixed())
        fixed = {**(FIXED if takes else {}), **evaluation.extra}
        service, versions = stack.enter_context(
            environment_service(evaluation.env_url, out / "service.log", evaluation.task_files, evaluation.environment)
        )
        journal = Journal(out, evaluation.recorded(versions, fixed))
        on_start(journal)
        served = model.served(out / "vllm.log", reads_calls=evaluation.episode.calls_tools or bool(evaluation.harness))
        endpoint = replace(stack.enter_context(served), extra=fixed)
        wanted = [(row, sample) for row in evaluation.rows for sample in range(evaluation.samples)]
        done = journal.finished()
        queue = [(row, sample) for row, sample in wanted if (row.task_id, row.turns, sample) not in done]

        _run(_play_all(evaluation, endpoint, queue, service, journal, on_rollout))
    ordered = [journal.lines[row.task_id, row.turns, sample] for row, sample in wanted]
    log = out / "validation_log" / f"{STEP}.jsonl"
    write_jsonl(ordered, log)
    failed = sum(line.get("infra") is not None for line in ordered)
    return EvaluationOutcome(log, len(queue) - failed, len(wanted) - len(queue), failed, journal.replaced)


def _run(playing: Coroutine[Any, Any, None]) -> None:
    """Run to the end. SIGTERM cancels, like Ctrl-C: an exit from its handler could be mistaken for a harness's exit."""

    async def cancellable() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
        await playing

    before = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(cancellable())
    except asyncio.CancelledError:
        sys.exit(exits.TERMINATED)
    finally:
        signal.signal(signal.SIGTERM, before)


async def _play_all(
    evaluation: Evaluation,
    endpoint: Endpoint,
    queue: Sequence[tuple[TaskRow, int]],
    service: Service,
    journal: Journal,
    on_rollout: Callable[[TrajectoryRecord], None],
) -> None:
    asked = ChatClient(endpoint, evaluation.timeout_s, wait_s=evaluation.wait_s)
    asked.replaced |= journal.replaced
    client = AsyncServiceClient(service.url, evaluation.environment, deadline_s=evaluation.timeout_s, attempts=ATTEMPTS)
    services = Services([client], RESTART_WAIT_S)
    gate = asyncio.Semaphore(evaluation.concurrency)

    async def one(row: TaskRow, sample: int) -> None:
        async with gate:
            speaker = _speaker(evaluation, row, sample, asked)
            user = ModelUser(evaluation.user, f"{evaluation.episode.seed}/{row.task_id}/{sample}")
            record = await play_row(row, sample, speaker, services, evaluation.episode, user)
        journal.add(record.line())
        journal.note_replaced(asked.replaced)
        on_rollout(record)

    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(keep_running(service))
            await _check_settings(services, evaluation)
            await asyncio.gather(*(group.create_task(one(row, sample)) for row, sample in queue))
            watch.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one cancelled the others
    finally:
        await asked.close()
        await services.close()


def _speaker(evaluation: Evaluation, row: TaskRow, sample: int, asked: ChatClient) -> Speaker:
    if evaluation.harness is None:
        episode, rollout = evaluation.episode, f"{row.task_id}/{sample}"
        return EndpointSpeaker(asked, evaluation.sampling, rollout, episode.seed, episode.calls_tools)
    from seal.rollout.harness.speaker import HarnessSpeaker  # its server is loaded only if there is a harness

    endpoint, log = asked.endpoint, evaluation.out / "harness" / row.data_source / f"{row.task_id}.{sample}.log"
    address = Address(endpoint.url, endpoint.key, endpoint.model)
    return HarnessSpeaker(evaluation.harness, evaluation.episode.deadline_s, address, log)


async def _check_settings(services: Services, evaluation: Evaluation) -> None:
    """Open and close one episode, so that a wrong setting gives one sentence instead of a log of failures.

    With a model for the user, until a task has a part for it.
    """
    for row in evaluation.rows:
        probe = Episode(services, row.task_id, evaluation.episode.create_params(row.turns))
        *_, part = await probe.create()
        await probe.release()
        if evaluation.user.base_url is None or part is not None:
            return
    raise ValueError(f"No user of {evaluation.environment} is for a model: leave --user-base-url out.")
