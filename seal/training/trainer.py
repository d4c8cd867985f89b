"""SEAL's trainer: verl's synchronous v1 trainer with the closed loop hooked in.

Per step verl samples prompts, rolls out, scores log-probs, computes GRPO
advantages and updates the actor. SEAL adds four things, each at one hook:
Omega_t travels with the training prompts (`_submit_batch_to_rollout`); after
the group-relative advantages are known they are multiplied by w_j, and C_t,
rho_{t+1} and Omega_{t+1} follow (`_compute_advantage`); the loop's state is
part of the checkpoint (`_save_checkpoint`, `_load_checkpoint`); the step is
logged (`_compute_metrics`). Paper, Algorithm 1.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from seal.rollout.record import TrajectoryRecord
from seal.training.closed_loop import ClosedLoop, LoopSettings, StepReport
from seal.training.group import Group, mark_groups
from seal.training.log import RunLog
from seal.training.state import load_state, save_state
from seal.training.watch import InfrastructureWatch

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.05
"""How often the trainer asks for finished groups; verl's 2 s would round up every step and validation."""


@register_trainer("seal")
class SEALTrainer(PPOTrainerSync):
    """GRPO with diagnosis-guided advantages and an evolving learning interface."""

    @property
    def trainer_mode(self) -> str:
        # verl 0.9.1 compares this name with "sync" wherever the synchronous trainer differs from the others.
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None:
        del value

    def __init__(self, config):
        settings = OmegaConf.to_container(config.seal, resolve=True)
        self._loop = ClosedLoop(LoopSettings.from_config(settings))
        self._log = RunLog(Path(config.seal.run_dir))
        self._watch = InfrastructureWatch(limit=config.seal.infra_limit)
        self._logprob_tolerance = config.seal.logprob_tolerance
        self._report: StepReport | None = None
        super().__init__(config)

    def _build_replay_buffer(self):
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = POLL_INTERVAL_S
        return buffer

    # ------------------------------------------------------------------ rollout

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        """Send Omega_t along with the prompts of a training step; validation never passes here."""
        tu.assign_non_tensor_data(batch, "training", True)
        omega = self._loop.omega_to_send()
        if omega is not None:
            tu.assign_non_tensor_data(batch, "omega", omega)
        return super()._submit_batch_to_rollout(batch)

    # --------------------------------------------------------------- advantages

    def _compute_advantage(self, batch, metrics: dict):
        """A~_j = w_j A_j (method, section 4), then C_t, rho_{t+1} and Omega_{t+1}."""
        started = time.perf_counter()
        real = [i for i, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        keys = [batch.keys[i] for i in real]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["uid", "extra_fields"])
        records = [
            TrajectoryRecord.from_json(extra["reward_extra_info"]["seal"])
            for extra in data.pop("extra_fields").tolist()
        ]
        groups = mark_groups(data.pop("uid").tolist(), records)
        self._watch.check(records)
        self._set_apart(batch.partition_id, keys, groups)
        spent = time.perf_counter() - started

        batch = super()._compute_advantage(batch, metrics)

        started = time.perf_counter()
        fields = ["advantages", "response_mask", "rollout_log_probs", "old_log_probs"]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        masks = [mask.bool() for mask in data["response_mask"].unbind()]
        metrics["seal/logp_diff_max"] = difference = self._agreement(data, masks)
        advantages = list(data["advantages"].unbind())
        signs = [
            _sign(advantage[mask]) if group.counts else 0
            for advantage, mask, group in zip(advantages, masks, groups, strict=True)
        ]
        token_weights, self._report = self._loop.step(self.global_steps, records, groups, signs)
        weighted = [
            advantage * torch.tensor(weights.per_token(len(advantage)), dtype=advantage.dtype)
            for advantage, weights in zip(advantages, token_weights, strict=True)
        ]
        tq.kv_batch_put(
            keys=keys,
            partition_id=batch.partition_id,
            fields=TensorDict(
                {"advantages": torch.nested.as_nested_tensor(weighted, layout=torch.jagged)}, batch_size=len(keys)
            ),
        )
        self._log.trajectories(self.global_steps, records)
        self._report = self._report.with_figures(
            logp_diff_max=difference, seal_seconds=spent + time.perf_counter() - started
        )
        metrics.update(self._report.metrics())
        return batch

    def _set_apart(self, partition_id: str, keys: list[str], groups: list[Group]) -> None:
        """Give trajectories that are lost or excluded a group of their own, out of the others' baseline."""
        apart = [(key, f"{key}-apart") for key, group in zip(keys, groups, strict=True) if group.apart]
        if apart:
            tq.kv_batch_put(
                keys=[key for key, _ in apart],
                partition_id=partition_id,
                fields=tu.list_of_dict_to_tensordict([{"uid": uid} for _, uid in apart]),
            )

    def _agreement(self, data: TensorDict, masks: list[torch.Tensor]) -> float:
        """Largest difference between the engine's and the actor's log-probs of the sampled tokens.

        Raises RuntimeError beyond `seal.logprob_tolerance`: then the engine does
        not run the weights that are being trained, and no gradient means anything.
        """
        if "rollout_log_probs" not in data or "old_log_probs" not in data:
            return float("nan")
        differences = [
            (rollout - old)[mask].abs().max().item()
            for rollout, old, mask in zip(
                data["rollout_log_probs"].unbind(), data["old_log_probs"].unbind(), masks, strict=True
            )
            if mask.any()
        ]
        worst = max(differences, default=0.0)
        if self._logprob_tolerance is not None and worst > self._logprob_tolerance:
            raise RuntimeError(
                f"After the weight sync of step {self.global_steps} rollout and actor log-probs differ by {worst:.2e}, "
                f"more than seal.logprob_tolerance={self._logprob_tolerance:.0e}: the engine's weights are stale."
            )
        return worst

    # --------------------------------------------------------------- checkpoint

    def _checkpoint_folder(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _save_checkpoint(self):
        # Before verl's own files: verl marks the step as complete last, so the state is there or the step is not.
        save_state(self._checkpoint_folder(), self._loop.state)
        super()._save_checkpoint()

    def _load_checkpoint(self):
        super()._load_checkpoint()
        if self.global_steps > 0:
            folder = self._checkpoint_folder()
            if self.config.trainer.resume_mode == "resume_path":
                folder = Path(self.config.trainer.resume_from_path)
            self._loop.restore(load_state(folder))
        self._log.keep_through(self.global_steps)

    # --------------------------------------------------------------------- logs

    def on_validate_begin(self):
        self._log.stage("validate", step=self.global_steps, of=len(self.val_dataset))

    def on_step_begin(self):
        self._log.stage("train", step=self.global_steps, of=self.total_training_steps)

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._log.step(self._report, {name: round(seconds, 3) for name, seconds in timing_raw.items()})

    def _write_generations(self, inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path, global_steps):
        """Write a validation as one JSON line a trajectory, whole or not at all."""
        del inputs, outputs, gts, scores
        records = [TrajectoryRecord.from_json(text) for text in reward_extra_infos_dict["seal"]]
        self._log.validation(Path(dump_path), global_steps, records)


def _sign(values: torch.Tensor) -> int:
    return int(torch.sign(values.sum()).item()) if len(values) else 0
