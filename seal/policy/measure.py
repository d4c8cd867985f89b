"""How often a policy passes a task's first turns, sampled offline with vLLM.

A check on what `make` made, in one process: no service, no Ray, no training.
Episodes follow the compact format and the official runner: a message without a
readable call ends the turn, and a message cut by the length limit the episode.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from env_service.environments.bfcl.catalog import Task, available_tools
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import Toolbox
from seal.policy.corpus import FORMAT
from seal.policy.tokenizer import END
from seal.policy.verdict import passes

MAX_MESSAGES = 10
MAX_NEW_TOKENS = 128
MAX_TOKENS = 2048


@dataclass
class Episode:
    """One running dialogue: what the policy has seen and said, and the calls it made by turn."""

    task: Task
    ids: list[int] = field(default_factory=list)
    calls: list[list[Any]] = field(default_factory=list)
    spoken: int = 0
    outcome: str | None = None
    """None while it runs; then passed, malformed, empty, wrong, cut, too_many_messages or too_long."""

    def __post_init__(self) -> None:
        self._format = get_format(FORMAT)
        self._tools = Toolbox(self.task)
        self.calls.append([])
        self._said_in_turn = 0
        self._malformed = False

    def opening(self) -> list[dict[str, str]]:
        """The messages that it starts with."""
        system = self._format.system(self.task, available_tools(self.task, 0))
        return [{"role": "system", "content": system}, {"role": "user", "content": self._format.user(self.task, 0)}]

    def answer(self, text: str, ended: bool) -> list[dict[str, str]]:
        """Take the policy's message; the environment's next messages, none when the episode is over."""
        self._said_in_turn += 1
        parsed = self._format.parse(text)
        if not ended:
            self.outcome = "cut"
            return []
        self._malformed = self._malformed or bool(parsed.refusals)
        if parsed.calls:
            if self._said_in_turn >= MAX_MESSAGES:
                self.outcome = "too_many_messages"
                return []
            self.calls[-1] += parsed.calls
            return self._format.results([self._tools.call(name, values).text for name, values in parsed.calls])
        if len(self.calls) == len(self.task.users):
            self.outcome = self._verdict()
            return []
        self.calls.append([])
        self._said_in_turn = 0
        return [{"role": "user", "content": self._format.user(self.task, len(self.calls) - 1)}]

    def _verdict(self) -> str:
        if passes(self.task, self.calls):
            return "passed"
        if self._malformed:
            return "malformed"
        missing = any(reference and not calls for reference, calls in zip(self.task.reference, self.calls, strict=True))
        return "empty" if missing else "wrong"


@dataclass(frozen=True)
class Figures:
    """What a set of tasks gave.

    rate: mean pass rate; error: its standard error over tasks. rates: by task.
    band: tasks whose rate lies strictly between 0 and 1. outcomes: share of episodes.
    """

    tasks: int
    samples: int
    rate: float
    error: float
    band: int
    outcomes: dict[str, float]
    rates: dict[str, float]


class Sampler:
    """Runs episodes of a policy in batches, tokens in and tokens out."""

    def __init__(self, folder: Path, seed: int = 0):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        # vLLM reads these when it is imported, so the import waits for them.
        from vllm import LLM

        self._llm = LLM(
            model=str(folder),
            dtype="float32",
            enforce_eager=True,
            max_model_len=MAX_TOKENS,
            enable_chunked_prefill=False,
            max_num_batched_tokens=4 * MAX_TOKENS,
            max_num_seqs=256,
            kv_cache_memory_bytes=1 << 30,
            seed=seed,
            disable_log_stats=True,
        )
        self._tokenizer = self._llm.get_tokenizer()
        self._end = self._tokenizer.convert_tokens_to_ids(END)

    def run(self, tasks: Sequence[Task], samples: int, temperature: float, on_done: Callable[[int], None]) -> Figures:
        """Sample episodes of each task; on_done gets the number of finished episodes after each round."""
        from vllm import SamplingParams

        episodes = [Episode(task) for task in tasks for _ in range(samples)]
        for episode in episodes:
            episode.ids = self._render(episode.opening())
        settings = SamplingParams(
            temperature=temperature,
            max_tokens=MAX_NEW_TOKENS,
            stop_token_ids=[self._end],
            detokenize=False,
        )
        running = episodes
        while running:
            prompts = [{"prompt_token_ids": episode.ids} for episode in running]
            for episode, output in zip(running, self._llm.generate(prompts, settings, use_tqdm=False), strict=True):
                self._continue(episode, list(output.outputs[0].token_ids))
            running = [episode for episode in running if episode.outcome is None]
            on_done(len(episodes) - len(running))
        return figures(tasks, episodes, samples)

    def _continue(self, episode: Episode, said: list[int]) -> None:
        ended = bool(said) and said[-1] == self._end
        episode.spoken += len(said)
        text = self._tokenizer.decode(said[:-1] if ended else said)
        messages = episode.answer(text, ended)
        if messages:
            episode.ids += [*said, *self._tokenizer.encode("\n"), *self._render(messages)]
            if len(episode.ids) + MAX_NEW_TOKENS > MAX_TOKENS:
                episode.outcome = "too_long"

    def _render(self, messages: Sequence[dict[str, str]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self._tokenizer.encode(text)


def figures(tasks: Sequence[Task], episodes: Sequence[Episode], samples: int) -> Figures:
    """Pass rates of finished episodes, `samples` in a row for each task."""
    passed = [episode.outcome == "passed" for episode in episodes]
    rates = [mean(passed[start : start + samples]) for start in range(0, len(passed), samples)]
    outcomes = Counter(episode.outcome for episode in episodes)
    return Figures(
        tasks=len(tasks),
        samples=samples,
        rate=mean(rates),
        error=stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan,
        band=sum(0 < rate < 1 for rate in rates),
        outcomes={str(name): count / len(episodes) for name, count in outcomes.most_common()},
        rates={task.id: rate for task, rate in zip(tasks, rates, strict=True)},
    )
