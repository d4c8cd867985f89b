"""verl's training worker of a recipe in this process, and rows for it."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from tensordict import TensorDict

from seal.backends.cpu_rows import before_sampled

PROCESS = {"VERL_PLATFORM": "cpu", "GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
"""The environment of a rank on a CPU."""


def nested(values: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)


def batch_of(
    ids: Sequence[torch.Tensor],
    masks: Sequence[torch.Tensor],
    advantages: Sequence[float],
    old_log_probs: Sequence[torch.Tensor] | None = None,
) -> TensorDict:
    """Rows as the trainer sends them: their tokens, and for the responses at their ends 1 for each sampled token.

    old_log_probs: of the responses' tokens, by default -8, which drawn tokens have.
    """
    after = [len(mask) for mask in masks]
    before = [len(row) - n for row, n in zip(ids, after, strict=True)]
    mask, old = nested(masks), nested(old_log_probs or [torch.full((n,), -8.0) for n in after])
    return TensorDict(
        {
            "input_ids": nested(ids),
            "position_ids": nested([torch.arange(len(row)) for row in ids]),
            "loss_mask": mask,
            "prompts": nested([row[:n] for row, n in zip(ids, before, strict=True)]),
            "responses": nested([row[n:] for row, n in zip(ids, before, strict=True)]),
            "response_mask": mask,
            "old_log_probs": old,
            "ref_log_prob": old,
            "advantages": nested([torch.full((n,), value) for n, value in zip(after, advantages, strict=True)]),
        },
        batch_size=len(ids),
    )


def worker_of(config: DictConfig, packed: int):
    """verl's worker of a recipe's `actor_rollout_ref`, with PPO's loss; packed: the tokens of its micro-batches."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig
    from verl.workers.utils.losses import ppo_loss

    actor = omega_conf_to_dataclass(config.actor)
    actor.model_config = omega_conf_to_dataclass(config.model)
    actor.engine.use_dynamic_bsz, actor.engine.use_remove_padding = True, True
    actor.engine.max_token_len_per_gpu = actor.engine.infer_max_token_len_per_gpu = packed
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=actor.model_config,
            engine_config=actor.engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
        )
    )
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


def scored(worker, batch: TensorDict, **facts: Any) -> dict[str, torch.Tensor]:
    """The worker's log-probs, and the entropy unless it is not asked for, at the sampled tokens of all rows."""
    from verl.utils import tensordict_utils as tu

    asked = {"compute_loss": False, "temperature": 1.0, "calculate_entropy": True}
    tu.assign_non_tensor(batch, **asked | facts)
    output = worker.infer_batch(batch)
    chosen = before_sampled(batch["input_ids"].offsets(), batch["response_mask"])
    found = {name: tu.get(output, name) for name in ("log_probs", "entropy")}
    return {name: values.values().float()[chosen] for name, values in found.items() if values is not None}


def stepped(worker, batch: TensorDict, size: int | None = None, **facts: Any) -> dict[str, float]:
    """One pass over the rows in mini-batches of `size`, by default one; the means of its metrics."""
    from verl.utils import tensordict_utils as tu

    size = size or len(batch)
    tu.assign_non_tensor(batch, mini_batch_size=size, global_batch_size=size, dataloader_kwargs={"shuffle": False})
    tu.assign_non_tensor(batch, **{"temperature": 1.0, "calculate_entropy": False} | facts)
    means = {}
    for name, values in tu.get(worker.train_mini_batch(batch), "metrics").items():
        with suppress(TypeError, ValueError):  # not a number, or a list of lists
            means[name] = float(np.mean(values))
    return means


def weights(worker) -> list[np.ndarray]:
    """All parameters, whole, in fp32."""
    return [each.full_tensor().detach().float().cpu().numpy().copy() for each in worker.engine.module.parameters()]
