"""verl's trainer, built and run in a process of the cluster."""

import os
from functools import partial
from pathlib import Path

import ray
from omegaconf import DictConfig, OmegaConf

from seal.records.ending import Ending
from seal.settings import BLOCKS
from seal.system.text import without_secrets
from seal.training.cluster import in_use
from seal.training.ending import record_ending
from seal.training.liveness import Liveness
from seal.training.log import RunLog
from seal.training.stop import InfrastructureFailure


@ray.remote
class TaskRunner:
    """Holds the trainer of a run; the training process, which makes it, does not import what it imports."""

    def run(self, config: DictConfig) -> None:
        """Train a resolved recipe to its end; whatever ends it early is raised."""
        run_dir = Path(config.seal.run_dir)
        log = RunLog(run_dir)
        log.start("trainer")
        import transfer_queue
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.trainer.ppo.v1 import get_trainer_cls
        from verl.utils.config import validate_config
        from verl.utils.device import auto_set_device
        from verl.utils.logging_utils import configure_verl_logging

        from seal.backends import cpu_platform  # noqa: F401  registered before verl asks for the platform
        from seal.training import agent_workers, async_trainer, trainer  # noqa: F401  registered under their modes

        configure_verl_logging()
        drop_idle_reference(config)
        auto_set_device(config)
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        if in_use():  # since the launcher asked; the queue would be shared
            raise InfrastructureFailure("Another run has just taken this Ray cluster: wait, or name another one.")
        transfer_queue.init(config.transfer_queue)
        training, code = None, 1
        try:
            with (
                Liveness(partial(end, config.seal.run_dir)) as liveness,
                record_ending(config.seal.run_dir, liveness.names),
            ):
                training = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
                log.start("model")
                agent_loops = agent_workers.start(config)
                training.init()
                agent_workers.connect(
                    agent_loops,
                    llm_client=training.get_llm_client(),
                    teacher_client=training.get_teacher_client(),
                    reward_loop_worker_handles=training.get_reward_handles(),
                )
                hide_secrets(config)
                training.fit(agent_loops)
            code = 0
        finally:
            if tracking := getattr(training, "logger", None):
                tracking.finish(exit_code=code)
            transfer_queue.close()


def end(run_dir: Path, ending: Ending) -> None:
    """Write the ending into the run's folder and exit: code that waits for a dead process cannot be notified."""
    ending.write(run_dir)
    os._exit(1)


def drop_idle_reference(config: DictConfig) -> None:
    """Keep verl from starting a reference policy for a KL term whose coefficient is 0; config is changed in place."""
    actor = config.actor_rollout_ref.actor
    if actor.use_kl_loss and actor.kl_loss_coef == 0:
        actor.use_kl_loss = False


def hide_secrets(config: DictConfig) -> None:
    """Keep environment variables, addresses' passwords and commands' keys from trackers, which get the configuration.

    It is changed in place, once the workers have theirs.
    """
    config.seal.process_env, config.ray_kwargs.ray_init.runtime_env = {}, {}
    for block in BLOCKS:
        config[block] = without_secrets(OmegaConf.to_container(config[block]))
