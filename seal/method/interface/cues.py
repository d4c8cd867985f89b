"""Omega, the learning interface as a value: which cues are on, for every task or for one category."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache, cached_property
from typing import Any, Self

from pydantic import NonNegativeInt

from seal.method.diagnosis.categories import environment_of
from seal.method.diagnosis.rules import extensions
from seal.method.interface.wording import wording, wording_digest
from seal.method.labels import ARGUMENT_MISMATCH
from seal.settings.base import Settings

EVERYWHERE = "*"
"""The scope for tasks of every category that has no scope of its own."""


@dataclass(frozen=True)
class Cue:
    """One cue. kind: schema, feedback or guideline. taxonomy: the only one that uses the cue; None if all use it."""

    name: str
    kind: str
    label: str
    text: str
    compact: str
    taxonomy: str | None = None

    def wording(self, compact: bool) -> str:
        """The text in the size that the prompt mode has room for; "" when it has none."""
        return self.compact if compact else self.text

    def shows(self, compact: bool) -> bool:
        """Return whether a prompt mode has words for it; compact modes list the required arguments (`schema_cue`)."""
        return bool(self.wording(compact)) or self.name == "schema_required"

    @property
    def tells_documents(self) -> bool:
        """Whether it shows, tool by tool, what the documents say (`schema_cue`)."""
        return (self.kind, self.label) == ("schema", ARGUMENT_MISMATCH)


@cache
def catalogue() -> Mapping[str, Cue]:
    """All cues by name, in the order of the data file; then those of installed extensions."""
    tables = [(None, wording()["cues"]), *((name, each.cues) for name, each in extensions().items())]
    cues: dict[str, Cue] = {}
    for own, table in tables:
        for name, d in table.items():
            cue = Cue(name, d["kind"], d["label"], d["text"], d.get("compact", ""), own or d.get("taxonomy"))
            cues.setdefault(name, cue)  # a run with an extension whose cue this leaves out is refused (`cues_in_use`)
    return cues


class _OmegaJson(Settings):
    version: NonNegativeInt
    cues: dict[str, tuple[str, ...]]
    tools: tuple[str, ...] | None = None
    others: NonNegativeInt = 0


@dataclass(frozen=True)
class Omega:
    """Omega_t: the cues that are on, by scope. Hashable, immutable.

    A scope is a category, an environment or "*". The entry of its category decides for a task, else that of its
    environment, else that of "*". ``active`` is sorted (scope, cue names) pairs; build it with :meth:`of`. ``version``
    counts the changes of a run. An Omega without cues does nothing; it still marks its episode as a training episode.
    """

    version: int = 0
    active: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tools: tuple[str, ...] | None = None
    """The names of the tools whose documents its schema cues show; None: all visible tools."""
    others: int = 0
    """For a control: the number of visible tools, not among `tools`, whose documents replace theirs."""

    @classmethod
    def of(cls, cues: Iterable[str] | Mapping[str, Iterable[str]] = (), version: int = 0) -> Self:
        """An Omega from cue names (for all categories) or {scope: cue names}; ValueError for an unknown cue."""
        by_scope = cues if isinstance(cues, Mapping) else {EVERYWHERE: cues}
        order = list(catalogue())
        active = []
        for scope in sorted(by_scope):
            names = set(by_scope[scope])
            if unknown := sorted(names - set(order)):
                raise ValueError(f"omega: unknown cue {unknown[0]!r} for {scope!r}; known cues: {', '.join(order)}")
            if names or scope != EVERYWHERE:
                active.append((scope, tuple(sorted(names, key=order.index))))
        return cls(version, tuple(active))

    def for_category(self, category: str) -> tuple[str, ...]:
        """Cues that hold for a task of this category, in the order of the catalogue."""
        scopes = dict(self.active)
        scope = next((each for each in (category, environment_of(category)) if each in scopes), EVERYWHERE)
        return scopes.get(scope, ())

    def of_kind(self, kind: str, category: str) -> tuple[Cue, ...]:
        """The cues of one kind that hold for a task of this category."""
        return tuple(cue for cue in map(catalogue().get, self.for_category(category)) if cue.kind == kind)

    @property
    def cues(self) -> tuple[str, ...]:
        """Active cues for logs: "name", or "scope/name" for a scope other than "*"."""
        return tuple(
            name if scope == EVERYWHERE else f"{scope}/{name}" for scope, names in self.active for name in names
        )

    @cached_property
    def digest(self) -> str:
        """16 hex digits over the active cues, their wording and a limit to tools; the version is left out."""
        active = {name for _, names in self.active for name in names} - wording()["cues"].keys()
        added = [astuple(catalogue()[name]) for name in sorted(active)]
        limited = [self.limit] if self.limit else []
        content = json.dumps([self.active, wording_digest(), *added, *limited], separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {"version": self.version, "cues": {scope: list(names) for scope, names in self.active}, **self.limit}

    @property
    def limit(self) -> dict[str, Any]:
        """The part of its JSON values that limits its schema cues to tools; {} without a limit."""
        return {} if self.tools is None else {"tools": list(self.tools), "others": self.others}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild an Omega; ValueError names the key that is missing, unknown or wrong."""
        read = _OmegaJson.read(data, "omega")
        return replace(cls.of(read.cues, read.version), tools=read.tools, others=read.others)
