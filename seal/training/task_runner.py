"""The actor in which the trainer runs, and the only process that imports the trainers.

As a plugin of verl they would be imported in every process of a run: 3.4 s of processor time and 220 MB each.
"""

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1


class SEALTaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner, which knows SEAL's trainers."""

    def run(self, config: DictConfig) -> None:
        """Train as the recipe says."""
        from seal.training import async_trainer, trainer  # noqa: F401  registered by their import

        super().run(config)


TaskRunner = ray.remote(SEALTaskRunner)
