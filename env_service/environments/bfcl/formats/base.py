"""What the benchmark's prompt and parser modes have beside those of the kit: they announce tools that were withheld."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache

from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING

from env_service.environments.bfcl.catalog import CLASSES, Document, documents
from env_service.environments.kit import formats, stray
from env_service.environments.kit.calls import Parsed


class Format(formats.Format):
    """One prompt and parser mode of the benchmark, whose tools it knows."""

    def user(self, text: str, tools: Sequence[Document] = ()) -> str:
        """Return a user's message. tools: those visible at the start, given with the first message."""
        return text

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the announcement of tools that were withheld until now: here the package's, as Python prints them."""
        return DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=list(tools))

    @abstractmethod
    def parse(self, text: str) -> Parsed:
        """Read an assistant message."""

    def rendering_error(self, text: str) -> str | None:
        """Return why the official handler fails to render the prompt after this message; None when it does not.

        The official pipeline then counts the whole task as wrong.
        """
        return None


class PlainFormat(Format):
    """What the package's modes without tags share: stripped messages, and a message in role ipython per result."""

    def user(self, text: str, tools: Sequence[Document] = ()) -> str:
        """Return the message without blanks around it."""
        return text.strip()

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the package's announcement without blanks around it."""
        return super().reveal(tools).strip()

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return one message per result."""
        return [{"role": "ipython", "content": text} for text in texts]


@cache
def tool_names() -> frozenset[str]:
    """Return the names of all documented tools."""
    return frozenset(document["name"] for name in CLASSES for document in documents(name))


def stray_call(text: str) -> tuple[str, ...]:
    """Return one refusal that names the first call written outside the format, or () when there is none."""
    return stray.stray_call(text, tool_names())
