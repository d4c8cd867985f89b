"""Ctrl-C, SIGTERM and the end of a terminal while a run is launched and trains."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType


class Interrupt:
    """The launcher's answer to Ctrl-C, to SIGTERM, and to the SIGHUP of a terminal that is closed.

    The first one asks the trainer to save and end, a second Ctrl-C ends everything at once. Until a training process
    runs (`deferred`), a signal raises KeyboardInterrupt wherever the launcher is; after the grace `forward` raises it.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.deferred = False
        self._deadline: float | None = None

    def install(self) -> None:
        lasting = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup
        for number in (signal.SIGINT, signal.SIGTERM, *(() if lasting else (signal.SIGHUP,))):
            signal.signal(number, self._handle)

    @property
    def exit_code(self) -> int:
        """128 and the number of the first signal, as shells count."""
        return 128 + (self.signum or signal.SIGINT)

    def forward(self, request: Path, grace_s: float, can_save: bool, tell: Callable[[str], None]) -> None:
        """Pass a pending signal on to the trainer; KeyboardInterrupt if it has nothing to save or takes too long."""
        if self.signum is None:
            return
        if self._deadline is None:
            if not can_save:
                raise KeyboardInterrupt
            request.touch()
            self._deadline = time.monotonic() + grace_s
            tell(f"stopping: the trainer saves a checkpoint, within {grace_s:.0f} s; Ctrl-C again to stop at once")
        elif time.monotonic() > self._deadline:
            tell(f"no checkpoint was saved within seal.stop_grace_s={grace_s:.0f} s")
            raise KeyboardInterrupt

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        first = self.signum is None
        if first:
            self.signum = signum
        # A scheduler may send SIGTERM to every process of a job, and more than once.
        if not self.deferred or (not first and signum == signal.SIGINT):
            raise KeyboardInterrupt
