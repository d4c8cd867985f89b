"""A checkpoint as one folder: model or adapter, tokenizer, card and interface, complete or not there at all."""

import shutil
from pathlib import Path
from typing import NamedTuple

from seal import __version__
from seal.interface.artefact import FILE_NAME, InterfaceArtefact
from seal.interface.cues import Omega
from seal.system.files import write_json, write_text
from shelf.handover.card import base_name, model_card, stated_licence
from shelf.handover.source import Source
from shelf.handover.weights import DTYPES, write_model

CARD = "README.md"


class Exported(NamedTuple):
    """What was written. kind: "model" or "adapter"; artefact: the interface, None for a run that showed none."""

    folder: Path
    kind: str
    artefact: InterfaceArtefact | None
    licence: str | None


def require_empty(out: Path) -> None:
    """ValueError if a folder cannot be written to because something is there."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty: name another --out, or remove it.")


def export(source: Source, out: Path, licence: str | None = None, merge_adapter: bool = False) -> Exported:
    """Write a checkpoint into `out`, which must be empty or missing; an error leaves nothing there.

    licence: of the base model, None for the one that its own card states. ValueError, in one
    sentence, for a checkpoint that cannot be exported.
    """
    require_empty(out)
    licence = licence or stated_licence(source)
    dtype = source.setting("actor_rollout_ref", "rollout", "dtype")
    dtype = dtype if dtype in DTYPES else None
    draft = out.with_name(f"{out.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        kind = write_model(source.actor, draft, dtype, base_name(source), merge_adapter)
        artefact = interface_of(source)
        if artefact is not None:
            write_json(artefact.to_json(), draft / FILE_NAME)
        write_text(model_card(source, kind, dtype, licence, artefact), draft / CARD)
        if out.exists():
            out.rmdir()
        draft.replace(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Exported(out, kind, artefact, licence)


def interface_of(source: Source) -> InterfaceArtefact | None:
    """Omega as the checkpoint has it, for the step after it; None if the run showed none or recorded no launch."""
    if source.launch is None:
        return None
    settings = source.launch.settings
    if not (settings.enabled and settings.interface.enabled):
        return None
    omega = Omega.from_json(source.state["loop"]["omega"])
    return InterfaceArtefact(
        run=source.name,
        step=source.step,
        prompt_mode=source.launch.prompt_mode,
        taxonomy=settings.diagnosis.taxonomy,
        omega=omega,
        digest=omega.digest,
        seal=__version__,
    )
