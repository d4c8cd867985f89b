"""vLLM's own offline throughput on what a training step sampled.

    python -m benchmarks.gpu.offline exp/NAME.yaml experiments/RUN/seal_log/trajectories/N.jsonl [key=value ...]

Takes every assistant message of the step's trajectories, with the dialogue
before it as the prompt, and lets vLLM sample as many tokens, all requests at
once: with no environment to wait for and in any order. The rollout's tokens per
second are compared with this. Prints one JSON line.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seal.launch.recipe import compose_recipe
from seal.records.trajectory import TrajectoryRecord
from seal.records.validation import read_log

ENGINE = (
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "seed",
)
"""Keys of `actor_rollout_ref.rollout` that are vLLM's own."""


def workload(records: Sequence[TrajectoryRecord]) -> list[tuple[list[dict[str, str]], int]]:
    """(dialogue so far, tokens to sample) of every assistant message in a step's trajectories."""
    found = []
    for record in records:
        said = [i for i, message in enumerate(record.messages) if message["role"] == "assistant"]
        for i, (_, start, end) in zip(said, record.spans, strict=False):
            found.append((list(record.messages[:i]), end - start))
    return found


def engine_arguments(config) -> dict[str, Any]:
    """The recipe's rollout engine as arguments of vLLM's `LLM`."""
    rollout = config.actor_rollout_ref.rollout
    arguments = {key: rollout[key] for key in ENGINE if rollout.get(key) is not None}
    arguments |= {"tensor_parallel_size": rollout.tensor_model_parallel_size}
    return arguments | OmegaConf.to_container(rollout.engine_kwargs).get("vllm", {})


def measure(config, records: Sequence[TrajectoryRecord]) -> dict[str, float]:
    """Requests, sampled tokens, seconds and tokens per second."""
    from vllm import LLM, SamplingParams

    llm = LLM(model=config.actor_rollout_ref.model.path, disable_log_stats=True, **engine_arguments(config))
    tokenizer = llm.get_tokenizer()
    work = workload(records)
    prompts = []
    for messages, _ in work:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompts.append({"prompt_token_ids": tokenizer.encode(text, add_special_tokens=False)})
    settings = [SamplingParams(temperature=1.0, max_tokens=n, ignore_eos=True, detokenize=False) for _, n in work]
    # Once without timing and with other prompts: the first requests compile and allocate.
    other = [{"prompt_token_ids": [1 + i % 7] * 32} for i in range(min(8, len(work)))]
    llm.generate(other, SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False), use_tqdm=False)
    started = time.perf_counter()
    outputs = llm.generate(prompts, settings, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    return {"requests": len(work), "tokens": tokens, "seconds": seconds, "tokens_per_s": tokens / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("trajectories", type=Path, help="seal_log/trajectories/N.jsonl of a run")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_args()
    config = compose_recipe(options.recipe, options.overrides)
    # vLLM reads these when it is imported.
    os.environ.update({key: str(value) for key, value in config.seal.process_env.items()})
    print(json.dumps(measure(config, read_log(options.trajectories).without_bad())))


if __name__ == "__main__":
    main()
