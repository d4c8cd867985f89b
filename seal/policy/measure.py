"""How often a policy passes a task's first turns, sampled offline with vLLM.

A check on what `make` made, in one process: no service, no Ray, no training. The
episodes are the service's own, of evaluation or, given an Omega, of training.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from env_service.environments.bfcl.catalog import Task
from seal.interface.cues import Omega
from seal.policy.dialogue import open_episode
from seal.policy.tokenizer import END
from seal.policy.verdict import passes

MAX_MESSAGES = 10
MAX_NEW_TOKENS = 128
MAX_TOKENS = 2048


class Episode:
    """One dialogue of a policy with the environment's own episode.

    ids: the tokens so far, kept by whoever samples. outcome: None while it runs;
    then passed, malformed (some message could not be read), empty (a needed call
    was never made), cut (by a length limit) or wrong.
    """

    def __init__(self, task: Task, omega: Omega | None = None):
        self.task = task
        self.ids: list[int] = []
        self.outcome: str | None = None
        self._episode = open_episode(task, omega, MAX_MESSAGES)

    def opening(self) -> list[dict[str, str]]:
        """The messages that it starts with."""
        return self._episode.start()["state"]

    def answer(self, text: str, ended: bool) -> list[dict[str, str]]:
        """Take the policy's message; the environment's next messages, none when the episode is over."""
        answer = self._episode.step(text, truncated=not ended)
        if not answer["is_terminated"]:
            return answer["state"]
        self.outcome = self._judge(answer["info"]["stop"])
        return []

    def _judge(self, stop: str) -> str:
        turns = self._episode.evidence()
        calls = [[(call.name, call.arguments) for action in turn.actions for call in action.calls] for turn in turns]
        # Not the episode's own verdict: that one knows the references of the benchmark, and this may be a variant.
        if stop == "answered" and passes(self.task, calls):
            return "passed"
        if stop in ("length", "step_limit"):
            return "cut"
        if any(action.refusals for turn in turns for action in turn.actions):
            return "malformed"
        missing = any(wanted and not made for wanted, made in zip(self.task.reference, calls, strict=True))
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

    def run(
        self,
        tasks: Sequence[Task],
        samples: int,
        temperature: float,
        on_done: Callable[[int], None],
        omega: Omega | None = None,
    ) -> Figures:
        """Sample episodes of each task; on_done gets the number of finished episodes after each round."""
        from vllm import SamplingParams

        episodes = [Episode(task, omega) for task in tasks for _ in range(samples)]
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
        text = self._tokenizer.decode(said[:-1] if ended else said)
        messages = episode.answer(text, ended)
        if messages:
            episode.ids += [*said, *self._tokenizer.encode("\n"), *self._render(messages)]
            if len(episode.ids) + MAX_NEW_TOKENS > MAX_TOKENS:
                episode.outcome = "cut"

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
