"""The answers that were paid for, kept beside the output: a run that is started again asks for none of them twice."""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from seal.system.jsonl import read_records
from shelf.suites.chat import Reply

SUFFIX = ".answers.jsonl"


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

    def add(self, read: int, written: int) -> None:
        """Count one answer."""
        self.requests += 1
        self.read += read
        self.written += written


class Answer(NamedTuple):
    """A model's answer: its text, whether a length limit cut it, and the tokens of prompt and answer."""

    text: str
    truncated: bool
    read: int
    written: int

    @classmethod
    def of(cls, reply: Reply, prompt_characters: int) -> Self:
        """The answer in a reply; an endpoint that counts no tokens gets an estimate of four characters each."""
        read = reply.prompt_tokens or prompt_characters // 4 + 1
        return cls(reply.text, reply.truncated, read, reply.tokens or len(reply.text) // 4 + 1)


class AnswerFile:
    """Answers by the hash of their request, in the file FILE.answers.jsonl beside the output FILE.

    spent: the tokens of all of them.
    """

    def __init__(self, output: Path) -> None:
        """Open or continue; ValueError if another process writes it, or if it is damaged."""
        self.path = output.with_name(output.name + SUFFIX)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self.path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._stream.close()
            raise ValueError(f"Another process writes {self.path}: wait for it, or give another --out.") from error
        # A half-written last line is cut off: its request will be sent again.
        os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
        lines, bad = read_records(self.path, _read)
        if bad:
            self._stream.close()
            raise ValueError(f"The answers of earlier runs are damaged: {bad[0]}")
        self._answers = dict(lines)
        self.spent = TokenUsage()
        for answer in self._answers.values():
            self.spent.add(answer.read, answer.written)

    def get(self, request: str) -> Answer | None:
        """The answer to the request with this hash, None if it was not answered yet."""
        return self._answers.get(request)

    def add(self, request: str, answer: Answer) -> None:
        """Append an answer."""
        self._stream.write(json.dumps({"request": request, **answer._asdict()}, ensure_ascii=False) + "\n")
        self._stream.flush()
        self._answers[request] = answer
        self.spent.add(answer.read, answer.written)

    def close(self) -> None:
        """Close the file; another process may then continue it."""
        self._stream.close()


def _read(line: Any) -> tuple[str, Answer]:
    try:
        return line["request"], Answer(**{name: line[name] for name in Answer._fields})
    except KeyError as error:
        raise ValueError(f"has no {error.args[0]}: remove this line") from error
