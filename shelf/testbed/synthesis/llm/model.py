"""A language model that is asked for tasks: answers are kept, tokens counted, failures bounded."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from seal.system.files import json_hash
from shelf.suites.chat import ChatClient, ContextExceeded, EndpointFault, Sampling
from shelf.testbed.synthesis.llm.answers import Answer, AnswerFile
from shelf.testbed.synthesis.llm.budget import Budget, BudgetReached, Tokens

Messages = Sequence[Mapping[str, str]]

FAULTS_IN_A_ROW = 10
"""After this many failed requests without an answer in between no more are sent."""
_ROUNDS = 3
"""How often a request is sent, each time with the client's own attempts."""
_SEEDS = 2**31 - 1
"""Providers do not take larger seeds."""
_MESSAGE_TOKENS = 8
"""Tokens that a chat template puts around a message, at most."""


class Rejected(Exception):
    """A draw came to nothing; reason is a word under which such draws are counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


StopKind = Literal["interrupted", "budget", "endpoint", "futile"]


class Stop(NamedTuple):
    """Why no further requests are sent, in a word and in a sentence."""

    kind: StopKind
    sentence: str


class Stopped(Exception):
    """No further requests are sent."""


class Model:
    """One model behind an endpoint.

    spent: tokens of the answers of this run. settings: what distinguishes requests
    besides their messages, with the run's seed. backoff_s: the pause after a failed request,
    doubled each time.
    """

    def __init__(
        self,
        client: ChatClient,
        name: str,
        answers: AnswerFile,
        limit: int | None = None,
        settings: Mapping[str, Any] | None = None,
        backoff_s: float = 5.0,
    ) -> None:
        self.name = name
        self.spent = Tokens()
        self.stopped: Stop | None = None
        self._client = client
        self._answers = answers
        self._budget = Budget(limit, answers.spent)
        self._settings = dict(settings or {})
        self._backoff_s = backoff_s
        self._faults = 0

    def stop(self, kind: StopKind, sentence: str) -> None:
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
        cause = ""
        for round_number in range(_ROUNDS):
            if self.stopped:
                raise Stopped
            try:
                async with self._budget.reserve(most):
                    reply = await self._client.complete(messages, sampling, seed, name)
                    answer = Answer.of(reply, characters)
                    self._answers.add(request, answer)
            except BudgetReached:
                self.stop(
                    "budget",
                    f"The next request could exceed the limit of {self._budget.limit:,} tokens "
                    f"({self._answers.spent.total:,} are spent): the same command with a higher --max-tokens-total "
                    "continues.",
                )
                raise Stopped from None
            except ContextExceeded as error:
                raise Rejected("context") from error
            except EndpointFault as fault:
                cause = fault.cause
                self._count(fault)
                await asyncio.sleep(0 if self.stopped else self._backoff_s * 2**round_number)
            else:
                self._faults = 0
                self.spent.add(answer.read, answer.written)
                return answer
        raise Rejected(cause)

    def _count(self, fault: EndpointFault) -> None:
        self._faults += 1
        if self._faults >= FAULTS_IN_A_ROW:
            self.stop(
                "endpoint",
                f"{self._faults} requests in a row failed, the last with {fault.cause} ({fault}): the same command "
                "resumes when the endpoint answers again.",
            )
