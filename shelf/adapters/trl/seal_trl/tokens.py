"""The tokens of one dialogue: sampled tokens stay as they are, and the template adds what is between them."""

from collections.abc import Mapping, Sequence
from typing import Any


class Tokens:
    """ids: all tokens. mask: for the tokens after the first prompt, 1 if sampled. cut: the last message has no end.

    scored: every sampled message came with log-probs.
    """

    def __init__(self, tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> None:
        self._tokenizer = tokenizer
        self._messages = _plain(messages)
        self.ids: list[int] = self._rendered(add_generation_prompt=True)
        self._start = len(self.ids)
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.cut, self.scored = False, True

    @property
    def prompt(self) -> list[int]:
        """The tokens before the first sampled one."""
        return self.ids[: self._start]

    @property
    def completion(self) -> list[int]:
        """All other tokens."""
        return self.ids[self._start :]

    def said(self, ids: Sequence[int], logprobs: Sequence[float] | None) -> str:
        """Append a sampled message; return its text."""
        self.scored = self.scored and logprobs is not None
        self._append(ids, 1, logprobs)
        self.cut = not ids or ids[-1] != self._tokenizer.eos_token_id
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        self._messages.append({"role": "assistant", "content": text})
        return text

    def answered(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append what the template writes after the last message; ValueError if it rewrites what came before."""
        eos = self._tokenizer.eos_token_id
        before = self._rendered()
        self._messages += _plain(messages)
        after = self._rendered(add_generation_prompt=True)
        end = len(before) - before[::-1].index(eos)
        if after[:end] != before[:end]:
            raise ValueError("The chat template rewrites earlier messages (thoughts?): use one that keeps them.")
        self._append(([eos] if self.cut else []) + after[end:], 0, None)

    def _append(self, ids: Sequence[int], sampled: int, logprobs: Sequence[float] | None) -> None:
        self.ids = [*self.ids, *ids]
        self.mask += [sampled] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)

    def _rendered(self, **options: bool) -> list[int]:
        return self._tokenizer.apply_chat_template(self._messages, tokenize=True, return_dict=False, **options)


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{"role": message["role"], "content": message["content"]} for message in messages]
