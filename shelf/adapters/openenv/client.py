"""The client: a session with the OpenEnv server over its WebSocket."""

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

from .models import SealAction, SealObservation, SealState


class SealEnv(EnvClient[SealAction, SealObservation, SealState]):
    """Plays episodes; `reset(split=..., seed=...)`, `reset(split=..., index=...)` or `reset(task_id=...)` opens one."""

    def _step_payload(self, action: SealAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SealObservation]:
        reward, done = payload.get("reward"), payload.get("done", False)
        observation = SealObservation(**payload.get("observation", {}), reward=reward, done=done)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> SealState:
        return SealState.model_validate(payload)
