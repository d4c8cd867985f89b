"""Omega, the learning interface as a value, and what it adds to observations.

The paper's section 3.3: ``o~ = o + phi_schema(F) + phi_err(o, H) + phi_cap(C)``. An
:class:`Omega` says which cues are on, for every task or for one category; the
wording lives in ``cues.toml``. Nothing here sees the reference of a task: the
functions read the observation, the public documents of the tools and the
policy's own failed action, so a cue can tell no more than these.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

from seal.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.interface.errors import error_class
from seal.interface.schema_cue import arguments_line, compact_schema, full_schema

EVERYWHERE = "*"
"""The scope for tasks of every category that has no scope of its own."""

_MAX_DETAILS = 6
_COMPACT_DETAIL = 80


@dataclass(frozen=True)
class Cue:
    """One cue: where it speaks (schema, feedback, guideline), its label and wording."""

    name: str
    kind: str
    label: str
    text: str
    compact: str


@lru_cache(maxsize=1)
def _data() -> tuple[Mapping[str, Any], str]:
    source = resources.files("seal.interface").joinpath("cues.toml").read_bytes()
    return tomllib.loads(source.decode()), hashlib.sha256(source).hexdigest()


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Cue]:
    """All cues by name, in the order of the data file."""
    return {
        name: Cue(name, d["kind"], d["label"], d["text"], d.get("compact", ""))
        for name, d in _data()[0]["cues"].items()
    }


@lru_cache(maxsize=1)
def _errors() -> Mapping[str, Mapping[str, str]]:
    return _data()[0]["errors"]


def wording() -> tuple[str, ...]:
    """Every text of the data file: what cues say of themselves, whatever the task."""
    texts = [text for cue in catalogue().values() for text in (cue.text, cue.compact)]
    return (*texts, *(error[size] for error in _errors().values() for size in ("text", "compact")))


@dataclass(frozen=True)
class Omega:
    """Omega_t: the cues that are on, by scope. Hashable, immutable.

    A scope is a category, whose own entry then decides for its tasks, or "*" for all
    categories without one. ``active`` is sorted (scope, cue names) pairs; build it with
    :meth:`of`. ``version`` counts the changes of a run. An Omega without cues does
    nothing; it still marks its episode as one of training.
    """

    version: int = 0
    active: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, cues: Iterable[str] | Mapping[str, Iterable[str]] = (), version: int = 0) -> Omega:
        """An Omega from cue names (for all categories) or from {scope: cue names}.

        Raises ValueError for a cue that does not exist.
        """
        by_scope = cues if isinstance(cues, Mapping) else {EVERYWHERE: cues}
        order = list(catalogue())
        active = []
        for scope in sorted(by_scope):
            names = set(by_scope[scope])
            if unknown := sorted(names - set(order)):
                raise ValueError(f"unknown cue {unknown[0]!r} for {scope!r}; known cues: {', '.join(order)}")
            if names or scope != EVERYWHERE:
                active.append((scope, tuple(sorted(names, key=order.index))))
        return cls(version, tuple(active))

    def by_scope(self) -> dict[str, tuple[str, ...]]:
        """Active cue names by scope."""
        return dict(self.active)

    def for_category(self, category: str) -> tuple[str, ...]:
        """Cues that hold for a task of this category, in the order of the catalogue."""
        scopes = self.by_scope()
        return scopes[category] if category in scopes else scopes.get(EVERYWHERE, ())

    @property
    def cues(self) -> tuple[str, ...]:
        """Active cues for logs: "name", or "category/name" where they hold in one category only."""
        return tuple(
            name if scope == EVERYWHERE else f"{scope}/{name}" for scope, names in self.active for name in names
        )

    @cached_property
    def digest(self) -> str:
        """16 hex digits over the active cues and their wording; the version is left out."""
        content = json.dumps([self.active, _data()[1]], separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; the inverse of :meth:`from_json`."""
        return {"version": self.version, "cues": {scope: list(names) for scope, names in self.active}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Omega:
        """Rebuild an Omega; ValueError names the key that is missing, unknown or wrong."""
        if not isinstance(data, Mapping):
            raise ValueError("omega: expected an object with the keys version and cues")
        for key in sorted(set(map(str, data)) - {"version", "cues"}):
            raise ValueError(f"omega: unknown key {key!r}; it has the keys version and cues")
        version = data.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise ValueError(f"omega: version must be a whole number from 0, got {version!r}")
        cues = data.get("cues")
        if not isinstance(cues, Mapping):
            raise ValueError("omega: cues must be an object of {scope: [cue name, ...]}")
        for scope, names in cues.items():
            if (
                not isinstance(scope, str)
                or not isinstance(names, list | tuple)
                or not all(isinstance(n, str) for n in names)
            ):
                raise ValueError(f"omega: cues[{scope!r}] must be a list of cue names")
        try:
            return cls.of(cues, version)
        except ValueError as error:
            raise ValueError(f"omega: cues: {error}") from None


def observe_start(content: str, tools: Sequence[Mapping[str, Any]], omega: Omega, category: str, compact: bool) -> str:
    """The system text with phi_schema(F) and phi_cap(C) added at its end.

    ``tools`` are the documents of the tools visible now. ``compact`` is the very short
    rendering. Without an active cue the text comes back unchanged.
    """
    cues = [catalogue()[name] for name in omega.for_category(category)]
    schema = [cue for cue in cues if cue.kind == "schema"]
    guidelines = [cue for cue in cues if cue.kind == "guideline"]
    names = {cue.name for cue in schema}
    if compact:
        parts = [compact_schema(tools, names)] if names else []
        parts += [cue.compact for cue in (*schema, *guidelines) if cue.compact]
        return _join(content, [part for part in parts if part], "\n")
    parts = []
    if schema:
        parts.append("# Notes on the tools\n" + "\n".join((*(cue.text for cue in schema), *full_schema(tools, names))))
    if guidelines:
        parts.append("# Advice\n" + "\n".join(f"- {cue.text}" for cue in guidelines))
    return _join(content, parts, "\n\n")


def observe_reveal(content: str, tools: Sequence[Mapping[str, Any]], omega: Omega, category: str, compact: bool) -> str:
    """The message that announces new tools with phi_schema of these ``tools`` added at its end."""
    names = {name for name in omega.for_category(category) if catalogue()[name].kind == "schema"}
    lines = [compact_schema(tools, names)] if compact else full_schema(tools, names)
    return _join(content, [line for line in lines if line], "\n")


def observe_feedback(
    content: str,
    failure: ActionEvidence,
    tools: Sequence[Mapping[str, Any]],
    omega: Omega,
    category: str,
    compact: bool,
) -> str:
    """The answer to a failed action with phi_err(o, H) added at its end.

    ``content`` is the observation as the benchmark sends it, ``failure`` the policy's
    message with its errors. Unchanged when the action did not fail or no cue is on.
    """
    cues = [catalogue()[name] for name in omega.for_category(category)]
    cues = [cue for cue in cues if cue.kind == "feedback"]
    if not cues or not failure.failed:
        return content
    values = {"problems": _problems(failure, tools, compact), "tools": _tool_names(failure, tools, compact)}
    order = ("feedback_error", "feedback_tools", "feedback_answer")
    cues.sort(key=lambda cue: order.index(cue.name) if cue.name in order else len(order))
    texts = [_fill(cue.compact if compact else cue.text, values) for cue in cues if _speaks(cue, values)]
    return _join(content, [" ".join(texts)], "\n") if texts else content


def _join(content: str, parts: Sequence[str], between: str) -> str:
    return between.join((content, *parts))


def _speaks(cue: Cue, values: Mapping[str, str]) -> bool:
    return all(value for key, value in values.items() if "{" + key + "}" in cue.text)


def _fill(template: str, values: Mapping[str, str]) -> str:
    # Not str.format: values hold the policy's own text, braces included.
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)


