"""How near a step on CPUs comes to its engines: `python -m benchmarks.cpu RUN STEP`, on a quiet machine.

Rollouts: vLLM alone, offline, samples as many tokens after prompts of the same lengths, shared by the same groups, with
the requests of a round at once. Updates: transformers alone goes forward and backward over rows of the same lengths,
one after the other. Tokens are random; both use the recipe's model, dtype and threads. Prints what the step reached of
their tokens/s.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}

import torch
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams, TokensPrompt

from seal.records.folder import RunFolder
from seal.records.step import read_steps
from seal.records.trajectory import TrajectoryRecord

ROWS = 8
"""The rows of an update that transformers computes."""


def sampled_alone(records: Sequence[TrajectoryRecord], model: str, engine: dict) -> float:
    """Seconds that vLLM takes for the messages of these rollouts, in rounds."""
    llm = LLM(model, max_num_seqs=len(records), disable_log_stats=True, **engine)
    words, draw = llm.get_tokenizer().vocab_size, random.Random(0)

    def text(length: int) -> list[int]:
        return draw.choices(range(words), k=length)

    prompts = {record.group: text(record.prompt_tokens) for record in records}
    dialogues = [prompts[record.group] + text(record.spans[-1][2]) for record in records]
    started = time.perf_counter()
    for number in range(max(len(record.spans) for record in records)):
        asked, limits = [], []
        for record, dialogue in zip(records, dialogues, strict=True):
            if number < len(record.spans):
                _, start, end = record.spans[number]
                asked.append(TokensPrompt(prompt_token_ids=dialogue[: record.prompt_tokens + start]))
                limits.append(SamplingParams(max_tokens=end - start, ignore_eos=True))
        llm.generate(asked, limits, use_tqdm=False)
    return time.perf_counter() - started


def update_speed_alone(lengths: Sequence[int], model: str) -> float:
    """Tokens per second of transformers over rows of these lengths, forward and backward."""
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = [torch.randint(policy.config.vocab_size, (1, length)) for length in lengths]
    policy(rows[0], labels=rows[0]).loss.backward()
    started = time.perf_counter()
    for row in rows:
        policy(row, labels=row).loss.backward()
    return sum(lengths) / (time.perf_counter() - started)


def main() -> None:
    """Print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("step", type=int)
    parser.add_argument("model")
    parser.add_argument("--engine", type=json.loads, default={}, help="vLLM's arguments as JSON")
    given = parser.parse_args()
    run = RunFolder(given.run)
    lines = (run.trajectories / f"{given.step}.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(TrajectoryRecord.from_json, lines) if record.spans]
    seconds = next(step.seconds for step in read_steps(run.steps)[0] if step.step == given.step)
    alone = sampled_alone(records, given.model, given.engine)
    print(f"rollouts {seconds['gen']:.1f} s, vLLM alone {alone:.1f} s: {alone / seconds['gen']:.2f} of its tokens/s")
    trained = [record.prompt_tokens + record.spans[-1][2] for record in records if record.advantage]
    speed = sum(trained) / seconds["update_actor"]
    alone = update_speed_alone(trained[:ROWS], given.model)
    print(f"update {speed:.0f} tokens/s, transformers alone {alone:.0f}: {speed / alone:.2f}")


if __name__ == "__main__":
    main()
