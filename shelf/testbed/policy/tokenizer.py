"""Dialogues as the small policy's tokens, and what of them the assistant says."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

START = "<|im_start|>"
END = "<|im_end|>"


class Encoded(NamedTuple):
    """A dialogue as tokens; spoken[i] is true if the assistant says ids[i] and should learn to."""

    ids: tuple[int, ...]
    spoken: tuple[bool, ...]


class DialogueEncoder:
    """Turns messages into exactly the tokens that the policy's chat template gives, and marks the assistant's.

    It works message by message and encodes every text once: each boundary is a
    special token or a newline, which no merge crosses.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self._end = tokenizer.convert_tokens_to_ids(END)
        self._cache: dict[str, tuple[int, ...]] = {}
        self._newline = self._ids("\n")

    def _ids(self, text: str) -> tuple[int, ...]:
        ids = self._cache.get(text)
        if ids is None:
            ids = self._cache[text] = tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return ids

    def encode(self, messages: Sequence[Mapping[str, str]]) -> Encoded:
        """Encode messages (role, content); the assistant's words and their end token are `spoken`."""
        ids: list[int] = []
        spoken: list[bool] = []
        for message in messages:
            header = self._ids(f"{START}{message['role']}\n")
            body = (*self._ids(message["content"]), self._end)
            ids += (*header, *body, *self._newline)
            spoken += [False] * len(header)
            spoken += [message["role"] == "assistant"] * len(body)
            spoken += [False] * len(self._newline)
        return Encoded(tuple(ids), tuple(spoken))
