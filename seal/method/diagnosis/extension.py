"""Extensions: what a package adds to the method, read and checked (docs/extend.md)."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from seal.method import labels
from seal.method.diagnosis.evidence import TurnEvidence

EXTENSIONS = "seal.extensions"
"""The entry points of packages: each is an `Extension` under the name that recipes choose."""

OURS = ("paper", "release")
"""The names of SEAL's own taxonomies."""

PLACEHOLDERS = {
    "schema": ("call_format", "answer_format"),
    "guideline": ("call_format", "answer_format"),
    "feedback": ("call_format", "answer_format", "problems", "history", "tools"),
}
"""The placeholders that a cue of each kind may have."""


@dataclass(frozen=True)
class Rule:
    """One rule: ``test`` returns a one-line reason when the label's signal is present."""

    name: str
    label: str
    test: Callable[[TurnEvidence], str | None]


@dataclass(frozen=True)
class Extension:
    """A taxonomy, the labels that turns can get, and what a run does with them.

    rules: in order of priority. cues: entries as in `cues.toml`, by name. weigh: a trajectory's
    weight before it is clipped, from its counted labels and rho; None: the mean utility. reward: the
    reward of an evaluated training trajectory, in [0, 1]; None: as `seal.reward` says. name: the name of
    its entry point, by which recipes choose it.
    """

    rules: tuple[Rule, ...]
    cues: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    weigh: Callable[[Sequence[str], Mapping[str, float]], float] | None = None
    reward: Callable[[Mapping[str, Any]], float] | None = None
    name: str = ""

    @property
    def counted(self) -> tuple[str, ...]:
        """The labels that turns can get and that count, in the order of the rules."""
        return tuple(dict.fromkeys(rule.label for rule in self.rules if rule.label not in labels.EXCLUDED))

    @property
    def failures(self) -> frozenset[str]:
        """The counted labels that mark a failure."""
        return frozenset(label for label in self.counted if not labels.get(label).success)

    def check(self) -> None:
        """Raise a ValueError that names the first part that no run could use."""
        for rule in self.rules:
            labels.get(rule.label)
            _require_call(rule.test, 1, f"the test of the rule {rule.name!r}", "the evidence of a turn")
        for name, cue in self.cues.items():
            _check_cue(name, cue)
        _require_call(self.weigh, 2, "weigh", "the labels of a trajectory and rho")
        _require_call(self.reward, 1, "reward", "an evaluation")


def _check_cue(name: str, cue: Mapping[str, str]) -> None:
    if missing := [key for key in ("kind", "label", "text") if key not in cue]:
        raise ValueError(f"the cue {name!r} has no {missing[0]}")
    if cue["kind"] not in PLACEHOLDERS:
        raise ValueError(f"the cue {name!r} is of kind {cue['kind']!r}; choose one of: {', '.join(PLACEHOLDERS)}")
    labels.get(cue["label"])
    known = PLACEHOLDERS[cue["kind"]]
    for size in ("text", "compact"):
        for placeholder in re.findall(r"\{(\w+)\}", cue.get(size, "")):
            if placeholder not in known:
                raise ValueError(
                    f"the {size} of the cue {name!r} has {{{placeholder}}}, which nothing fills in; a {cue['kind']} "
                    f"cue may have {', '.join(f'{{{each}}}' for each in known)}"
                )


def _require_call(function: Callable[..., Any] | None, arguments: int, name: str, takes: str) -> None:
    """ValueError unless the function can be called with that number of arguments."""
    if function is None:
        return
    signature = inspect.signature(function)
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        raise ValueError(f"{name} has the signature {signature}; it gets {takes}") from error


@cache
def installed() -> Mapping[str, EntryPoint]:
    """The extensions of installed packages, by name, without those that take a name of OURS."""
    return {point.name: point for point in entry_points(group=EXTENSIONS) if point.name not in OURS}


def load(name: str) -> Extension:
    """Import and check an installed extension; ValueError, with its place, for one that cannot be used."""
    point = installed()[name]
    place = f"the extension {name!r} ({point.value})"
    try:
        found = point.load()
    except (Exception, SystemExit) as error:  # the module can be any code
        raise ValueError(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Extension):
        raise ValueError(f"{place} is not an Extension of seal.method.diagnosis.rules")
    try:
        found.check()
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # its parts can be anything
        raise ValueError(f"{place}: {error}") from error
    return replace(found, name=name)


def extension_file(name: str) -> Path | None:
    """The module of an installed package that has the extension; None for a taxonomy of ours."""
    return Path(str(import_module(installed()[name].module).__file__)) if name in installed() else None
