"""Ctrl-C and SIGTERM: the first asks the trainer to save and end, a second Ctrl-C ends everything at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType

from seal.training.stop import StopRequest


class Interrupt:
    """The launcher's answer to signals.

    Until `defer` is called, and after the grace, a signal raises
    KeyboardInterrupt where the launcher stands, and it cleans up.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._deferred = False
        self._deadline: float | None = None

    def install(self) -> None:
        """Take over both signals."""
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    def defer(self) -> None:
        """From here on there is a training process that can save."""
        self._deferred = True

    @property
    def exit_code(self) -> int:
        """128 and the number of the first signal, as shells count."""
        return 128 + (self.signum or signal.SIGINT)

    def pursue(self, request: StopRequest, grace_s: float, can_save: bool, say: Callable[[str], None]) -> None:
        """Pass a pending signal on to the trainer; KeyboardInterrupt when it has nothing to save or takes too long."""
        if self.signum is None:
            return
        if self._deadline is None:
            if not can_save:
                raise KeyboardInterrupt
            request.make()
            self._deadline = time.monotonic() + grace_s
            say(f"stopping: the trainer saves a checkpoint, within {grace_s:.0f} s; Ctrl-C again to stop at once")
        elif time.monotonic() > self._deadline:
            say(f"no checkpoint was saved within seal.stop_grace_s={grace_s:.0f} s")
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        del frame
        first = self.signum is None
        if first:
            self.signum = signum
        # A scheduler may send SIGTERM to every process of a job, and more than once.
        if not self._deferred or (not first and signum == signal.SIGINT):
            raise KeyboardInterrupt
