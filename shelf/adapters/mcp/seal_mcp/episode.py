"""One episode of the service, as played by an agent with native tool calls: documents, results, user messages."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from env_service.answers import Opening
from env_service.client import ServiceClient
from seal.rollout.harness.task import ENDED, bare, call_text


class Said(NamedTuple):
    """The reply to a call or an answer. failed: it was refused or is an error. revealed: there are new tools."""

    text: str
    failed: bool = False
    revealed: bool = False


class Episode:
    """A running episode.

    The service takes text, so a call is written as the default formats require (JSON between <tool_call> tags):
    parsing, checks, verdict and labels remain the service's.
    """

    def __init__(self, service: ServiceClient, name: str, opening: Opening) -> None:
        """`opening` is the answer of /create; ValueError if its format does not write calls as JSON."""
        if (native := opening["info"].get("native")) is None:
            raise ValueError("This format has no calls as JSON: leave tool_prompt_mode out.")
        self._by_turn, self._turn = native["tools"], 0
        self.ended = False
        self._unread: str | None = "\n\n".join(filter(None, (native["instructions"], opening["state"][-1]["content"])))
        self._service, self._name = service, name

    @property
    def tools(self) -> list[Mapping[str, Any]]:
        """The documents of the tools that are available now."""
        return [tool for tools in self._by_turn[: self._turn + 1] for tool in tools]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Said:
        """Run one call; ServiceError if the service fails."""
        return self._say(call_text(name, arguments))

    def next_message(self, answer: str | None) -> Said:
        """The user's first message, or the user's reply to the answer, which ends the turn."""
        if self._unread is None and answer is None and not self.ended:
            return Said("The user waits: call this with your answer.", failed=True)
        if self._unread is None:
            return self._say(answer or "")
        if answer:
            return Said("You have not read the user's first message: ask for it without an answer.", failed=True)
        first, self._unread = self._unread, None
        return Said(first)

    def result(self) -> dict[str, Any]:
        """The reward and the service's evaluation; for an episode that is still open, as it stands now."""
        found = self._service.evaluate(self._name)
        return {"reward": float(found["valid"]), "ended": self.ended, **found}

    def _say(self, message: str) -> Said:
        if self.ended:
            return Said(ENDED, failed=True)
        answer, before = self._service.step(self._name, message), self._turn
        self.ended, failed = answer["is_terminated"], answer["info"].get("error_class") is not None
        self._turn = answer["info"].get("turn", before)
        if self.ended:
            return Said(ENDED, failed)
        text = "\n".join(bare(message["content"]) for message in answer["state"])
        return Said(text, failed, any(self._by_turn[before + 1 : self._turn + 1]))


@contextmanager
def episode(service: ServiceClient, task: str, params: Mapping[str, Any]) -> Iterator[Episode]:
    """An episode that is released at the end of the block in any case; ServiceError says why it cannot be opened."""
    name = uuid.uuid4().hex
    opening = service.create(task, name, {**params, "native": True})
    try:
        yield Episode(service, name, opening)
    finally:
        service.release(name)
