"""Does a recipe fit a GPU, and how long does it take? Computed as bytes per GPU, room for dialogues, seconds.

Memory follows from sizes: four runs on an H200 peaked 0.3 to 0.4 GiB below it. PER_PARAMETER, TOKEN_S and SYNC_S are
from runs of two small policies on that GPU (benchmarks/speed.md). Other times and models above 0.5B were not measured.
"""

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig

from seal.settings import SealSettings
from seal.system.errors import LaunchError
from shelf.operate.lengths import Length
from shelf.operate.step import StepPlan

GB, GIB = 10**9, 1 << 30
EFFICIENCY, PER_PARAMETER = 0.4, 0.3e-9
"""The share of a GPU's peak that training reaches; for a small model, that share per parameter (measured: a share of
0.15 to 0.17 with 0.5B, 0.02 with 0.1B, both with packed_sdpa). Of the memory bandwidth, it is 1.5 times EFFICIENCY."""
PINNED = 1.9
"""Pinned host memory per byte: its allocator rounds up to powers of two."""
CONTEXTS, ASLEEP, GRAPHS = 2 * GB, 2 * GB, GB
"""Bytes of the CUDA contexts of trainer and engine, of what a sleeping engine keeps, and of its captured graphs."""
MESSAGE_TOKENS, TOKEN_S = 120, 0.008
"""Tokens per sampled message (the slowest rollout of a step samples seal.rollout.max_steps of them), and the least
seconds per token, including tools (measured: 0.004 to 0.012)."""
HOST_ADAM_S, SYNC_S, DISK = 3.4e-9, 1, GB
"""Seconds per parameter of fused AdamW on a CPU; seconds of queue, advantages and sync start; bytes/s of a disk."""
DRAWS = 20
RESIDENT = ("parameters", "optimizer", "gradients", "contexts")
"""The parts of an update that no budget of tokens changes."""


class Gpu(NamedTuple):
    """A GPU: memory in bytes, peak bf16 arithmetic (operations/s) and peak memory bandwidth (bytes/s)."""

    memory: float
    flops: float
    bandwidth: float


GPUS = {
    "H200": Gpu(139.8 * GIB, 989e12, 4.8e12),
    "H100": Gpu(79.1 * GIB, 989e12, 3.35e12),
    "B200": Gpu(178 * GIB, 2250e12, 8e12),
    "A100-40": Gpu(39.4 * GIB, 312e12, 1.55e12),
    "A100": Gpu(79.1 * GIB, 312e12, 2e12),
    "L40S": Gpu(44.4 * GIB, 362e12, 0.86e12),
    "4090": Gpu(23.5 * GIB, 165e12, 1e12),
}


def gpu_named(name: str, memory: float | None = None) -> Gpu:
    """The GPU whose name is part of this name. If the memory is given, an unknown GPU counts as fast as an A100.

    ValueError for an unknown GPU without a memory.
    """
    known = next((gpu for key, gpu in GPUS.items() if key.lower() in name.lower()), None)
    if known is None and memory is None:
        raise ValueError(f"--gpu {name} is not known; choose from {', '.join(GPUS)}.")
    known = known or GPUS["A100"]
    return known if memory is None else known._replace(memory=memory)


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_GPT2 = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a transformer: parameters in all, in one layer, in the largest tensor; layers, widths, and the bytes
    of a token's keys and values in bf16."""

    parameters: int
    layer: int
    largest: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    kv_heads: int
    kv_bytes: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ModelSizes":
        """The sizes from a config.json; all layers are counted as if they had gated MLPs.

        In a mixture of experts, all experts count.
        """
        text = {_GPT2.get(key, key): value for key, value in config.get("text_config", config).items()}
        if missing := [key for key in _SIZES if key not in text]:
            raise ValueError(f"The model's config.json lacks {', '.join(missing)}: its memory cannot be computed.")
        hidden, layers, heads, vocabulary = (text[key] for key in _SIZES)
        inner = text.get("intermediate_size") or 4 * hidden
        kv_heads, head = text.get("num_key_value_heads") or heads, text.get("head_dim") or hidden // heads
        experts = next((n for key in _EXPERTS if (n := text.get(key))), 1)
        mlp = 3 * hidden * experts * (text.get("moe_intermediate_size") or inner)
        layer = hidden * head * 2 * (heads + kv_heads) + mlp + 2 * hidden
        tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", True))
        whole = layers * layer + vocabulary * hidden * (1 if tied else 2) + hidden
        largest = max(vocabulary, inner) * hidden
        return cls(whole, layer, largest, layers, hidden, inner, vocabulary, kv_heads, layers * kv_heads * head * 4)


