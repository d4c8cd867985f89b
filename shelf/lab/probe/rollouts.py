"""Rollouts of a recipe's training tasks without a trainer: the agent loop's own episodes, on a served model."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from transformers import AutoConfig, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from seal.data.rows import TaskRow
from seal.launch.recipe import Recipe
from seal.method.interface.cues import Omega
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.agent_loop import SEALAgentLoop
from seal.rollout.row import Row
from seal.rollout.services import addresses, shared_services
from seal.rollout.stream import TokenStream
from shelf.suites.bar import Bar
from shelf.suites.serving import environment_service, served_checkpoint

NAME = "probed"
"""The model's name at its server."""


class Job(NamedTuple):
    """A rollout to play; its seed follows from task (a number) and sample, with or without an Omega.

    taught: a pass with an Omega is played again with the plain prompt.
    """

    task: int
    sample: int
    omega: Omega | None = None
    taught: bool = True


class DialogueTokens(NamedTuple):
    """A dialogue as the policy reads it. sampled: the positions of its own tokens."""

    ids: list[int]
    sampled: list[int]


class Played(NamedTuple):
    """A rollout. lesson: if it passed with cues and its messages also pass in a plain episode, the tokens of that."""

    job: Job
    record: TrajectoryRecord
    tokens: DialogueTokens
    lesson: DialogueTokens | None


Rollouts = Mapping[int, Sequence[Played]]
"""Rollouts by task."""
Player = Callable[[str, Sequence[Job]], list[Played]]
"""Plays jobs in order; the text names them beside a progress bar."""


class _Loop(SEALAgentLoop):
    async def played(self, job: Job, task: TaskRow) -> Played:
        known = {"index": job.task, "session_id": job.sample, "global_steps": 1, "training": True}
        row = Row.read({**task.to_verl(job.task), **known, "omega": job.omega and job.omega.to_json()}, self.service)
        told = await self.attempts.roll_out(row, {"temperature": self.rollout_config.temperature})
        record, lesson = await self.attempts.learn(row, told) if job.taught else (told[0], None)
        return Played(job, record, _tokens(told[1][-1]), lesson and _tokens(lesson))


def _tokens(stream: TokenStream) -> DialogueTokens:
    return DialogueTokens(stream.ids, [n + stream.prompt_length for n, own in enumerate(stream.mask) if own])


async def play(recipe: Recipe, jobs: Sequence[Job], base_url: str, on_rollout: Callable[[], None]) -> list[Played]:
    """The rollouts in the order of the jobs, as training would play them; runs in its own event loop."""
    config, rollout = recipe.config, recipe.settings.rollout
    model, gate = config.actor_rollout_ref.model.path, asyncio.Semaphore(rollout.concurrency)
    shared_services.cache_clear()  # connections belong to an event loop
    http, timeout = DefaultAsyncHttpxClient(trust_env=False), rollout.generation_timeout_s
    async with AsyncOpenAI(base_url=base_url, api_key="none", timeout=timeout, http_client=http) as client:

        async def generate(request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
            fields = {**sampling_params, "return_token_ids": True}
            answer = await client.completions.create(model=NAME, prompt=prompt_ids, extra_body=fields)
            return TokenOutput(token_ids=answer.choices[0].token_ids, stop_reason="completed")

        made = partial(
            _Loop,
            trainer_config=DictConfigWrap(config),
            data_config=DictConfigWrap(config.data),
            server_manager=SimpleNamespace(generate=generate),
            tokenizer=AutoTokenizer.from_pretrained(model),
            hf_model_type=AutoConfig.from_pretrained(model).model_type,
            processor=None,
            dataset_cls=None,
        )

        async def one(job: Job) -> Played:
            async with gate:
                played = await made().played(job, recipe.rows.train[job.task])
            on_rollout()
            return played

        try:
            return list(await asyncio.gather(*map(one, jobs)))
        finally:
            await shared_services(recipe.service).close()


@contextmanager
def playing(recipe: Recipe, out: Path, bar: Bar) -> Iterator[Player]:
    """Serve the model, and the environments unless they are served, and yield the player of the recipe's tasks.

    out: the folder of the servers' logs. LaunchError for errors that a user can fix.
    """
    rollout, model = recipe.config.actor_rollout_ref.rollout, Path(recipe.config.actor_rollout_ref.model.path)
    context = rollout.max_model_len or rollout.prompt_length + rollout.response_length  # verl's own rule
    limits = f"--max-model-len {context} --max-num-seqs {rollout.max_num_seqs}"
    url = addresses(recipe.service.env_url)[0]
    with ExitStack() as stack:
        own = environment_service(url, out / "service.log", recipe.task_files, *recipe.environments)
        service = recipe.service.model_copy(update={"env_url": stack.enter_context(own)[0].url})
        recipe = replace(recipe, service=service)
        served = stack.enter_context(served_checkpoint(model, NAME, limits, out / "vllm.log"))

        def rollouts(what: str, jobs: Sequence[Job]) -> list[Played]:
            work = bar.add_task(what, total=len(jobs))
            return asyncio.run(play(recipe, jobs, served, lambda: bar.update(work, advance=1)))

        yield rollouts


def plain_rollouts(recipe: Recipe, rollouts: Player) -> list[Played]:
    """The first rollouts of every training task, without cues; ValueError if infrastructure lost all of them."""
    jobs = [Job(n, k) for n in range(len(recipe.rows.train)) for k in range(recipe.config.actor_rollout_ref.rollout.n)]
    played = rollouts("plain rollouts", jobs)
    if not any(each.record.usable for each in played):
        raise ValueError(f"infrastructure lost every plain rollout: {played[0].record.infra_message}")
    return played


def by_task(played: Sequence[Played]) -> dict[int, list[Played]]:
    return {task: [each for each in played if each.job.task == task] for task in {each.job.task for each in played}}
