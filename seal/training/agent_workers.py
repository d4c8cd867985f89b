"""The agent-loop workers, which start while the model and the engine load: their imports take 8 to 18 s.

verl makes them when the engine is ready and hands them its client; here they start first and get the client then.
"""

from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.ppo.v1 import AgentLoopManagerTQ

START_DEADLINE_S = 600


def start(config: DictConfig) -> AgentLoopManagerTQ:
    """Start the workers, which begin to import; they have no engine yet."""
    manager = AgentLoopManagerTQ.create(config=config, llm_client=None)
    for worker in manager.agent_loop_workers:
        worker.__ray_call__.remote(_import)
    return manager


def connect(manager: AgentLoopManagerTQ, **clients: Any) -> None:
    """Hand the workers the clients of verl's manager, by its names; waits until they have started."""
    vars(manager).update(clients)
    calls = [worker.__ray_call__.remote(_take, clients) for worker in manager.agent_loop_workers]
    ray.get(calls, timeout=START_DEADLINE_S)


def _import(worker: Any) -> None:
    from seal.rollout import agent_loop  # noqa: F401


def _take(worker: Any, clients: dict[str, Any]) -> None:
    vars(worker).update(clients)
