"""vLLM's engine in this process, as verl's server starts it and as SEAL's agent loop asks it."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from omegaconf import DictConfig, OmegaConf

from tests.support.device import CUDA

EXTENSION = "verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension"


def engine_of(config: DictConfig, **others: Any):
    """vLLM's engine of a recipe's `actor_rollout_ref`, with the recipe's weights; others: more arguments of it."""
    from verl.workers.rollout.vllm_rollout import utils
    from vllm import LLM

    rollout = config.rollout
    own = OmegaConf.to_container(rollout.engine_kwargs, resolve=True).get("vllm") or {}
    taken = "dtype", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_prefix_caching"
    taken += "enable_chunked_prefill", "logprobs_mode", "gpu_memory_utilization", "seed"
    arguments = {name: rollout[name] for name in taken} | own | {"enforce_eager": True, "disable_log_stats": True}
    # It would have the kernel kill this process with its parent.
    with patch.object(utils, "set_death_signal"):
        engine = LLM(config.model.path, worker_extension_cls=EXTENSION, **arguments | others)
    engine.collective_rpc("monkey_patch_model", kwargs={"vocab_size": len(engine.get_tokenizer())})
    return engine


def beside(sleeps: bool = False) -> dict[str, Any]:
    """The arguments of an engine beside others on a GPU; on a CPU the recipe has them."""
    return {"kv_cache_memory_bytes": 2 << 30, "enable_sleep_mode": sleeps} if CUDA else {}


class Sampled(NamedTuple):
    """A message that an engine has sampled, with the log-probs of its tokens."""

    prompt: Sequence[int]
    ids: Sequence[int]
    log_probs: torch.Tensor


def sampled(engine, prompts: Sequence[Sequence[int]], params: Any, **others: Any) -> list[Sampled]:
    """The engine's answers to some prompts, all at once; params: of all, or of each."""
    asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    found = engine.generate(asked, params, use_tqdm=False, **others)
    return [
        Sampled(prompt, answer.token_ids, _chosen(answer))
        for prompt, output in zip(prompts, found, strict=True)
        for answer in output.outputs
    ]


def _chosen(answer) -> torch.Tensor:
    """The log-probs of sampled tokens; NaN if they were not asked for."""
    if answer.logprobs is None:
        return torch.full((len(answer.token_ids),), torch.nan)
    return torch.tensor([each[i].logprob for i, each in zip(answer.token_ids, answer.logprobs, strict=True)])


class EngineHere:
    """verl's client over an engine of this process: all who wait share its steps; `asked` holds what they got."""

    def __init__(self, engine):
        self._engine = engine.llm_engine
        self.tokenizer, self.model_type = engine.get_tokenizer(), self._engine.model_config.hf_config.model_type
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future] = {}
        self._stepping: asyncio.Task | None = None
        self.asked: list[tuple[list[int], int]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]):
        from verl.workers.rollout.replica import TokenOutput
        from vllm import SamplingParams

        asked = dict(sampling_params)
        params = SamplingParams(logprobs=0 if asked.pop("logprobs", False) else None, **asked)
        name = f"{request_id}-{next(self._numbers)}"
        future = self._waiting[name] = asyncio.get_running_loop().create_future()
        self._engine.add_request(name, {"prompt_token_ids": list(prompt_ids)}, params)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._step())
        (answer,) = (await future).outputs
        self.asked.append((list(prompt_ids), len(answer.token_ids)))
        return TokenOutput(
            token_ids=list(answer.token_ids), log_probs=_chosen(answer).tolist(), stop_reason="completed"
        )

    async def _step(self) -> None:
        while self._waiting:
            for output in self._engine.step():
                if output.finished:
                    self._waiting.pop(output.request_id).set_result(output)
            await asyncio.sleep(0)
