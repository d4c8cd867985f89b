"""A verl trainer that can be stopped, killed and resumed: the resumed run equals the uninterrupted one.

A checkpoint exists whole or not at all (`checkpoints`), a stop on request saves the last finished step, logs
continue from the checkpoint's step, and a validation leaves out what infrastructure lost. Nothing here knows
the method: a subclass provides its own state.
"""

import logging
import os
from abc import abstractmethod
from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any, NoReturn

import torch
from omegaconf import DictConfig
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from seal.records.folder import RunFolder
from seal.records.trajectory import FATAL, TrajectoryRecord
from seal.records.validation import environment_averages, validation_averages
from seal.settings import SealSettings
from seal.system.files import text_sha256
from seal.training.checkpoints import SAVING, CheckpointError, Checkpoints, load_state
from seal.training.checkpoints import save_state as write_state
from seal.training.log import RunLog
from seal.training.stop import StopRequested, check_infrastructure

logger = logging.getLogger(__name__)


class Durable(PPOTrainer):
    """Saves, stops, resumes and validates, at whatever time rollouts are played."""

    def __init__(self, config: DictConfig):
        self._settings = settings = SealSettings.of(config)
        self._log = RunLog(Path(settings.run_dir))
        self._stop = RunFolder(settings.run_dir).stop
        self._folder = Path(config.trainer.default_local_dir)
        self._checkpoints = Checkpoints(self._folder, settings.checkpoints)
        self._saved_step = 0
        config.trainer.default_local_dir = str(self._folder / SAVING)  # a whole checkpoint is moved out of it
        config.trainer.validation_data_dir = None  # SEAL writes a validation itself, with all that a record holds
        super().__init__(config)
        # verl would tell the recipe's callback before the checkpoint is in its final place.
        self._recipe_callback, self.checkpoint_callback = self.checkpoint_callback, CheckpointCallback()

    @abstractmethod
    def save_state(self) -> dict[str, Any]:
        """Return the trainer's own state as JSON values: `log` has the finished step's line of each log."""

    @abstractmethod
    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `save_state` returned."""

    @property
    def _enable_hybrid_replicas(self) -> bool:
        """Whether rollouts use the training devices; verl asks again when the workers are ready, before the engine."""
        if hasattr(self, "actor_rollout_wg"):
            self._log.start("engine")
        return True

    def fit(self, agent_loop_manager):
        """Train to the last step; a stop on request leaves the last finished step saved."""
        try:
            super().fit(agent_loop_manager)
        except StopRequested:
            self._save_and_stop()

    def step(self, metrics, timing_raw):
        """One training step; a stop during its rollouts saves the previous step, unless it is saved already."""
        # If prompts under way are part of the checkpoint, so is the data loader's place after them.
        data = self.train_dataloader.state_dict() if self.trainer_mode == "sync" else None
        try:
            return super().step(metrics, timing_raw)
        except StopRequested:
            self.global_steps -= 1
            self._save_and_stop(data)

    def _save_checkpoint(self, data: Mapping[str, Any] | None = None):
        """Save the current step; `data` replaces the data loader's present state."""
        step = self.global_steps
        self._log.stage("save", step=step, of=self.total_training_steps)
        with self._checkpoints.saving(step) as folder:
            # Every draw follows from seed and step, so no generator is saved.
            write_state(folder, {"step": step, "seed": self._settings.seed, **self.save_state()})
            super()._save_checkpoint()
            if data is not None:
                torch.save(data, folder / "data.pt")
        self._saved_step = step
        folder = str(self._folder / f"global_step_{step}")
        self._recipe_callback.on_save(trainer=self, global_step=step, checkpoint_dir=folder, async_save=False)

    def _load_checkpoint(self):
        super()._load_checkpoint()
        self._saved_step = self.global_steps
        if self.global_steps > 0:
            self._continue_from(Path(self.config.trainer.resume_from_path))
            # verl's logger `file` would empty the one that is there.
            root = Path(os.environ.get("VERL_FILE_LOGGER_ROOT", "."), f"after_{self.global_steps}")
            os.environ["VERL_FILE_LOGGER_ROOT"] = str(root)
        else:
            self._log.keep_through(0)
        self._hide_later_points()

    def _continue_from(self, folder: Path) -> None:
        state = load_state(folder)
        if state["step"] != self.global_steps:
            raise CheckpointError(
                f"{folder} holds step {state['step']}: rename the folder to global_step_{state['step']}."
            )
        if state["seed"] != self._settings.seed:
            told = f"{folder} was trained with seal.seed={state['seed']}, not {self._settings.seed}"
            logger.warning("%s: from here on the run differs from the one it continues.", told)
        self.restore_state(state)
        self._log.keep_through(self.global_steps)
        self._log.complete(state["log"])

    def _hide_later_points(self) -> None:
        """Tell TensorBoard to ignore what an interrupted run plotted after the present step."""
        folder = os.environ.get("TENSORBOARD_DIR")
        if "tensorboard" in self.config.trainer.logger and folder and Path(folder).is_dir():
            from torch.utils.tensorboard import SummaryWriter

            SummaryWriter(folder, purge_step=self.global_steps + 1).close()

    def _save_and_stop(self, data: Mapping[str, Any] | None = None) -> NoReturn:
        """Save the last finished step, `global_steps`, unless it is saved already, and end the run."""
        if self._saved_step != self.global_steps:
            self._save_checkpoint(data)
        saved = f"step {self.global_steps} is saved" if self.global_steps else "no step has ended, so none is saved"
        raise StopRequested(f"Stopped on request; {saved}.")

    def on_step_begin(self):
        if self._stop.exists():
            self.global_steps -= 1
            self._save_and_stop()
        self._log.stage("train", step=self.global_steps, of=self.total_training_steps)

    def on_sample_end(self):
        self._log.stage("update", step=self.global_steps, of=self.total_training_steps)
        super().on_sample_end()

    def on_step_end(self):
        if self._stop.exists():
            # A run that ends needs no weight sync; the next hook ends it.
            if self._saved_step != self.global_steps:
                self._save_checkpoint()
            return
        self._log.stage("sync", step=self.global_steps, of=self.total_training_steps)
        super().on_step_end()

    def on_validate_begin(self):
        if self._stop.exists():
            self._save_and_stop()
        self._log.stage("validate", step=self.global_steps, of=len(self.val_dataset))

    def _val_metrics_update(self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, **rest):
        """Log a validation and note its average; verl's figures leave out what infrastructure lost."""
        everything = [TrajectoryRecord.from_json(text) for text in reward_extra_infos_dict["seal"]]
        records = [record for record in everything if record.withdrawal is None]
        # A task that does not fit the settings costs only its own result, unless every task is lost.
        check_infrastructure([record for record in records if record.infra not in FATAL], self._settings.infra_limit)
        if all(record.infra for record in records):
            check_infrastructure(records, self._settings.infra_limit)
        self._log.validation(self.global_steps, everything)
        kept = [record.infra is None and record.withdrawal is None for record in everything]
        sources, uids, turns = (list(compress(values, kept)) for values in (data_sources, sample_uids, sample_turns))
        infos = {name: list(compress(values, kept)) for name, values in reward_extra_infos_dict.items()}
        figures = super()._val_metrics_update(sources, uids, infos, turns, **rest)
        figures["seal/val/infra"] = sum(record.infra is not None for record in records)
        averages = validation_averages(records)
        named = {f"{name}/average": share for name, share in environment_averages(records).items()}
        if averages is not None:
            played = sorted((each.data_source, each.task_id, each.sample) for each in records)
            self._checkpoints.validated(self.global_steps, *(x or 0.0 for x in averages), text_sha256(str(played)))
            named |= dict(zip(("average", "prefix_average"), averages, strict=True))
        return figures | {f"seal/val/{name}": share for name, share in named.items() if share is not None}
