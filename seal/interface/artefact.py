"""The Omega of a run as a file of its own, `interface.json`, with which a later run can start.

It says which run and step it is of, and what its cues are worded for: the prompt mode
and the taxonomy. A run that writes calls or labels turns differently refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from seal.interface.cues import EVERYWHERE, Omega
from seal.interface.evolve import cues_in_use, permanent_cues
from seal.settings.interface import EvolveSettings

VERSION = 1
"""The version of the file's format; other versions are refused."""

FILE_NAME = "interface.json"


@dataclass(frozen=True)
class InterfaceArtefact:
    """Omega as a run had it after a step. seal: the version that wrote it; digest: Omega's, wording included."""

    run: str
    step: int
    prompt_mode: str
    taxonomy: str
    omega: Omega
    digest: str
    seal: str

    @property
    def rewords(self) -> bool:
        """Whether this version of SEAL words the cues differently."""
        return self.omega.digest != self.digest

    def __str__(self) -> str:
        """What is loaded, as one sentence."""
        cues = ", ".join(self.omega.cues) or "no cue"
        rewords = "; this version of SEAL words cues differently from the one that wrote it" if self.rewords else ""
        return f"interface loaded: Omega {self.omega.version} of {self.run} after step {self.step} ({cues}){rewords}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_json`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"format": VERSION, **own, "omega": self.omega.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild an artefact; ValueError, as the end of a sentence, if it is not one or has another version."""
        if not isinstance(value, Mapping) or "format" not in value:
            raise ValueError(f"is not the interface of a run: name the {FILE_NAME} that seal export wrote")
        if value["format"] != VERSION:
            raise ValueError(
                f"has format {value['format']!r} and this SEAL reads format {VERSION}: export it with this version"
            )
        names = {field.name: field.type for field in fields(cls)}
        if wrong := sorted({*names, "format"} ^ set(value)):
            raise ValueError(f"has a missing or unknown key {wrong[0]!r}: export it again")
        for name, kind in names.items():
            known = {"str": str, "int": int}.get(str(kind))
            if known and type(value[name]) is not known:
                raise ValueError(f"has {name}={value[name]!r}, which is not of the type {kind}: export it again")
        return cls(**{name: value[name] for name in names} | {"omega": Omega.from_json(value["omega"])})

    def require_fit(self, evolving: EvolveSettings, taxonomy: str, prompt_mode: str) -> None:
        """ValueError, as the end of a sentence, if a run with these settings cannot start with this Omega."""
        for what, own, key, wanted in (
            ("prompt mode", self.prompt_mode, "env_service.prompt_mode", prompt_mode),
            ("taxonomy", self.taxonomy, "seal.diagnosis.taxonomy", taxonomy),
        ):
            if own != wanted:
                raise ValueError(f"is of the {what} {own} and this run has {key}={wanted}: set them alike")
        if scopes := sorted(set(self.omega.by_scope()) - {EVERYWHERE}):
            raise ValueError(f"has cues of its own for {scopes[0]}: name that of a run with a single environment")
        usable = {cue.name for cue in cues_in_use(evolving, taxonomy)}
        if left_out := sorted(set(self.omega.cues) - usable):
            raise ValueError(f"turns on {left_out[0]}, which this run leaves out: change seal.interface.evolve.kinds")

    def start(self, evolving: EvolveSettings) -> Omega:
        """Omega_0 of a run that starts with this one: its cues, and those that are permanent in the run."""
        return Omega.of({*self.omega.cues, *permanent_cues(evolving, self.taxonomy)}, self.omega.version)


def read_artefact(path: Path | str) -> InterfaceArtefact:
    """Read a file that `seal export` wrote; ValueError with one sentence if it is missing or cannot be used."""
    path = Path(path)
    try:
        return InterfaceArtefact.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: name the {FILE_NAME} that seal export wrote.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): name the {FILE_NAME} that seal export wrote.") from None
    except ValueError as error:
        raise ValueError(f"{path} {error}.") from None
