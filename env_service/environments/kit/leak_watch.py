"""The leak guard of an episode: what the policy has seen, and what the interface may therefore say."""

from collections.abc import Sequence

from env_service.environments.base import Call, Document, Refusal
from seal.interface.guard import InterfaceLeak, LeakGuard


class LeakWatch:
    """Watches one episode, or nothing at all without a guard."""

    def __init__(self, task_id: str, guard: LeakGuard | None) -> None:
        """task_id: for messages."""
        self._task_id = task_id
        self._guard = guard

    def saw(self, text: str) -> None:
        """Note what the dialogue shows without an interface."""
        if self._guard is not None:
            self._guard.saw(text)

    def saw_calls(self, calls: Sequence[Call]) -> None:
        """Note the calls that the policy has made."""
        if self._guard is not None:
            self._guard.saw_calls(calls)

    def reveal(self, documents: Sequence[Document]) -> None:
        """Note the documents of tools that are visible from now on."""
        if self._guard is not None:
            self._guard.reveal(documents)

    def checked(self, plain: str, augmented: str) -> str:
        """The augmented text; Refusal if it tells what only the reference knows."""
        if self._guard is not None:
            try:
                self._guard.check(plain, augmented)
            except InterfaceLeak as leak:
                raise Refusal(f"interface leak in {self._task_id}: {leak}") from leak
        return augmented
