"""The check of a recipe's harness: it plays one rollout before Ray and the rollout engine start."""

import asyncio
import os

from env_service.client import AsyncServiceClient
from seal.launch.recipe import Recipe
from seal.rollout.row import Row
from seal.rollout.services import Services
from seal.system.errors import LaunchError


def require_trial(recipe: Recipe, url: str) -> None:
    """Play a rollout of the recipe's harness on a service, with the run's variables; LaunchError if it fails."""
    from seal.rollout.harness.trial import play_trial  # its server loads only if a recipe names a harness

    task, service = recipe.rows.train[0], recipe.service
    row = Row.read({**task.to_verl(0), "index": 0, "session_id": 0, "global_steps": 0, "training": True}, service)

    async def played() -> str:
        before = dict(os.environ)
        os.environ.update(recipe.settings.process_env)
        client = AsyncServiceClient(url, service.env_type, deadline_s=service.timeout_s, attempts=service.attempts)
        services, log = Services([client], service.restart_wait_s), recipe.run_dir / "harness" / "trial.log"
        try:
            record = await play_trial(recipe.settings.rollout, services, row, log, recipe.settings.user)
        finally:
            await services.close()
            os.environ.clear()
            os.environ.update(before)
        return record.infra_message if record.infra is not None else ""

    if failure := asyncio.run(played()):
        raise LaunchError(
            f'seal.rollout.harness: in a trial with a policy that says "Done.", {failure.rstrip(".")}. Correct the '
            "harness, or set seal.rollout.harness_failure=failed if the policy's answer is what fails."
        )
