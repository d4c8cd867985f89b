"""The private and undocumented names of other libraries that SEAL uses, with what it expects of them.

`seal/backends/internals.toml` holds the list; `changes` compares it with the installed packages.
"""

import inspect
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from seal.system.paths import HOME

LIST = HOME / "seal" / "backends" / "internals.toml"


@dataclass(frozen=True)
class Internal:
    """One name of another library.

    name: `MODULE:OBJECT`; the object of an assumption may be a description.
    use: a method that SEAL overrides; an object that it replaces at run time; one
    that it calls; a name, format or value that it assumes. Exactly one
    expectation: signature without annotations, source that the module's file
    holds, or abstract, the abstract methods of a class. where: files of SEAL.
    until: when the entry can go.
    """

    name: str
    use: Literal["overridden", "replaced", "called", "assumed"]
    where: tuple[str, ...]
    why: str
    until: str
    signature: str | None = None
    source: str | None = None
    abstract: tuple[str, ...] | None = None

    @property
    def module(self) -> str:
        return self.name.partition(":")[0]

    @property
    def target(self) -> str:
        return self.name.partition(":")[2]

    def change(self) -> str | None:
        """Return one sentence on what the installed package does differently, None for nothing."""
        return next(self._changes(), None)

    def _changes(self) -> Iterator[str]:
        files = f"see {', '.join(self.where)}"
        if self.source is not None:
            text = _source(self.module)
            if text is None:
                yield f"{self.module} does not exist any more: {files}."
            elif self.source not in text:
                yield f"{self.module} does not hold `{self.source.strip()}` any more: {files}."
            return
        try:
            found = self._resolve()
        except (ImportError, AttributeError):
            yield f"{self.name} does not exist any more: {files}."
            return
        if self.abstract is not None:
            names = sorted(found.__abstractmethods__)
            if names != sorted(self.abstract):
                differing = ", ".join(sorted(set(names) ^ set(self.abstract)))
                yield f"{self.name} has other abstract methods than expected ({differing}): {files}."
        elif (signature := signature_of(found)) != self.signature:
            yield f"{self.name} is now {signature} and was {self.signature}: {files}."

    def _resolve(self) -> Any:
        found: Any = import_module(self.module)
        for part in self.target.split("."):
            found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
        return getattr(found, "__func__", found)  # a class method's signature keeps its `cls`


def signature_of(function: Any) -> str:
    """Return the signature of a function without its annotations."""
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


@cache
def internals() -> tuple[Internal, ...]:
    """Return the list, in the order of the file."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["internal"]
    return tuple(
        Internal(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
        for entry in entries
    )


@cache
def versions() -> dict[str, tuple[str, ...]]:
    """Return the versions of each library that the list was checked against."""
    return {name: tuple(known) for name, known in tomllib.loads(LIST.read_text(encoding="utf-8"))["versions"].items()}


def changes() -> list[str]:
    """Return one sentence per difference between the list and the installed packages."""
    found = [change for internal in internals() if (change := internal.change()) is not None]
    for name, known in versions().items():
        installed = version(name).partition("+")[0]
        if installed not in known:
            found.append(f"{name} is {installed} and the list was checked against {' and '.join(known)}.")
    return found


def _source(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).read_text(encoding="utf-8")
