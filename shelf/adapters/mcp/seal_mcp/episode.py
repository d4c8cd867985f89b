"""One episode of the service, as played by an agent with native tool calls: documents, results, user messages."""

import ast
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from env_service.answers import Message
from env_service.client import ServiceClient
from seal.rollout.harness.task import ENDED, call_text

_RESULT = ("<tool_response>\n", "\n</tool_response>")


class Said(NamedTuple):
    """The reply to a call or an answer. failed: it was refused or is an error. revealed: there are new tools."""

    text: str
    failed: bool = False
    revealed: bool = False


class Episode:
    """A running episode. tools: the documents that are available now, as the service shows them.

    The service takes text, so a call is written as the default formats require (JSON between <tool_call> tags):
    parsing, checks, verdict and labels remain the service's.
    """

    def __init__(self, service: ServiceClient, name: str, opening: list[Message]) -> None:
        """`opening` is the answer of /create; ValueError if it does not list the tools as JSON lines."""
        system, user = (message["content"] for message in opening)
        before, _, rest = system.rpartition("<tools>\n")
        lines, _, after = rest.partition("\n</tools>\n")
        if not after:
            raise ValueError("This format does not list the tools as JSON: leave tool_prompt_mode out.")
        self.tools: list[Mapping[str, Any]] = [json.loads(line) for line in lines.split("\n") if line]
        self.ended = False
        instructions = before.rpartition("# Tools\n")[0].strip()
        self._unread: str | None = f"{instructions}\n\n{user}" if instructions else user
        self._service, self._name = service, name

    def call(self, name: str, arguments: Mapping[str, Any]) -> Said:
        """Run one call; ServiceError if the service fails."""
        return self._say(call_text(name, arguments))

    def next_message(self, answer: str) -> Said:
        """The user's first message, or the user's reply to the answer, which ends the turn."""
        if self._unread is None:
            return self._say(answer)
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
        answer = self._service.step(self._name, message)
        self.ended, failed = answer["is_terminated"], answer["info"].get("error_class") is not None
        content = "\n".join(message["content"] for message in answer["state"])
        if self.ended:
            return Said(ENDED, failed)
        if content.startswith(_RESULT[0]):
            return Said(content.removeprefix(_RESULT[0]).removesuffix(_RESULT[1]), failed)
        # BFCL announces tools as a Python list of documents, with a sentence on the last line.
        revealed = ast.literal_eval(content.rpartition("\n")[0]) if content.startswith("[{'name': ") else []
        self.tools += revealed
        return Said(content, failed, bool(revealed))


@contextmanager
def episode(service: ServiceClient, task: str, params: Mapping[str, Any]) -> Iterator[Episode]:
    """An episode that is released at the end of the block in any case; ServiceError says why it cannot be opened."""
    name = uuid.uuid4().hex
    opening = service.create(task, name, params)["state"]
    try:
        yield Episode(service, name, opening)
    finally:
        service.release(name)
