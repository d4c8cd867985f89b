"""A language model that is asked for tasks: answers are kept, tokens counted, failures bounded."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from seal.system.files import json_hash
from shelf.suites.chat import ChatClient, ContextExceeded, EndpointFault, Sampling
from shelf.testbed.synthesis.llm.answers import Answer, AnswerFile

Messages = Sequence[Mapping[str, str]]

FAULTS_IN_A_ROW = 10
"""After this many failed requests without an answer in between no more are sent."""
_SEEDS = 2**31 - 1
"""Providers do not take larger seeds."""
_MESSAGE_TOKENS = 8
"""Tokens that a chat template puts around a message, at most."""


class Rejected(Exception):
    """A draw came to nothing; reason is a word under which such draws are counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Stop(NamedTuple):
    """Why no further requests are sent, in a word and in a sentence."""

    kind: Literal["budget", "endpoint"]
    sentence: str


class Stopped(Exception):
    """No further requests are sent."""


class EndpointModel:
    """One model behind an endpoint.

    limit: on the tokens of prompts and answers, those of earlier runs and of requests in flight
    included. settings: what distinguishes requests besides their messages, with the run's seed.
    """

    def __init__(
        self,
        client: ChatClient,
        name: str,
        answers: AnswerFile,
        limit: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.stopped: Stop | None = None
        self._client = client
        self._answers = answers
        self._limit = limit
        self._reserved = 0
        self._settings = dict(settings or {})
        self._faults = 0

    def stop(self, kind: Literal["budget", "endpoint"], sentence: str) -> None:
        """Send no further requests; those in flight are waited for. The first reason counts."""
        self.stopped = self.stopped or Stop(kind, sentence)

    async def ask(self, messages: Messages, sampling: Sampling, name: str) -> Answer:
        """The answer to a dialogue, from the kept ones if it was asked before under the same name.

        name: which of several draws this is. Raises Rejected if the model cannot
        answer this one, Stopped when nothing is sent any more, EndpointRefused if the endpoint
        would refuse every request.
        """
        request = json_hash([self.name, list(messages), asdict(sampling), self._settings, name])
        if (known := self._answers.get(request)) is not None:
            return known
        seed = zlib.crc32(f"{self._settings.get('seed')}/{name}".encode()) & _SEEDS
        characters = sum(len(message["content"]) for message in messages)
        most = characters // 2 + _MESSAGE_TOKENS * len(messages) + (sampling.max_tokens or 0)
        self._require_budget(most)
        self._reserved += most
        try:
            reply = await self._client.complete(messages, sampling, seed, name)
        except ContextExceeded as error:
            raise Rejected("context") from error
        except EndpointFault as fault:
            self._count(fault)
            raise Rejected(fault.cause) from fault
        finally:
            self._reserved -= most
        answer = Answer.of(reply, characters)
        self._answers.add(request, answer)
        self._faults = 0
        return answer

    def _require_budget(self, tokens: int) -> None:
        """Raise Stopped if no requests are sent any more, or if one that costs these tokens could exceed the limit."""
        spent = self._answers.spent.total
        if self._limit is not None and spent + self._reserved + tokens > self._limit:
            self.stop(
                "budget",
                f"The next request could exceed the limit of {self._limit:,} tokens ({spent:,} are spent): the same "
                "command with a higher --max-tokens-total continues.",
            )
        if self.stopped:
            raise Stopped

    def _count(self, fault: EndpointFault) -> None:
        self._faults += 1
        if self._faults >= FAULTS_IN_A_ROW:
            self.stop(
                "endpoint",
                f"{self._faults} requests in a row failed, the last with {fault.cause} ({fault}): the same command "
                "resumes when the endpoint answers again.",
            )
