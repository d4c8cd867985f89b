"""An experiment folder, in which one launcher works at a time; only its lock is written."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from seal.records.folder import RunFolder
from seal.system.errors import LaunchError
from seal.system.lock import CannotLock, Holder, Locked, lock


@contextmanager
def hold(folder: RunFolder) -> Iterator[int]:
    """Hold the folder's lock; yields its descriptor, which the training process inherits and so holds too.

    Raises LaunchError if another launcher, or the rest of its training process, works in the folder.
    """
    path, run_dir = folder.lock, folder.path
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(lock(path))
        except Locked as error:
            raise LaunchError(_in_use(run_dir, error.holder)) from None
        except CannotLock as error:
            reason = f"{path} cannot be locked ({error})"
            raise LaunchError(f"{reason}: set seal.run_dir to a file system that supports flock.") from error
        except OSError as error:
            reason = f"{path} cannot be written ({error.strerror})"
            raise LaunchError(f"{reason}: set seal.run_dir to another folder.") from error
        yield descriptor


def _in_use(run_dir: Path, holder: Holder | None) -> str:
    if holder is None:
        return f"{run_dir} is in use by another launcher: wait for it, or set another trainer.experiment_name."
    if holder.gone:
        return (
            f"The launcher of {run_dir} (process {holder.pid}) is gone, but what it started is still ending: start "
            "again in a few seconds."
        )
    return (
        f"{run_dir} is in use by the launcher with process {holder.pid} on {holder.host} since {holder.since}: stop "
        "that one, wait for it, or set another trainer.experiment_name."
    )
