"""The tokenizer: byte-level BPE in which a value has the same tokens in every place.

Spaces, digits and words are isolated before merging, so a file name or an
amount has the same tokens in the user's sentence and in the JSON of a call:
copying it means copying tokens. The chat template is plain ChatML (no default
system message, no tool rendering): the policy reads exactly what the
environment sends.

transformers loads the tokenizer of every Qwen2 folder as Qwen2Tokenizer, with
that class's own rules for splitting text, whatever the folder says. So the
merges are learnt with our finer splits and then stored in a Qwen2Tokenizer:
because no merge crosses our splits, its coarser ones change nothing. In the one
case in which its splits are finer (the contraction rule takes the 't off
'temp.txt'), the quote is an added token, which is split off first.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

PAD = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Single tokens, but not "special": decoding keeps them, and parsers need them."""

BEFORE_ARGUMENTS = '","arguments":{"'
BETWEEN_ARGUMENTS = ('","', ',"')
JOINTS = ('{"name":"', BEFORE_ARGUMENTS, '","arguments":{}}', *BETWEEN_ARGUMENTS)
"""Single tokens: what stands around the names in a compact call. One token then separates the tool from its first
argument, as in a schema cue: the distance that the reading circuit of `wiring` bridges."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_PIECES = r"_?[A-Za-z]+|\d|[^\sA-Za-z\d]+?(?=_[A-Za-z]|[\sA-Za-z\d]|$)|\s"


def train_tokenizer(texts: Iterable[str], names: Sequence[str], vocab_size: int, context: int) -> Qwen2Tokenizer:
    """Train the tokenizer.

    Args:
        texts: the text that the merges are learnt from, of training scenarios only.
        names: words that become single tokens (the tools' names).
        vocab_size: total number of tokens.
        context: longest input, in tokens, that the tokenizer declares.
    """
    reserved = [PAD, START, END, *TAGS, *JOINTS, *names]
    smallest = 256 + len(reserved)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}, but the bytes, the tags and the tools' names need {smallest}: raise it."
        )
    splitter = Tokenizer(models.BPE())
    splitter.normalizer = normalizers.NFC()
    splitter.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=reserved,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    splitter.train_from_iterator(texts, trainer)
    learnt = json.loads(splitter.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learnt["vocab"],
        merges=[tuple(pair) for pair in learnt["merges"]],
        unk_token=PAD,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        model_max_length=context,
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (*TAGS, *JOINTS, "'")])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False, single_word=True) for name in names])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


class Encoded(NamedTuple):
    """A dialogue as tokens; spoken[i] is true if the assistant says ids[i] and should learn to.

    slips are (start, stop) spans of tokens that carry no loss.
    """

    ids: tuple[int, ...]
    spoken: tuple[bool, ...]
    slips: tuple[tuple[int, int], ...] = ()


class DialogueEncoder:
    """Turns messages into exactly the tokens that the chat template gives, and marks the assistant's.

    It works message by message and encodes every text once: each boundary is a
    special token or a newline, which no merge crosses.
    """

    def __init__(self, tokenizer: Qwen2Tokenizer):
        self._tokenizer = tokenizer
        self._end = tokenizer.convert_tokens_to_ids(END)
        self._cache: dict[str, tuple[int, ...]] = {}
        self._newline = self._ids("\n")

    def _ids(self, text: str) -> tuple[int, ...]:
        ids = self._cache.get(text)
        if ids is None:
            ids = self._cache[text] = tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return ids

    def encode(self, messages: Sequence[Mapping[str, str]], slips: Collection[int] = ()) -> Encoded:
        """Encode messages (role, content); the assistant's words and their end token are `spoken`.

        slips: positions of the assistant's mistakes, which are not.
        """
        ids: list[int] = []
        spoken: list[bool] = []
        spans: list[tuple[int, int]] = []
        for position, message in enumerate(messages):
            header = self._ids(f"{START}{message['role']}\n")
            body = (*self._ids(message["content"]), self._end)
            ids += (*header, *body, *self._newline)
            spoken += [False] * len(header)
            spoken += [message["role"] == "assistant" and position not in slips] * len(body)
            if position in slips:
                spans.append((len(spoken) - len(body), len(spoken)))
            spoken += [False] * len(self._newline)
        return Encoded(tuple(ids), tuple(spoken), tuple(spans))
