"""A GGUF file as a model folder that transformers, vLLM and verl load.

transformers reads the file and dequantises its weights. What its reader loses is put right here: the end token, which
it takes for the first one; tokens that stand for themselves (`<tool_call>` of Qwen2.5); and the head of a model that
shares it with the embeddings, of which the file can hold two quantised copies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import torch
from gguf import GGUFReader, GGUFValueType, ReaderField, TokenType
from jinja2 import TemplateError
from transformers import AddedToken, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from seal.system.files import write_text
from shelf.suites.folder import written_whole

ARCHITECTURES = ("llama", "qwen2", "qwen3")
DTYPE = torch.bfloat16
SAME_MATRIX = 0.2
"""Two quantised copies of a matrix differ by less than this share of its norm; different ones by more than 1."""

NOT_TEXT = (TokenType.CONTROL, TokenType.USER_DEFINED)
NAMED = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
TEXT = 'Two lines,\n\ttabs, 1,024.50 and naïve 漢字: {"name": "ls", "arguments": {"a": true}}'
DIALOGUE = [
    {"role": "system", "content": "You call tools."},
    {"role": "user", "content": "Which files are here?"},
    {"role": "assistant", "content": "I list them."},
    {"role": "tool", "content": '{"files": ["a.txt"]}'},
]
TOOL = {"type": "function", "function": {"name": "list_files", "description": "", "parameters": {"type": "object"}}}


@dataclass(frozen=True)
class Header:
    """The metadata of a GGUF file.

    parameters: how many the weights are. special: ids by transformers' name of the token. added: the tokens that
    stand for themselves, by id, and whether decoding leaves them out.
    """

    architecture: str
    parameters: int
    template: str | None
    special: Mapping[str, str]
    added: Mapping[int, AddedToken]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the header and the places of the weights; ValueError if it is no GGUF file or was cut."""
        try:
            reader = GGUFReader(path)
            values = {name: field.contents() for name, field in reader.fields.items() if _is_read(name, field)}
            parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
        except (ValueError, IndexError, KeyError) as error:
            raise ValueError(f"{path} is not a whole GGUF file ({error}): download it again.") from error
        key = "tokenizer.ggml."
        tokens, types = values.get(f"{key}tokens"), values.get(f"{key}token_type")
        if not tokens or not types:
            raise ValueError(f"{path} holds no tokenizer: name a GGUF file of a whole model.")
        ids = {name: values.get(f"{key}{short}_token_id") for name, short in NAMED.items()}
        return cls(
            str(values.get("general.architecture")),
            parameters,
            values.get("tokenizer.chat_template"),
            {name: tokens[place] for name, place in ids.items() if place is not None},
            {
                place: AddedToken(text, special=kind == TokenType.CONTROL, normalized=False)
                for place, (text, kind) in enumerate(zip(tokens, types, strict=True))
                if kind in NOT_TEXT
            },
        )


def convert(path: Path, out: Path, card: str | None = None) -> Header:
    """Write a GGUF file as a model folder in bfloat16, empty or missing before; an error leaves nothing there.

    card: the folder's README.md. ValueError, in one sentence, for a file that is not whole, a model that SEAL does not
    train, a tokenizer or chat template that does not survive a round trip, or too little memory.
    """
    header = Header.of(path)
    if header.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"{path} is a model of architecture {header.architecture}: name one of {known}.")
    if header.template is None:
        raise ValueError(f"{path} holds no chat template: name the file of the instruction-tuned model.")
    needed = header.parameters * (torch.float32.itemsize + DTYPE.itemsize)
    if (free := psutil.virtual_memory().available) < needed:
        raise ValueError(
            f"{path} takes {needed / 1e9:.1f} GB of memory to convert and {free / 1e9:.1f} GB are free: end other "
            "programs, or name a smaller model."
        )
    transformers_logging.disable_progress_bar()
    with written_whole(out) as draft:
        tokenizer = _tokenizer(path, header)
        tokenizer.save_pretrained(draft)
        check_tokenizer(AutoTokenizer.from_pretrained(draft), header)
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=DTYPE)
        _tie(model)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(draft)
        if card is not None:
            write_text(card, draft / "README.md")
    return header


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, header: Header) -> None:
    """ValueError unless tokens, a text and a dialogue come back as they went in, and messages end as the model ends."""
    for place, token in header.added.items():
        if tokenizer.encode(token.content, add_special_tokens=False) != [place]:
            raise ValueError(f"The tokenizer splits the token {token.content}: transformers does not read this file.")
    try:
        rendered = tokenizer.apply_chat_template(DIALOGUE, tokenize=False)
    except TemplateError as error:
        raise ValueError(f"The chat template refuses a dialogue with a tool's result: {error}.") from error
    for text in (TEXT, rendered):
        if tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) != text:
            raise ValueError("The tokenizer changes a text: transformers does not read this file's tokenizer.")
    if lost := [said["role"] for said in DIALOGUE if said["content"] not in rendered]:
        raise ValueError(f"The chat template leaves out messages of role {lost[0]}: name another model.")
    if f"{DIALOGUE[2]['content']}{tokenizer.eos_token}" not in rendered:
        raise ValueError(f"The chat template does not end messages with {tokenizer.eos_token}, the model's end token.")


def knows_tools(folder: Path) -> bool:
    """Return whether the chat template of a model folder shows the tools of a request."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    shown = tokenizer.apply_chat_template(DIALOGUE[:2], tools=[TOOL], tokenize=False)
    return TOOL["function"]["name"] in shown


def _is_read(name: str, field: ReaderField) -> bool:
    """Return whether to read a value of the header; merges and scores, which take seconds, are skipped."""
    long = field.types and field.types[0] == GGUFValueType.ARRAY
    return not long or name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")


def _tokenizer(path: Path, header: Header) -> PreTrainedTokenizerBase:
    loaded: Any = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, clean_up_tokenization_spaces=False)
    loaded.add_tokens(list(header.added.values()))
    for name, text in header.special.items():
        setattr(loaded, name, text)
    loaded.chat_template = header.template
    return loaded


def _tie(model: PreTrainedModel) -> None:
    """Make the head and the embeddings one matrix again if they are two copies of one."""
    head, embeddings = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    if head is embeddings or head.shape != embeddings.shape:
        return
    rows = min(len(head), 4096)
    difference = (head[:rows].float() - embeddings[:rows].float()).norm() / head[:rows].float().norm()
    if difference < SAME_MATRIX:
        with torch.no_grad():
            embeddings.copy_(head)  # the copy that is quantised less
        model.config.tie_word_embeddings = True
        model.tie_weights()
