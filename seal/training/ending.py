"""How an error in one of a run's processes ends the run, without the layers that Ray wraps around it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seal.records.ending import AGAIN, Ending
from seal.system import exits
from seal.system.causes import Cause

TRAINER = "TaskRunner"
KINDS = {
    TRAINER: "the trainer",
    "vllm_server": "the rollout server",
    "agent_loop_worker": "the agent-loop worker",
    "TransferQueue": "the data queue",
}


@contextmanager
def record_ending(run_dir: Path | str, names: Mapping[str, str]) -> Iterator[None]:
    """Write the ending that an error in the block means; names: those of the actors known by then, by id."""
    try:
        yield
    except Exception as error:
        explain(error, names).write(run_dir)
        raise


def explain(error: BaseException, names: Mapping[str, str]) -> Ending:
    """The ending that an error means."""
    # Ray reads its environment when it is imported, so the training process imports it once that is prepared.
    from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayError, RayTaskError
    from vllm.v1.engine.exceptions import EngineDeadError

    from seal.training.checkpoints import CheckpointError
    from seal.training.stop import InfrastructureFailure, StopRequested

    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    match error:
        case StopRequested():
            return Ending(exits.INTERRUPTED, "stopped", str(error))
        case CheckpointError():
            return Ending(error.code, error.cause, str(error))
        case InfrastructureFailure():
            return Ending(exits.INFRASTRUCTURE, error.cause, str(error))
        case EngineDeadError():
            return death(None, "engine")
        case OutOfMemoryError():
            return death(None, "memory")
        case RayActorError():
            lost = isinstance(error, ActorUnavailableError)  # its connection; it may live
            return death(names.get(error.actor_id), fate="cannot be reached" if lost else "has died")
        case RayError():
            return Ending(exits.INFRASTRUCTURE, "process", f"{type(error).__name__}: {error}. {AGAIN}")
    return Ending(exits.FAILED, "error", f"{type(error).__name__}: {error}")


def death(name: str | None, cause: Cause = "process", fate: str = "has died") -> Ending:
    """The ending of a run after the death of one of its actors, or of its engine; name: None if it is not known."""
    part = "engine" if cause == "engine" else "process"
    title = next((title for known, title in KINDS.items() if known in (name or "")), "the training worker")
    who = f"The {part} of {title} {name}" if name else f"One {part} of the run"
    why = " because the machine ran low on memory" if cause == "memory" else ""
    return Ending(exits.INFRASTRUCTURE, cause, f"{who} {fate}{why}. {AGAIN}")
