"""SEAL's trainers: verl's v1 trainers with Algorithm 1 of the paper; the asynchronous one is in `async_trainer`.

Per step verl samples prompts, rolls out, scores log-probs, computes GRPO advantages and updates the actor. SEAL sends
Omega_t along with the training prompts (`PromptSender`), multiplies the group-relative advantages by w_j and updates
C_t, rho and Omega (`ClosedLoop`). `Durable` saves, stops and resumes. `seal/backends/internals.toml` lists every
private name of verl that is overridden here, and why.
"""

import time
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from seal.backends.cpu_rows import SHARE_PROMPTS, SKIP_IDLE_ROWS, can_skip
from seal.data.rows import withdrawal_file
from seal.records.step import StepReport
from seal.settings import SealSettings
from seal.training.batch import StepBatch, take_engine_logprobs
from seal.training.closed_loop import ClosedLoop, records_to_log
from seal.training.durable import Durable
from seal.training.mini_batches import WholeRollouts
from seal.training.replay_buffer import TRAIN, VALIDATION, PromptSender, SEALReplayBuffer
from seal.training.stop import check_infrastructure


class SEALTraining(WholeRollouts, Durable):
    """GRPO with diagnosis-guided advantages and an evolving learning interface, at whatever time rollouts are played.

    mode: verl's name of the trainer that a subclass extends. buffer: its sampler.
    """

    mode: str
    buffer: type[SEALReplayBuffer]

    def __init__(self, config: DictConfig):
        self._loop = ClosedLoop(SealSettings.of(config))
        self._report: StepReport | None = None
        use_extension_points(config, self.mode, self.buffer)
        super().__init__(config)

    def fit(self, agent_loop_manager):
        """Train to the last step; Omega_t goes out with the prompts of each step."""
        super().fit(PromptSender(agent_loop_manager, self._loop.omega_to_send, self.replay_buffer))

    def _compute_old_log_prob(self, batch, metrics: dict):
        """PPO's old log-probs: the actor's in steps that check the engine, and the engine's own in the others.

        The latter hold for stale trajectories too: PPO's ratio is then to the policy that sampled them.
        """
        if self._settings.checks_logprobs(self.global_steps):
            batch.extra_info[SHARE_PROMPTS] = self.config.actor_rollout_ref.actor.use_prefix_grouper
            batch = super()._compute_old_log_prob(batch, metrics)
            if self._settings.teaches:
                metrics.update(StepBatch.read(batch).rollout_differences())
            return batch
        return take_engine_logprobs(batch)

    def _compute_advantage(self, batch, metrics: dict):
        """Update C_t, rho_t and Omega_{t+1}, and give verl A~_j = w_j A_j (paper, section 3.4)."""
        started = time.perf_counter()
        step = StepBatch.read(batch)
        check_infrastructure(step.records, self._settings.infra_limit)
        step.separate()
        transfers = step.take_plain_logprobs()
        before_verl = time.perf_counter()
        batch = super()._compute_advantage(batch, metrics)
        after_verl = time.perf_counter()
        bypassed = self.config.algorithm.rollout_correction.bypass_mode
        step = step.with_tokens(self._settings.checks_logprobs(self.global_steps) and not bypassed)
        differences = step.compare_logprobs(self.global_steps, self._settings)
        if self._settings.teaches:
            step = step.with_plain_baselines(self.config.algorithm.norm_adv_by_std_in_grpo)
        advantages = step.group_advantages
        w, report = self._loop.step(self.global_steps, step.records, step.groups, transfers)
        written = step.weighted(w)
        written.write_advantages()
        self._log.trajectories(self.global_steps, records_to_log(step.records, step.groups, advantages, w))
        seconds = before_verl - started + time.perf_counter() - after_verl
        self._report = report.with_figures(**differences, push=step.push(written), seal_seconds=seconds)
        metrics.update({f"seal/{name}": value for name, value in differences.items()} | self._report.record.metrics())
        return batch

    def _update_actor(self, batch, metrics: dict):
        batch.extra_info[SKIP_IDLE_ROWS] = can_skip(self.config)
        batch.extra_info[SHARE_PROMPTS] = self.config.actor_rollout_ref.actor.use_prefix_grouper
        return super()._update_actor(batch, metrics)

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._log.step(self._report.with_figures(seconds=_rounded(timing_raw)))

    def save_state(self) -> dict[str, Any]:
        """C, rho and Omega, and the finished step's line of each log."""
        lines = self._report.with_figures(seconds=_rounded(self.timing_raw)).lines() if self._report else {}
        return {"loop": self._loop.state, "log": lines}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self._loop.restore(state["loop"])


@register_trainer("seal")
class SEALTrainer(SEALTraining, PPOTrainerSync):
    """All rollouts of a step are played with the weights and the Omega of that step."""

    mode = "sync"
    buffer = SEALReplayBuffer


def use_extension_points(config: DictConfig, mode: str, buffer: type) -> None:
    """Set the keys of a recipe that make verl use SEAL's parts; config is changed in place."""
    values = {
        # verl reads the settings of this mode, and compares it with "sync" wherever its trainers differ.
        "trainer.v1.trainer_mode": mode,
        "trainer.v1.sampler.custom_sampler.path": f"pkg://{buffer.__module__}",
        "trainer.v1.sampler.custom_sampler.name": buffer.__name__,
        "trainer.v1.sampler.sampler_kwargs": {
            "run_dir": str(config.seal.run_dir),
            "samples": {
                TRAIN: config.actor_rollout_ref.rollout.n,
                VALIDATION: config.actor_rollout_ref.rollout.val_kwargs.n,
            },
        },
    }
    settings = SealSettings.of(config)
    if settings.data.withdrawal is not None and settings.shows_omega:
        files = config.data.val_files
        values["data.val_files"] = [files, str(withdrawal_file(files))]
    for key, value in values.items():
        OmegaConf.update(config, key, value, merge=False, force_add=True)


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