@dataclass(frozen=True)
class Fit:
    """Bytes on each GPU by content, while rollouts are sampled and while the actor is updated.

    kv: bytes for keys and values in an engine. host: bytes of weights, gradients and optimizer in a machine's memory.
    """

    rollout: Mapping[str, float]
    update: Mapping[str, float]
    kv: float
    host: float


def fit(config: DictConfig, plan: StepPlan, model: ModelSizes, gpu: Gpu) -> Fit:
    """Return the memory that a recipe needs on each GPU."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    sharding, tensor = actor.fsdp_config, rollout.tensor_model_parallel_size
    size, adapters = 4 * model.parameters / plan.devices, config.actor_rollout_ref.model.lora_rank > 0
    trained = 0.02 * size if adapters else size
    on_gpu = not sharding.offload_policy
    packed = plan.packed or plan.longest * (plan.rows_per_micro_batch or 1)
    engine = rollout.gpu_memory_utilization * gpu.memory
    state = {"parameters": size, "optimizer": 2 * trained} if on_gpu else {}
    unsharded = sharding.use_no_sync_for_gradient_accumulation and (not on_gpu or plan.devices > 1)
    logits = 2.0 * packed * model.vocabulary
    work = {
        "gradients": (trained if on_gpu else 0) + (4.0 * model.parameters if unsharded and not adapters else 0),
        "inputs of layers": 2.0 * packed * model.hidden * model.layers,
        "logits": logits,
        "one layer": 2.0 * packed * (8 * model.hidden + 3 * model.intermediate) + 8.0 * model.layer,
    }
    if not config.actor_rollout_ref.model.enable_gradient_checkpointing:
        work["one layer"] *= model.layers
    reading = 2.0 * rollout.max_num_batched_tokens * (2 * model.intermediate + 4 * model.hidden) / tensor
    reading += 8.0 * rollout.max_num_seqs * model.vocabulary / tensor + GRAPHS
    host = 0.0 if on_gpu else (8 * PINNED + 8) * model.parameters
    if adapters:
        host += 2 * PINNED * model.parameters * plan.engines  # sleeping engines keep their base weights in host memory
    elif config.actor_rollout_ref.actor.use_kl_loss:
        host += 2 * PINNED * model.parameters  # for the reference model
    return Fit(
        {**state, "engine": engine, "contexts": CONTEXTS},
        {**state, **work, "sleeping engine": ASLEEP, "contexts": CONTEXTS},
        # GPUs beyond the number of heads hold copies.
        kv=((engine - reading) * tensor - 2 * model.parameters) / max(1, tensor / model.kv_heads),
        host=host / config.trainer.nnodes,
    )


def require_fit(found: Fit, plan: StepPlan, model: ModelSizes, gpu: Gpu) -> None:
    """LaunchError with the first part that does not fit a GPU, and the setting to lower."""
    resident = {name: found.update[name] for name in RESIDENT if name in found.update}
    offload = "actor_rollout_ref.actor.fsdp_config.offload_policy=true, " if "optimizer" in resident else ""
    if (needed := sum(resident.values())) > gpu.memory:
        keep = f"keep them in host memory ({offload}as exp/SEAL_1gpu.yaml does), " if offload else ""
        raise LaunchError(
            f"{', '.join(resident).capitalize()} alone need {needed / GIB:.0f} GiB on each GPU and it has "
            f"{gpu.memory / GIB:.0f}: {keep}train an adapter (actor_rollout_ref.model.lora_rank, as exp/SEAL_lora.yaml "
            "does), or take more GPUs (trainer.n_gpus_per_node)."
        )
    fixes = {
        "rollout": "lower actor_rollout_ref.rollout.gpu_memory_utilization",
        "update": f"lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu{offload and ', or set '}{offload[:-2]}",
    }
    for stage, fix in fixes.items():
        needed = sum(getattr(found, stage).values())
        if needed > gpu.memory:
            most = max(getattr(found, stage).items(), key=lambda part: part[1])
            raise LaunchError(
                f"The {stage} needs {needed / GIB:.0f} GiB on each GPU and it has {gpu.memory / GIB:.0f} (most of it: "
                f"{most[0]}, {most[1] / GIB:.0f} GiB): {fix}, or take more GPUs (trainer.n_gpus_per_node)."
            )
    if found.kv < plan.model * model.kv_bytes:
        raise LaunchError(
            f"Beside the weights the engine has {max(found.kv, 0) / GIB:.1f} GiB for keys and values, less than one "
            f"dialogue of {plan.model} tokens needs: raise actor_rollout_ref.rollout.gpu_memory_utilization or "
            "tensor_model_parallel_size."
        )


class Work(NamedTuple):
    """A step in tokens: per row, per first prompt, and for all rows; micro-batches per mini-batch and rank, and how
    full they are."""

    row: float
    prompt: float
    step: float
    micro_batches: float
    fill: float


def work(plan: StepPlan, tasks: Sequence[Length]) -> Work:
    """A step over these tasks, packed like verl does; each row is a reference, cut where the budgets cut it."""
    rows = [min(task.prompt + min(task.rest, plan.response), plan.longest) for task in tasks]
    packed = plan.packed or max(rows) * (plan.rows_per_micro_batch or 1)
    draw = random.Random(0)
    counts = []
    for _ in range(DRAWS):
        chosen = draw.choices(rows, k=max(1, plan.rows_per_rank // plan.samples))
        mini = (chosen * plan.samples)[: plan.rows_per_rank]
        counts.append(_micro_batches(mini, packed))
    mean, micro = statistics.mean(rows), statistics.mean(counts)
    prompt, fill = statistics.mean(task.prompt for task in tasks), mean * plan.rows_per_rank / micro / packed
    return Work(mean, prompt, mean * plan.rows, micro, fill)


def _micro_batches(rows: list[int], packed: int) -> int:
    """The number of micro-batches for these rows, by verl's loop."""
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    workloads = calculate_workload(torch.tensor(rows)).tolist()
    number = -(-sum(rows) // packed)
    while number < len(rows):
        parts = get_seqlen_balanced_partitions(workloads, number, equal_size=False)
        if all(sum(rows[i] for i in part) <= packed for part in parts):
            break
        number += 1
    return number


def user_seconds(requests: int, prompt: float, model: ModelSizes, gpu: Gpu, rows: int) -> float:
    """Seconds for which the slowest rollout waits for a user on one GPU that answers `rows` rollouts at a time.

    requests: those of that rollout. prompt: tokens of the user's part, which is computed once per rollout.
    """
    spoken = requests * MESSAGE_TOKENS
    prefill = 2 * model.parameters * rows * (prompt + spoken) / (EFFICIENCY * gpu.flops)
    return prefill + spoken * _token_s(model, rows * (prompt + spoken), gpu.bandwidth)


def _token_s(model: ModelSizes, held: float, bandwidth: float) -> float:
    """Seconds per token while an engine holds the keys and values of `held` tokens."""
    return max(TOKEN_S, (2 * model.parameters + held * model.kv_bytes) / (1.5 * EFFICIENCY * bandwidth))


def seconds(config: DictConfig, plan: StepPlan, model: ModelSizes, gpu: Gpu, step: Work) -> dict[str, float]:
    """The seconds of each stage of a step."""
    settings = SealSettings.of(config)
    speed = min(EFFICIENCY, PER_PARAMETER * model.parameters) * gpu.flops * plan.devices
    attention = model.layers * model.hidden * step.row  # causal: half of a row's tokens on average
    token_pass = 2 * (model.parameters + attention) * step.step / speed
    at_once = min(plan.engine_slots, -(-plan.in_flight // plan.engines))
    token_s = _token_s(model, at_once * step.row, gpu.bandwidth * plan.devices / plan.engines)
    prefill = 2 * model.parameters * plan.prompts * step.prompt / (EFFICIENCY * gpu.flops * plan.devices / plan.engines)
    found = {
        "rollouts": prefill + config.seal.rollout.max_steps * MESSAGE_TOKENS * token_s,
        "old log-probs": token_pass / (1 if settings.teaches else settings.logprob_check_every),
        "reference": token_pass if config.actor_rollout_ref.actor.use_kl_loss else 0.0,
        "update": 4 * token_pass * config.actor_rollout_ref.actor.ppo_epochs,
        "sync and the rest": SYNC_S + 4 * model.parameters / (10 * GB),
    }
    if config.actor_rollout_ref.actor.fsdp_config.offload_policy:
        found["optimizer on the CPU"] = HOST_ADAM_S * model.parameters * plan.optimizer_steps / plan.devices
    return found
