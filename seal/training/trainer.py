"""SEAL's trainer: verl's synchronous v1 trainer with the closed loop hooked in.

Per step verl samples prompts, rolls out, scores log-probs, computes GRPO
advantages and updates the actor. SEAL adds four things, each at one hook:
Omega_t travels with the training prompts (`_submit_batch_to_rollout`); after
the group-relative advantages are known they are multiplied by w_j, and C_t,
rho_{t+1} and Omega_{t+1} follow (`_compute_advantage`); the loop's state is
part of the checkpoint (`_save_checkpoint`, `_load_checkpoint`); the step is
logged (`_compute_metrics`). Paper, Algorithm 1.

A resumed run is the uninterrupted one: requests are seeded by step, row and
sample, and a batch is trained in the order of its prompts, not of their ending
(`_balance_batch`).
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from seal.records.step import StepReport
from seal.records.trajectory import FATAL, TrajectoryRecord
from seal.training.checkpoints import Checkpoints, Retention, expected_size
from seal.training.closed_loop import ClosedLoop, LoopSettings
from seal.training.group import Group, mark_groups
from seal.training.log import RunLog
from seal.training.state import StateError, load_state, save_state
from seal.training.stop import StopRequest, StopRequested
from seal.training.validation import validation_averages
from seal.training.watch import InfrastructureFailure, InfrastructureWatch

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.05
"""How often the trainer asks for finished groups; verl's 2 s would round up every step and validation."""


