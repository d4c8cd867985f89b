"""A language model that is asked for tasks: tokens are counted and failures are bounded.

The answers that were paid for are kept beside the output: a restarted run asks for none of them twice.
"""

import fcntl
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from seal.system.files import json_hash
from shelf.suites.answers import ContextExceeded, EndpointFault, EndpointRefused, Reply, RequestRefused
from shelf.suites.endpoint import ChatClient, Sampling
from shelf.suites.journal import resumed

Messages = Sequence[Mapping[str, str]]

FAULTS_IN_A_ROW = 10
"""After this many failed requests without an answer in between, no more are sent."""
SUFFIX = ".answers.jsonl"
_MESSAGE_TOKENS = 8
"""The most tokens that a chat template puts around a message."""


@dataclass
class TokenUsage:
    """Requests that were answered, and the tokens of their prompts and answers."""

    requests: int = 0
    read: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        """Tokens of prompts and answers."""
        return self.read + self.written

    def add(self, answer: Reply) -> None:
        """Count one answer."""
        self.requests += 1
        self.read += answer.prompt_tokens
        self.written += answer.tokens


class AnswerFile:
    """Answers by the hash of their request, in FILE.answers.jsonl beside the output FILE. spent: the tokens of all."""

    def __init__(self, output: Path) -> None:
        """Open or continue a file; ValueError if another process writes to it, or if it is damaged."""
        self.path = output.with_name(output.name + SUFFIX)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self.path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._stream.close()
            raise ValueError(f"Another process writes {self.path}: wait for it, or give another --out.") from error
        try:
            self._answers = {line.pop("request"): Reply(**line) for line in resumed(self.path)}
        except (ValueError, KeyError, TypeError) as error:
            self._stream.close()
            raise ValueError(f"The answers in {self.path} are damaged ({error}): remove the lines.") from error
        self.spent = TokenUsage()
        for answer in self._answers.values():
            self.spent.add(answer)

    def get(self, request: str) -> Reply | None:
        """The answer to the request with this hash, None if there is none yet."""
        return self._answers.get(request)

    def add(self, request: str, answer: Reply) -> None:
        """Append an answer."""
        line = {"request": request, **answer._replace(thoughts={})._asdict()}
        self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._stream.flush()
        self._answers[request] = answer
        self.spent.add(answer)

    def close(self) -> None:
        """Close the file; another process may then continue it."""
        self._stream.close()


class Rejected(Exception):
    """A draw failed; reason is a word under which such draws are counted."""

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

    limit: on the tokens of prompts and answers, including earlier runs and requests in flight. seed: that of the run.
    """

    def __init__(self, client: ChatClient, answers: AnswerFile, limit: int | None = None, seed: int = 0) -> None:
        self.name = client.endpoint.model
        self.stopped: Stop | None = None
        self._client = client
        self._answers = answers
        self._limit = limit
        self._reserved = 0
        extra = client.endpoint.extra
        self._seed = seed
        self._settings = {"seed": seed, **({"extra": dict(extra)} if extra else {})}
        self._faults = 0

    def stop(self, kind: Literal["budget", "endpoint"], sentence: str) -> None:
        """Send no further requests; those in flight are waited for. The first reason counts."""
        self.stopped = self.stopped or Stop(kind, sentence)

    async def ask(self, messages: Messages, sampling: Sampling, name: str) -> Reply:
        """The answer to a dialogue, from the kept answers if it was asked before under the same name.

        name: identifies the draw. If an endpoint counts no tokens, four characters count as one. Raises Rejected if the
        model cannot answer this dialogue, Stopped when no more requests are sent, EndpointRefused if the endpoint would
        refuse every request and no answer is kept.
        """
        request = json_hash([self.name, list(messages), asdict(sampling), self._settings, name])
        if (known := self._answers.get(request)) is not None:
            return known
        seed = zlib.crc32(f"{self._seed}/{name}".encode())
        characters = sum(len(message["content"]) for message in messages)
        most = characters // 2 + _MESSAGE_TOKENS * len(messages) + (sampling.max_tokens or 0)
        self._require_budget(most)
        self._reserved += most
        try:
            reply = await self._client.complete(messages, sampling, seed, name)
        except ContextExceeded as error:
            raise Rejected("context") from error
        except EndpointFault as fault:
            if not isinstance(fault, RequestRefused):
                self._count(fault)
            raise Rejected(fault.cause) from fault
        except EndpointRefused as refused:
            if not self._answers.spent.requests:
                raise
            self.stop("endpoint", str(refused))
            raise Stopped from refused
        finally:
            self._reserved -= most
        read, written = reply.prompt_tokens or characters // 4 + 1, reply.tokens or len(reply.text) // 4 + 1
        answer = reply._replace(prompt_tokens=read, tokens=written)
        self._answers.add(request, answer)
        self._faults = 0
        return answer

    def _require_budget(self, tokens: int) -> None:
        """Raise Stopped if no more requests are sent, or if a request with these tokens could exceed the limit."""
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
