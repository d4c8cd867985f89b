"""SEAL's trainers: verl's v1 trainers with the closed loop hooked in; the asynchronous one is in `async_trainer`.

Per step verl samples prompts, rolls out, scores log-probs, computes GRPO
advantages and updates the actor. SEAL sends Omega_t along with the training
prompts (`PromptSender`), multiplies the group-relative advantages by w_j and
updates C_t, rho and Omega (`_compute_advantage`), keeps the loop's state in the
checkpoint and logs the step. Paper, Algorithm 1.

A resumed run equals the uninterrupted one: requests are seeded by step, row and
sample, and a batch is trained in the order of its prompts, whichever rollout
ended first (`SEALReplayBuffer`). `seal/backends/internals.toml` lists every
private name of verl that is overridden here, and why.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import Any, NoReturn

import torch
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from seal.backends.sparse_update import SKIP_IDLE_ROWS, can_skip
from seal.data.parquet import withdrawal_file
from seal.interface.artefact import read_artefact
from seal.records.step import StepReport
from seal.records.trajectory import FATAL, TrajectoryRecord
from seal.records.validation import environment_averages, validation_averages
from seal.settings import SealSettings
from seal.training.batch import StepBatch
from seal.training.checkpoints import CheckpointError, Checkpoints, expected_size, load_state, save_state
from seal.training.closed_loop import ClosedLoop, weighed
from seal.training.log import RunLog
from seal.training.replay_buffer import PromptSender, SEALAsyncReplayBuffer, SEALReplayBuffer
from seal.training.stop import StopRequest, StopRequested, check_infrastructure

logger = logging.getLogger(__name__)


class SEALTraining(PPOTrainer):
    """GRPO with diagnosis-guided advantages and an evolving learning interface, whenever rollouts are played.

    mode: verl's name of the trainer that a subclass extends. buffer: its sampler.
    """

    mode: str
    buffer: type[SEALReplayBuffer] | type[SEALAsyncReplayBuffer]

    def __init__(self, config: DictConfig):
        self._settings = settings = SealSettings.of(config)
        initial = settings.interface.initial
        self._loop = ClosedLoop(settings, read_artefact(initial) if initial else None)
        self._log = RunLog(Path(settings.run_dir))
        self._report: StepReport | None = None
        self._stop = StopRequest(Path(settings.run_dir))
        self._checkpoints = Checkpoints(
            Path(config.trainer.default_local_dir),
            settings.checkpoints,
            expected_size(Path(config.actor_rollout_ref.model.path)),
        )
        self._saved_step = 0
        self._scored_by_actor = True
        self._validation_folder = config.trainer.validation_data_dir
        use_extension_points(config, self.mode, self.buffer)
        super().__init__(config)
        # verl would tell the recipe's callback before the checkpoint is in its final place.
        self._recipe_callback, self.checkpoint_callback = self.checkpoint_callback, CheckpointCallback()

    def fit(self, agent_loop_manager):
        """Train to the last step; a stop on request leaves the last finished step saved."""
        try:
            super().fit(PromptSender(agent_loop_manager, self._loop.omega_to_send, self.replay_buffer))
        except StopRequested:
            self._save_and_stop()

    # --------------------------------------------------------------- advantages

    def _compute_old_log_prob(self, batch, metrics: dict):
        """PPO's old log-probs: the actor's in steps that check the engine, and the engine's own in the others.

        The latter hold for stale trajectories too: PPO's ratio is then to the policy that sampled them.
        """
        correction = self.config.algorithm.rollout_correction
        chosen = correction.bypass_mode
        correction.bypass_mode = chosen or not self._settings.checks_logprobs(self.global_steps)
        self._scored_by_actor = not correction.bypass_mode
        try:
            return super()._compute_old_log_prob(batch, metrics)
        finally:
            correction.bypass_mode = chosen

    def _compute_advantage(self, batch, metrics: dict):
        """A~_j = w_j A_j (method, section 4), then C_t, rho_{t+1} and Omega_{t+1}."""
        started = time.perf_counter()
        step = StepBatch.read(batch)
        check_infrastructure(step.records, self._settings.infra_limit)
        step.separate()
        before_verl = time.perf_counter()
        batch = super()._compute_advantage(batch, metrics)
        after_verl = time.perf_counter()
        step = step.with_tokens(self._scored_by_actor)
        differences = step.compare_logprobs(self.global_steps, self._settings)
        advantages = step.group_advantages
        w, report = self._loop.step(self.global_steps, step.records, step.groups, advantages)
        step.write_advantages(w)
        self._log.trajectories(self.global_steps, weighed(step.records, step.groups, advantages, w))
        seconds = before_verl - started + time.perf_counter() - after_verl
        self._report = report.with_figures(**differences, seal_seconds=seconds)
        metrics.update({f"seal/{name}": value for name, value in differences.items()} | self._report.record.metrics())
        return batch

    def _update_actor(self, batch, metrics: dict):
        batch.extra_info[SKIP_IDLE_ROWS] = can_skip(self.config)
        return super()._update_actor(batch, metrics)

    # --------------------------------------------------------------- checkpoint

    def _save_checkpoint(self, data: Mapping[str, Any] | None = None):
        """Save the current step; `data` replaces the data loader's present state."""
        step = self.global_steps
        self._log.stage("save", step=step, of=self.total_training_steps)
        with self._checkpoints.saving(step) as folder, self._saving_into(folder.parent):
            save_state(folder, self._state(step))
            super()._save_checkpoint()
            if data is not None:
                torch.save(data, folder / "data.pt")
        self._saved_step = step
        self._recipe_callback.on_save(
            trainer=self,
            global_step=step,
            checkpoint_dir=os.path.join(self.config.trainer.default_local_dir, f"global_step_{step}"),
            async_save=False,
        )

    @contextmanager
    def _saving_into(self, folder: Path) -> Iterator[None]:
        """Within the block verl saves below `folder`."""
        place = self.config.trainer.default_local_dir
        self.config.trainer.default_local_dir = str(folder)
        try:
            yield
        finally:
            self.config.trainer.default_local_dir = place

    def _state(self, step: int) -> dict[str, Any]:
        """Return what a resumed run needs: every draw follows from seed and step, so no generator is kept."""
        lines = self._report.with_figures(seconds=_rounded(self.timing_raw)).lines() if self._report else {}
        return {"step": step, "seed": self._settings.seed, "loop": self._loop.state, "log": lines}

    def _load_checkpoint(self):
        super()._load_checkpoint()
        self._saved_step = self.global_steps
        if self.global_steps > 0:
            folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            if self.config.trainer.resume_mode == "resume_path":
                folder = Path(self.config.trainer.resume_from_path)
            state = load_state(folder)
            if state["step"] != self.global_steps:
                raise CheckpointError(
                    f"{folder} holds step {state['step']}: rename the folder to global_step_{state['step']}."
                )
            if state["seed"] != self._settings.seed:
                logger.warning(
                    "%s was trained with seal.seed=%s, not %s: from here on the run differs from the one it continues.",
                    folder,
                    state["seed"],
                    self._settings.seed,
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

    def on_step_end(self):
        if self._stop.made:
            # A run that ends needs no weight sync; the next hook ends it.
            if self._saved_step != self.global_steps:
                self._save_checkpoint()
            return
        self._log.stage("sync", step=self.global_steps, of=self.total_training_steps)
        super().on_step_end()

    def _save_and_stop(self, data: Mapping[str, Any] | None = None) -> NoReturn:
        """Save the last finished step, `global_steps`, unless it is saved already, and end the run."""
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

    def _val_metrics_update(self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, **rest):
        """Log a validation and note its average; verl's figures leave out what infrastructure lost."""
        everything = [TrajectoryRecord.from_json(text) for text in reward_extra_infos_dict["seal"]]
        records = [record for record in everything if record.withdrawn is None]
        # A task that the settings cannot hold costs only its own result, unless nothing else is there.
        check_infrastructure([record for record in records if record.infra not in FATAL], self._settings.infra_limit)
        if all(record.infra for record in records):
            check_infrastructure(records, self._settings.infra_limit)
        if self._validation_folder:
            self._log.validation(Path(self._validation_folder), self.global_steps, records)
            self._log.withdrawal(self.global_steps, [record for record in everything if record.withdrawn is not None])
        kept = [record.infra is None and record.withdrawn is None for record in everything]
        sources, uids, turns = (list(compress(values, kept)) for values in (data_sources, sample_uids, sample_turns))
        infos = {name: list(compress(values, kept)) for name, values in reward_extra_infos_dict.items()}
        figures = super()._val_metrics_update(sources, uids, infos, turns, **rest)
        figures["seal/val/infra"] = sum(record.infra is not None for record in records)
        averages = validation_averages(records)
        if averages is not None:
            self._checkpoints.validated(self.global_steps, *averages)
            figures |= dict(zip(("seal/val/average", "seal/val/prefix_average"), averages, strict=True))
        figures |= {f"seal/val/{name}/average": share for name, share in environment_averages(records).items()}
        return figures


@register_trainer("seal")
class SEALTrainer(SEALTraining, PPOTrainerSync):
    """All rollouts of a step are played with the weights and the Omega of that step."""

    mode = "sync"
    buffer = SEALReplayBuffer

    def step(self, metrics, timing_raw):
        """One step of Algorithm 1; a stop during its rollouts saves the step before."""
        data = self.train_dataloader.state_dict()
        try:
            return super().step(metrics, timing_raw)
        except StopRequested:
            self.global_steps -= 1
            self._save_and_stop(data)


def use_extension_points(config: DictConfig, mode: str, buffer: type) -> None:
    """Set the keys of a recipe by which verl takes SEAL's parts; config is changed in place."""
    values = {
        # verl reads the settings of this mode, and compares it with "sync" wherever its trainers differ.
        "trainer.v1.trainer_mode": mode,
        "trainer.v1.sampler.custom_sampler.path": f"pkg://{buffer.__module__}",
        "trainer.v1.sampler.custom_sampler.name": buffer.__name__,
        "trainer.v1.sampler.sampler_kwargs": {
            "run_dir": str(config.seal.run_dir),
            "samples": config.actor_rollout_ref.rollout.n,
            "refill_failed_groups": config.trainer.v1.sampler.sync_refill_failed_groups,
        },
        # SEAL writes a validation itself, whole and with all that a record holds.
        "trainer.validation_data_dir": None,
    }
    settings = SealSettings.of(config)
    if settings.data.withdrawal is not None and settings.enabled and settings.interface.enabled:
        files = config.data.val_files
        values["data.val_files"] = [files, str(withdrawal_file(files))]
    for key, value in values.items():
        OmegaConf.update(config, key, value, merge=False, force_add=True)


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
