"""How near do rollouts come to what the engine could do? `python -m benchmarks.gpu.rollouts RECIPE [key=value]...`

The bound is the same engine with the same dependencies: message k+1 of a dialogue is asked for when message k has come,
with the prompts, seeds and lengths of the rollouts and without an environment. verl's server and its client are the
run's; each agent-loop worker is a process, as there. Prints a line for each number of workers and of rollouts.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from env_service.local_service import local_service
from seal.backends import vllm_plugin
from seal.launch.recipe import read_recipe
from seal.records.trajectory import TrajectoryRecord
from seal.system.paths import HOME
from seal.training import cluster

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
ROUNDS, SERVICE_WORKERS = 2, 4

Asked = list[tuple[list[int], dict[str, Any], int]]
"""The messages of a dialogue in their order: the prompt's tokens, the sampling parameters, the length of the answer."""


class Recorder:
    """verl's client, which keeps what each dialogue asked for."""

    def __init__(self, client: Any):
        self._client = client
        self.asked: dict[str, Asked] = defaultdict(list)

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        params = dict(sampling_params)
        answer = await self._client.generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)
        self.asked[request_id].append((list(prompt_ids), params, len(answer.token_ids)))
        return answer


class Player:
    """The rollouts of one agent-loop worker, and the same requests without an environment."""

    def __init__(self, config: DictConfig, client: Any):
        from transformers import AutoConfig, AutoTokenizer
        from verl.experimental.agent_loop.agent_loop import DictConfigWrap

        path = config.actor_rollout_ref.model.path
        self._client = client
        self._arguments = {
            "trainer_config": DictConfigWrap(config),
            "tokenizer": AutoTokenizer.from_pretrained(path),
            "processor": None,
            "dataset_cls": None,
            "data_config": DictConfigWrap(config.data),
            "hf_model_type": AutoConfig.from_pretrained(path).model_type,
        }

    async def play(self, rows: Sequence[dict[str, Any]]) -> list[Asked]:
        """Play these rollouts; what each of them asked the engine for."""
        from seal.rollout.agent_loop import SEALAgentLoop

        recorder = Recorder(self._client)
        loops = [SEALAgentLoop(server_manager=recorder, **self._arguments) for _ in rows]
        played = await asyncio.gather(*(loop.run(dict(SAMPLING), **row) for loop, row in zip(loops, rows, strict=True)))
        for *_, output in played:
            record = TrajectoryRecord.from_json(output.extra_fields["reward_extra_info"]["seal"])
            if record.infra is not None:
                raise RuntimeError(record.infra_message)
        return list(recorder.asked.values())

    async def ask(self, dialogues: Sequence[Asked]) -> None:
        """Ask for the same messages again, each when the one before it has come."""

        async def follow(dialogue: Asked) -> None:
            number = uuid4().hex
            for prompt_ids, params, length in dialogue:
                params = {**params, "max_tokens": length, "min_tokens": length, "ignore_eos": True}
                params.pop("stop_token_ids", None)
                await self._client.generate(number, prompt_ids=prompt_ids, sampling_params=params)

        await asyncio.gather(*map(follow, dialogues))


def rows_of(recipe: Any, number: int, samples: int, round_: int) -> list[dict[str, Any]]:
    """The columns of `number` rollouts of the recipe's tasks, `samples` of each prompt."""
    tasks = list(islice(cycle(recipe.rows.train), -(-number // samples)))
    rows = [
        {**task.to_verl(index), "index": index, "session_id": sample, "global_steps": round_, "training": True}
        for index, task in enumerate(tasks)
        for sample in range(samples)
    ]
    return rows[:number]


def measure(recipe: Any, workers: int, number: int, client: Any, replicas: Sequence[Any]) -> str:
    """A line: messages, tokens per second of rollouts and of the engine with the same dependencies, their ratio."""
    import ray

    players = [ray.remote(num_cpus=0)(Player).remote(recipe.config, client) for _ in range(workers)]
    samples = recipe.config.actor_rollout_ref.rollout.n
    ray.get([player.play.remote(rows_of(recipe, samples, samples, 0)) for player in players])  # imports
    spent, tokens, messages = {"rollouts": 0.0, "engine": 0.0}, 0, 0
    for round_ in range(1, ROUNDS + 1):
        rows = rows_of(recipe, number, samples, round_)
        asyncio.run(clear(replicas))
        begun = time.perf_counter()
        asked = ray.get([p.play.remote(rows[i::workers]) for i, p in enumerate(players)])
        spent["rollouts"] += time.perf_counter() - begun
        asyncio.run(clear(replicas))
        begun = time.perf_counter()
        ray.get([player.ask.remote(dialogues) for player, dialogues in zip(players, asked, strict=True)])
        spent["engine"] += time.perf_counter() - begun
        found = [message for dialogues in asked for dialogue in dialogues for message in dialogue]
        tokens, messages = tokens + sum(length for *_, length in found), messages + len(found)
    for player in players:
        ray.kill(player)
    rates = {name: tokens / s for name, s in spent.items()}
    return (
        f"{workers} workers, {number} rollouts, {ROUNDS} rounds: {messages} messages, {tokens} tokens; rollouts "
        f"{rates['rollouts']:.0f} tokens/s, the engine with the same dependencies {rates['engine']:.0f}, "
        f"ratio {rates['rollouts'] / rates['engine']:.2f}"
    )


async def clear(replicas: Sequence[Any]) -> None:
    """Empty the engines' prefix caches."""
    await asyncio.gather(*(replica.clear_kv_cache() for replica in replicas))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.rollouts", description=__doc__)
    parser.add_argument("recipe", help="a recipe, for example exp/gpu_smoke.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rollouts", type=int, nargs="+", default=[64, 256])
    options = parser.parse_args()
    console = Console(emoji=False, soft_wrap=True, highlight=False)
    keys = ["actor_rollout_ref.rollout.load_format=auto", "actor_rollout_ref.rollout.nnodes=1", *options.overrides]
    recipe = read_recipe(HOME / options.recipe, keys)
    for name, value in recipe.config.seal.process_env.items():
        os.environ[name] = str(value)
    vllm_plugin.claim()
    cluster.prepare(recipe.config)
    import ray  # reads the environment that has been prepared; verl imports it too
    from verl.workers.rollout.llm_server import LLMServerManager

    from seal.backends import register  # noqa: F401

    files = ",".join(str(HOME / file) for file in recipe.task_files)
    with local_service(BFCL_TASK_FILES=files, BFCL_WORKERS=str(SERVICE_WORKERS)) as url:
        recipe = read_recipe(HOME / options.recipe, [*keys, f"env_service.env_url={url}"])
        cluster.prepare(recipe.config)
        ray.init(**OmegaConf.to_container(recipe.config.ray_kwargs.ray_init, resolve=True))
        begun = time.perf_counter()
        servers = LLMServerManager.create(config=recipe.config)
        console.print(f"the engine has started in {time.perf_counter() - begun:.0f} s")
        for workers in options.workers:
            for number in options.rollouts:
                line = measure(recipe, workers, number, servers.get_client(), servers.get_replicas())
                console.print(line, markup=False)
                sys.stdout.flush()
        ray.shutdown()


if __name__ == "__main__":
    main()