class Agreement(NamedTuple):
    """Absolute difference of the engine's and the actor's log-probs, over the sampled tokens of a step."""

    largest: float
    mean: float


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
        self._report: StepReport | None = None
        self._stop = StopRequest(Path(config.seal.run_dir))
        self._checkpoints = Checkpoints(
            Path(config.trainer.default_local_dir),
            Retention(**settings["checkpoints"]),
            expected_size(Path(config.actor_rollout_ref.model.path)),
        )
        self._saved_step = 0
        self._prompt_order: dict[str, int] = {}
        self._validated: list[TrajectoryRecord] = []
        super().__init__(config)

    def _build_replay_buffer(self):
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = POLL_INTERVAL_S
        wait = buffer._wait_for_next_poll

        def wait_unless_stopped(*arguments):
            if self._stop.made:
                raise StopRequested("Stopped on request while rollouts were under way.")
            return wait(*arguments)

        buffer._wait_for_next_poll = wait_unless_stopped
        return buffer

    # ------------------------------------------------------------------ rollout

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        """Send Omega_t along with the prompts of a training step; validation never passes here."""
        tu.assign_non_tensor_data(batch, "training", True)
        omega = self._loop.omega_to_send()
        if omega is not None:
            tu.assign_non_tensor_data(batch, "omega", omega)
        for uid in batch["uid"]:
            self._prompt_order[uid] = len(self._prompt_order)
        return super()._submit_batch_to_rollout(batch)

    def _balance_batch(self, batch, metrics, **kwargs):
        """Put the batch into the order of its prompts and samples, whole: verl would fill a gap with padding."""
        expected = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        if len(batch) != expected:
            raise InfrastructureFailure(
                f"{expected - len(batch)} of {expected} trajectories of step {self.global_steps} never came back from "
                "the agent-loop workers; their errors are in the log. Start again to resume from the last checkpoint."
            )
        batch.reorder(sorted(range(len(batch)), key=lambda i: self._place(batch.keys[i])))
        return super()._balance_batch(batch, metrics, **kwargs)

    def _place(self, key: str) -> tuple[int, int, int]:
        """Where a trajectory belongs in its batch; verl's key is prompt uid, sample and output."""
        uid, sample, output = key.rsplit("_", 2)
        return self._prompt_order[uid], int(sample), int(output)

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
        agreement = self._agreement(data, masks)
        metrics["seal/logp_diff_max"], metrics["seal/logp_diff_mean"] = agreement.largest, agreement.mean
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
            logp_diff_max=agreement.largest,
            logp_diff_mean=agreement.mean,
            seal_seconds=spent + time.perf_counter() - started,
        )
        metrics.update(self._report.record.metrics())
        return batch

    def _set_apart(self, partition_id: str, keys: list[str], groups: list[Group]) -> None:
        """Give what is lost or excluded a group of its own, and what does not count no part in any loss term."""
        apart = [(key, f"{key}-apart") for key, group in zip(keys, groups, strict=True) if group.apart]
        if apart:
            tq.kv_batch_put(
                keys=[key for key, _ in apart],
                partition_id=partition_id,
                fields=tu.list_of_dict_to_tensordict([{"uid": uid} for _, uid in apart]),
            )
        silent = [key for key, group in zip(keys, groups, strict=True) if not group.counts]
        if silent:
            data = tq.kv_batch_get(keys=silent, partition_id=partition_id, select_fields=["response_mask"])
            nothing = torch.nested.as_nested_tensor(
                [torch.zeros_like(mask) for mask in data["response_mask"].unbind()], layout=torch.jagged
            )
            fields = TensorDict({"response_mask": nothing, "loss_mask": nothing}, batch_size=len(silent))
            tq.kv_batch_put(keys=silent, partition_id=partition_id, fields=fields)

    def _agreement(self, data: TensorDict, masks: list[torch.Tensor]) -> Agreement:
        """How far the engine's and the actor's log-probs of the sampled tokens differ.

        Raises RuntimeError beyond `seal.logprob_tolerance` (the largest difference)
        or `seal.logprob_mean_tolerance`, and for one that is no number: then the engine
        does not run the weights that are being trained, and no gradient means anything.
        """
        if "rollout_log_probs" not in data or "old_log_probs" not in data:
            return Agreement(math.nan, math.nan)
        differences = torch.cat(
            [
                (rollout - old)[mask].abs().float().cpu()
                for rollout, old, mask in zip(
                    data["rollout_log_probs"].unbind(), data["old_log_probs"].unbind(), masks, strict=True
                )
            ]
        )
        if not len(differences):
            return Agreement(0.0, 0.0)
        found = Agreement(differences.max().item(), differences.mean().item())
        if not math.isfinite(found.mean):
            raise RuntimeError(
                f"Log-probs of step {self.global_steps} are not finite: the weights have diverged. Resume from an "
                "earlier checkpoint with a smaller actor_rollout_ref.actor.optim.lr."
            )
        for value, key in ((found.largest, "logprob_tolerance"), (found.mean, "logprob_mean_tolerance")):
            limit = self.config.seal[key]
            if limit is not None and value > limit:
                raise RuntimeError(
                    f"After the weight sync of step {self.global_steps} rollout and actor log-probs differ by "
                    f"{value:.2e}, more than seal.{key}={limit:.0e}: the engine's weights are stale."
                )
        return found

    # --------------------------------------------------------------- checkpoint

    def _save_checkpoint(self, data: Mapping[str, Any] | None = None):
        """Save the current step; `data` takes the place of the data loader's present state."""
        step, callback = self.global_steps, self.checkpoint_callback
        self._log.stage("save", step=step, of=self.total_training_steps)
        with self._checkpoints.saving(step) as folder, self._saving_into(folder.parent):
            save_state(folder, self._state(step))
            super()._save_checkpoint()
            if data is not None:
                torch.save(data, folder / "data.pt")
        self._saved_step = step
        callback.on_save(
            trainer=self,
            global_step=step,
            checkpoint_dir=os.path.join(self.config.trainer.default_local_dir, f"global_step_{step}"),
            async_save=False,
        )

    @contextmanager
    def _saving_into(self, folder: Path) -> Iterator[None]:
        """Within the block verl saves below `folder`, and tells nobody yet."""
        place, callback = self.config.trainer.default_local_dir, self.checkpoint_callback
        self.config.trainer.default_local_dir, self.checkpoint_callback = str(folder), CheckpointCallback()
        try:
            yield
        finally:
            self.config.trainer.default_local_dir, self.checkpoint_callback = place, callback

    def _state(self, step: int) -> dict[str, Any]:
        """What a resumed run needs: every draw of ours follows from seed and step, so there is no generator to keep."""
        lines = self._report.with_figures(seconds=_rounded(self.timing_raw)).lines() if self._report else {}
        return {"step": step, "seed": self.config.seal.seed, "loop": self._loop.state, "log": lines}

    def _load_checkpoint(self):
        super()._load_checkpoint()
        self._saved_step = self.global_steps
        if self.global_steps > 0:
            folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            if self.config.trainer.resume_mode == "resume_path":
                folder = Path(self.config.trainer.resume_from_path)
            state = load_state(folder)
            if state["step"] != self.global_steps:
                raise StateError(f"{folder} holds step {state['step']}: give the folder its own name again.")
            if state["seed"] != self.config.seal.seed:
                logger.warning(
                    "%s was trained with seal.seed=%s, not %s: from here on the run is another one.",
                    folder,
                    state["seed"],
                    self.config.seal.seed,
                )
            self._loop.restore(state["loop"])
            self._checkpoints.continue_from(folder, self.global_steps)
            self._log.keep_through(self.global_steps)
            self._log.complete(state["log"])
        else:
            self._log.keep_through(0)
        self._hide_later_points(self.global_steps)

    def _hide_later_points(self, step: int) -> None:
        """Tell TensorBoard that what an interrupted run drew after `step` does not count."""
        folder = os.environ.get("TENSORBOARD_DIR")
        if "tensorboard" in self.config.trainer.logger and folder and Path(folder).is_dir():
            from torch.utils.tensorboard import SummaryWriter

            SummaryWriter(folder, purge_step=step + 1).close()

    # --------------------------------------------------------------------- stop

    def step(self, metrics, timing_raw):
        """One step of Algorithm 1; a stop during its rollouts saves the step before."""
        data = self.train_dataloader.state_dict()
        self._prompt_order = {}
        try:
            return super().step(metrics, timing_raw)
        except StopRequested:
            self.global_steps -= 1
            self._save_and_stop(data)

    def on_step_end(self):
        if self._stop.made:
            # A run that ends needs no weight sync; the next hook ends it.
            if self._saved_step != self.global_steps:
                self._save_checkpoint()
            return
        self._log.stage("sync", step=self.global_steps, of=self.total_training_steps)
        super().on_step_end()

    def _save_and_stop(self, data: Mapping[str, Any] | None = None) -> NoReturn:
        """Save the last finished step, `global_steps`, where it is not saved yet, and end the run."""
        if self._saved_step != self.global_steps:
            self._save_checkpoint(data)
        raise StopRequested(f"Stopped on request; step {self.global_steps} is saved.")

    # --------------------------------------------------------------------- logs

    def on_validate_begin(self):
        if self._stop.made:
            self._save_and_stop()
        self._log.stage("validate", step=self.global_steps, of=len(self.val_dataset))

    def on_step_begin(self):
        if self._stop.made:
            self.global_steps -= 1
            self._save_and_stop()
        self._log.stage("train", step=self.global_steps, of=self.total_training_steps)

    def on_sample_end(self):
        self._log.stage("update", step=self.global_steps, of=self.total_training_steps)
        super().on_sample_end()

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._log.step(self._report.with_figures(seconds=_rounded(timing_raw)))

    def _validate(self):
        """verl's validation; its average decides which checkpoint is the best."""
        self._validated = []
        try:
            metrics = super()._validate()
        except StopRequested:
            self._save_and_stop()
        averages = validation_averages(self._validated)
        if averages is not None:
            self._checkpoints.validated(self.global_steps, *averages)
            metrics |= dict(zip(("seal/val/average", "seal/val/prefix_average"), averages, strict=True))
        return metrics

    def _dump_generations(self, *, reward_extra_infos_dict, **rest):
        if "seal" in reward_extra_infos_dict:
            self._validated = [TrajectoryRecord.from_json(text) for text in reward_extra_infos_dict["seal"]]
            # A task that the settings cannot hold costs its own result; it does not end a training run.
            self._watch.check([record for record in self._validated if record.infra not in FATAL])
            if not any(record.infra is None for record in self._validated):
                self._watch.check(self._validated)
        super()._dump_generations(reward_extra_infos_dict=reward_extra_infos_dict, **rest)

    def _val_metrics_update(self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, **rest):
        """verl's figures of a validation, over what infrastructure did not fail."""
        infra = [json.loads(text)["infra"] for text in reward_extra_infos_dict["seal"]]
        kept = [i for i, cause in enumerate(infra) if cause is None]

        def of_kept(values):
            return [values[i] for i in kept]

        infos = {name: of_kept(values) for name, values in reward_extra_infos_dict.items()}
        figures = super()._val_metrics_update(
            of_kept(data_sources), of_kept(sample_uids), infos, of_kept(sample_turns), **rest
        )
        return figures | {"seal/val/infra": len(infra) - len(kept)}

    def _write_generations(self, inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path, global_steps):
        """Write a validation as one JSON line a trajectory, whole or not at all; verl's own dumps as verl does."""
        if "seal" not in reward_extra_infos_dict:
            super()._write_generations(inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path, global_steps)
            return
        records = [TrajectoryRecord.from_json(text) for text in reward_extra_infos_dict["seal"]]
        self._log.validation(Path(dump_path), global_steps, records)


def _sign(values: torch.Tensor) -> int:
    return int(torch.sign(values.sum()).item()) if len(values) else 0


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
