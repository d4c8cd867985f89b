"""The rollout engine as a trajectory calls it: one message at a time, within a deadline."""

import asyncio
from typing import Any

from ray.exceptions import RayError, TaskCancelledError
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from seal.system.text import last_line


class EngineFault(RuntimeError):
    """The engine returned no complete message; cause: engine, engine_timeout, engine_cancelled or engine_aborted."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


async def generate(
    engine: LLMServerClient,
    request_id: str,
    prompt_ids: list[int],
    params: dict[str, Any],
    message: int,
    timeout_s: float,
) -> TokenOutput:
    """Sample message number `message` of a trajectory.

    Raises EngineFault when the engine fails, hangs beyond timeout_s, or cancels or
    aborts the request.
    """
    try:
        async with asyncio.timeout(timeout_s):
            output = await engine.generate(request_id=request_id, prompt_ids=prompt_ids, sampling_params=params)
    except TimeoutError as error:
        raise EngineFault(
            "engine_timeout",
            f"the trajectory waited for the rollout engine: message {message}, after {len(prompt_ids)} tokens, did "
            f"not come within seal.rollout.generation_timeout_s={timeout_s:g}",
        ) from error
    except (asyncio.CancelledError, TaskCancelledError) as error:
        if asyncio.current_task().cancelling():
            raise  # this trajectory itself is being cancelled
        raise EngineFault("engine_cancelled", f"the request for message {message} was cancelled") from error
    except RayError as error:
        raise EngineFault(
            "engine", f"the rollout engine failed at message {message}: {last_line(str(error))}"
        ) from error
    if output.stop_reason in ("abort", "aborted") or not output.token_ids:
        raise EngineFault("engine_aborted", f"the rollout engine aborted the request for message {message}")
    return output