def _problems(failure: ActionEvidence, tools: Sequence[Mapping[str, Any]], compact: bool) -> str:
    documents = {document["name"]: document for document in tools}
    found = []
    if failure.refusals:
        found.append(_problem("truncated" if failure.truncated else "parse", "", "", compact))
    for call in failure.calls:
        if call.failed:
            found.append(_call_problem(call, documents.get(call.name), compact))
    unique = list(dict.fromkeys(found))
    return " ".join(unique[:1] if compact else unique[:_MAX_DETAILS])


def _call_problem(call: CallEvidence, document: Mapping[str, Any] | None, compact: bool) -> str:
    if not call.available or call.error == "unavailable" or document is None:
        return _problem("unavailable", call.name, "", compact)
    if call.violations:
        messages = [violation.message for violation in call.violations]
        detail = _clip(messages[0], _COMPACT_DETAIL) if compact else "; ".join(messages[:_MAX_DETAILS])
        return _problem("schema", call.name, detail, compact)
    if call.error == "signature":
        return _problem("signature", call.name, arguments_line(document), compact)
    if call.error == "deadline":
        return _problem("deadline", call.name, "", compact)
    return _problem(error_class(call.result), call.name, "", compact)


def _problem(kind: str, name: str, detail: str, compact: bool) -> str:
    return _fill(_errors()[kind]["compact" if compact else "text"], {"detail": detail, "name": name[:64]})


def _clip(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "..."


def _tool_names(failure: ActionEvidence, tools: Sequence[Mapping[str, Any]], compact: bool) -> str:
    if not any(not call.available or call.error == "unavailable" for call in failure.calls):
        return ""
    names = [document["name"] for document in tools]
    if not compact:
        return ", ".join(names)
    # A small context has no room for the whole list that its system text already holds.
    asked = next(call.name for call in failure.calls if not call.available or call.error == "unavailable")
    return " ".join(sorted(names, key=lambda name: (-SequenceMatcher(None, name, asked).ratio(), name))[:5])
