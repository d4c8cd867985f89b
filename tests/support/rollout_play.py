"""Rollouts without a trained policy: the real agent loop and service, and an engine that says what a test wants."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from typing import Any

import psutil
import requests
from omegaconf import DictConfig
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from env_service.environments.bfcl.catalog import load_tasks
from seal.launch.recipe import read_recipe
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.agent_loop import SEALAgentLoop, _slots
from seal.rollout.dialogue import Dialogue
from seal.rollout.services import shared_services
from seal.rollout.speaker import Said, Speaker
from seal.system.net import free_port
from seal.system.paths import HOME
from tests.support.references import play_reference

TASK = "multi_turn_base_0"
START_DEADLINE_S = 120


class Script(Speaker):
    """Says the given messages one after the other."""

    def __init__(self, messages: Sequence[str]):
        self._remaining = iter(messages)

    async def say(self, dialogue: Dialogue) -> Said | None:
        text = next(self._remaining, None)
        return None if text is None else Said(text)


class ServiceProcess:
    """The real service on a port of its own, which can be killed and started again."""

    def __init__(self, **variables: str):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._variables = variables
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        own = {"BFCL_HOST": "127.0.0.1", "BFCL_PORT": str(self.port), "BFCL_WORKERS": "1"}
        path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, **own, **self._variables}
        with tempfile.TemporaryFile("w+") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "env_service"], cwd=HOME, env=environment, stdout=log, stderr=log
            )
            deadline = time.monotonic() + START_DEADLINE_S
            while not self.healthy():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise AssertionError(f"the service did not start: {log.read()}")
                time.sleep(0.1)

    def healthy(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).ok
        except (requests.ConnectionError, requests.Timeout):
            return False

    def figures(self) -> str:
        return requests.get(f"{self.url}/metrics", timeout=10).text

    def open_episodes(self) -> int:
        return int(self.figures().split("env_service_episodes_open ")[1].split()[0])

    def kill(self) -> None:
        """kill -9; its workers follow by themselves."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def kill_workers(self) -> None:
        for worker in psutil.Process(self._process.pid).children():
            worker.kill()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(20)


@contextlib.contextmanager
def running_service(**variables: str) -> Iterator[ServiceProcess]:
    service = ServiceProcess(**variables)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@cache
def tokenizer() -> AutoTokenizer:
    return AutoTokenizer.from_pretrained(HOME / "data" / "quickstart_policy")


@cache
def reference_texts(task_id: str = TASK) -> tuple[str, ...]:
    """The messages of a policy that plays a task's reference in the compact mode."""
    messages = play_reference(load_tasks()[task_id])
    return tuple(message["content"] for message in messages if message["role"] == "assistant")


def reference_prompts(number: int) -> list[list[int]]:
    """The first prompts of some tasks in the compact mode, as tokens."""
    return [
        tokenizer().apply_chat_template(list(play_reference(task)[:2]), add_generation_prompt=True, return_dict=False)
        for task in itertools.islice(load_tasks().values(), number)
    ]


Before = Callable[[int], Awaitable[TokenOutput | None]]


class ScriptedEngine:
    """Replaces verl's server client; every trajectory gets the same messages, as tokens.

    before: awaited with the number of the message (from 1) that is asked for; it may
    wait, raise, kill something, or give another answer. tokenizer, model_type: of another
    model; a text that ends with one of its special tokens is not closed with eos.
    """

    def __init__(
        self, texts: Sequence[str], before: Before | None = None, tokenizer: Any = None, model_type: str = "qwen2"
    ):
        self._texts = texts
        self.tokenizer, self.model_type = tokenizer or globals()["tokenizer"](), model_type
        self._before = before
        self._said: dict[str, int] = {}
        self.prompts: list[list[int]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict) -> TokenOutput:
        self.prompts.append(list(prompt_ids))
        number = self._said[request_id] = self._said.get(request_id, 0) + 1
        if self._before is not None and (answer := await self._before(number)) is not None:
            return answer
        text = self._texts[min(number, len(self._texts)) - 1]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        ids += [] if ids and ids[-1] in sampling_params.get("stop_token_ids", ()) else [self.tokenizer.eos_token_id]
        ids = ids[: sampling_params["max_tokens"]]
        logprobs = [-0.001 * (position + 1) - number for position in range(len(ids))]
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed")


@cache
def recipe(*overrides: str) -> DictConfig:
    return read_recipe(HOME / "exp" / "quickstart.yaml", list(overrides)).config


def configured(urls: Sequence[str], *overrides: str) -> DictConfig:
    """Return the configuration that `roll_out` plays with."""
    return recipe(
        f"env_service.env_url=[{','.join(urls)}]",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
        "actor_rollout_ref.rollout.max_model_len=8192",
        "data.max_response_length=4096",
        "seal.rollout.max_steps=40",
        *overrides,
    )


def agent_loop(config: DictConfig, engine: ScriptedEngine) -> SEALAgentLoop:
    """The real agent loop on an engine with a script; it belongs to the running event loop."""
    return SEALAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=engine,
        tokenizer=engine.tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        hf_model_type=engine.model_type,
    )


def roll_out(*given: Any, **columns: Any) -> list[tuple[AgentLoopOutput, TrajectoryRecord]]:
    """`dialogues` with the main one of each rollout alone."""
    return [(outputs[-1], record) for outputs, record in dialogues(*given, **columns)]


def dialogues(
    urls: Sequence[str],
    engine: ScriptedEngine,
    *overrides: str,
    task_id: str = TASK,
    training: bool = True,
    trajectories: int = 1,
    omega: dict[str, Any] | None = None,
    category: str = "base",
    **columns: Any,
) -> list[tuple[list[AgentLoopOutput], TrajectoryRecord]]:
    """Play a task several times at once; return each rollout's dialogues, the main one last, by their session ids.

    columns: more of the row, or other values.
    """
    config = configured(urls, *overrides)
    split = "train" if training else "val"

    async def one(loop: SEALAgentLoop, session_id: int) -> list[AgentLoopOutput]:
        row = {
            "extra_info": {"task_id": task_id, "split": split, "category": category, "turns": -1},
            "data_source": category,
            "global_steps": 1,
            "index": 0,
            "session_id": session_id,
            "omega": omega,
            **({"training": True} if training else {}),
            **columns,
        }
        return await loop.run({"temperature": 1.0, "logprobs": True}, **row)

    async def play() -> list[list[AgentLoopOutput]]:
        shared_services.cache_clear()  # connections and places belong to an event loop, and each call has its own
        _slots.cache_clear()
        loops = [agent_loop(config, engine) for _ in range(trajectories)]
        try:
            return list(await asyncio.gather(*(one(loop, number) for number, loop in enumerate(loops))))
        finally:
            await loops[0].services.close()

    outputs = asyncio.run(play())
    return [(each, TrajectoryRecord.from_json(each[-1].extra_fields["reward_extra_info"]["seal"])) for each in outputs]


def outcome(played: tuple[AgentLoopOutput, TrajectoryRecord]) -> tuple:
    """All of a trajectory that a disturbance must not change."""
    output, record = played
    evaluated = (record.labels, record.diagnosis, record.evidence, record.calls, record.errors, record.turns_passed)
    tokens = (output.prompt_ids, output.response_ids, output.response_mask, output.response_logprobs, record.spans)
    return evaluated, tokens, (record.score, record.stop, record.tokens, record.messages)
