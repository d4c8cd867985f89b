"""The rollouts at a gateway, each by its key."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator

from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.chains import Policy
from seal.rollout.harness.messages import MODEL, Item
from seal.rollout.harness.task import Address, Event, Task
from seal.rollout.speaker import SpeakerFault

MAX_REQUESTS = 2_000
"""Requests of one rollout; a harness that sends more is broken."""
ENDED = 410, "This rollout has ended.", "rollout_ended"


class Refused(Exception):
    """A request that is answered with an error: status, sentence, and a code that clients know."""

    def __init__(self, status: int, sentence: str, code: str | None = None):
        super().__init__(sentence)
        self.status, self.code = status, code


class Sessions(dict[str, "Session | None"]):
    """The rollouts of one gateway; None for those that have ended. url: of the gateway."""

    def __init__(self, url: str):
        super().__init__()
        self.url = url


class Session:
    """One rollout at the gateway, once its episode has opened.

    model: an Address if another server is the model. kept: what requests may name by id. unanswered: the last one for
    the policy if it waits or was refused, or if its client did not get the answer.
    """

    def __init__(self, sessions: Sessions, dialogue: Dialogue, model: Policy | Address, deadline_s: float):
        self.key, self.model = secrets.token_hex(24), model
        address = model if isinstance(model, Address) else Address(f"{sessions.url}/v1", self.key, MODEL)
        self.task = Task(dialogue, address, f"{sessions.url}/{self.key}/task", deadline_s)
        self.task.order = None if isinstance(model, Address) else model.in_turn
        self.kept: dict[str, tuple[Item, ...]] = {}
        self.unanswered, self._requests, self._answering = None, 0, set[asyncio.Task[None]]()
        self._sessions = sessions
        sessions[self.key] = self

    def close(self) -> None:
        """Stop answering the key; a request that is still being answered is cut off."""
        self._sessions[self.key] = None
        for answering in self._answering:
            answering.cancel()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Answer one more request, unless there were too many or until `close`."""
        self._requests += 1
        if self._requests > MAX_REQUESTS:
            fault = SpeakerFault("harness", f"the harness sent more than {MAX_REQUESTS} requests")
            self.task.events.put_nowait(Event("fault", fault))
            raise Refused(429, f"{fault}.")
        answering = asyncio.current_task()
        self._answering.add(answering)
        try:
            yield
        except asyncio.CancelledError:
            raise Refused(*ENDED) from None
        finally:
            self._answering.discard(answering)
