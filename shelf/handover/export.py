"""A checkpoint as one folder with model or adapter, tokenizer, card and interface, written completely or not at all."""

from pathlib import Path
from typing import Any, NamedTuple

from seal import __version__
from seal.method.interface.cues import Omega
from seal.system.files import write_json, write_text
from shelf.handover.card import base_name, model_card, stated_licence
from shelf.handover.source import Source
from shelf.handover.weights import DTYPES, write_model
from shelf.suites.folder import written_whole


class Exported(NamedTuple):
    """The result of an export. kind: "model" or "adapter". omega: the interface, None if the run showed none."""

    kind: str
    omega: Omega | None
    licence: str | None


def export(source: Source, out: Path, licence: str | None = None, merge_adapter: bool = False) -> Exported:
    """Write a checkpoint into `out`, which must be empty or missing; an error leaves nothing there.

    licence: that of the base model, None for the one that its own card states. ValueError,
    in one sentence, for a checkpoint that cannot be exported.
    """
    licence = licence or stated_licence(source)
    dtype = source.setting("actor_rollout_ref", "rollout", "dtype")
    dtype = dtype if dtype in DTYPES else None
    with written_whole(out) as draft:
        kind = write_model(source.checkpoint / "actor", draft, dtype, base_name(source), merge_adapter)
        omega = omega_of(source)
        if omega is not None:
            write_json(interface(source, omega), draft / "interface.json")
        write_text(model_card(source, kind, dtype, licence, omega), draft / "README.md")
    return Exported(kind, omega, licence)


def omega_of(source: Source) -> Omega | None:
    """Omega as saved in the checkpoint, for the step after it; None if the run showed none or recorded no launch."""
    settings = source.launch.settings if source.launch else None
    if settings is None or not settings.shows_omega:
        return None
    return Omega.from_json(source.state["loop"]["omega"])


def interface(source: Source, omega: Omega) -> dict[str, Any]:
    """The file `interface.json`: Omega, its step, and the prompt mode and taxonomy of its cues."""
    return {
        "format": 1,
        "run": source.name,
        "step": source.step,
        "prompt_mode": source.prompt_mode,
        "taxonomy": source.launch.settings.diagnosis.taxonomy,
        "omega": omega.to_json(),
        "digest": omega.digest,
        "seal": __version__,
    }
