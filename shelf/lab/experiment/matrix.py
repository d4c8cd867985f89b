"""The runs of an experiment, the files of its folder, and its registration at the start of the first run."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from seal.records.folder import RunFolder
from seal.system.errors import LaunchError
from seal.system.files import file_sha256, text_sha256, write_jsonl
from seal.system.paths import HOME
from shelf.lab.experiment.design import Design, parse_design
from shelf.lab.experiment.records import RunResult, read_results

REGISTRATION = "registration.json"


class Registration(BaseModel):
    """The file of an experiment as it was when its first run started. tasks: sha256 of its outcomes' lists, by path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[2]
    time: str
    sha256: str
    text: str
    tasks: dict[str, str] = {}

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the registration in an experiment's folder; None before the first run. LaunchError if unreadable."""
        path = folder / REGISTRATION
        if not path.is_file():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise LaunchError(f"{path} cannot be read: restore it, or remove {path.parent} to start over.") from error

    @classmethod
    def ensure(cls, folder: Path, text: str) -> Self:
        """Return the registration; register this text if there is none."""
        if registered := cls.read(folder):
            return registered
        known = {"sha256": text_sha256(text), "text": text, "tasks": _lists(parse_design(text, "the file"))}
        now = cls(format=2, time=time.strftime("%Y-%m-%d %H:%M:%S%z"), **known)
        write_jsonl([now.model_dump()], folder / REGISTRATION)
        return now

    @property
    def design(self) -> Design:
        """The registered design; LaunchError if this version cannot read it."""
        return parse_design(self.text, "the registered file")

    def changes(self, text: str) -> tuple[str, ...]:
        """The keys that now differ in the file, and the lists of tasks that do; empty if nothing differs."""
        read = _lists(self.design)
        lists = tuple(f"the list {path}" for path, was in self.tasks.items() if read.get(path) != was)
        if text_sha256(text) == self.sha256:
            return lists
        was, now = self.design.model_dump(), parse_design(text, "the file").model_dump()
        return (*(key for key in now if was[key] != now[key]), *lists) or ("only comments or layout",)


def _lists(design: Design) -> dict[str, str]:
    paths = {each.tasks: HOME / each.tasks for each in design.outcomes if each.tasks}
    return {name: file_sha256(path) for name, path in paths.items() if path.is_file()}


class Cell(NamedTuple):
    """One run of the matrix."""

    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}-{self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A design and its folder, which may not exist yet.

    source: the file of the design, or the folder. text: the content of the file, or what the folder has registered.
    """

    design: Design
    source: Path
    text: str

    @classmethod
    def read(cls, source: Path) -> Self:
        """The experiment of a file, or of a folder with its registration and its results.

        LaunchError with one sentence for the first error.
        """
        if source.is_dir():
            registered = Registration.read(source)
            if registered is None:
                raise LaunchError(f"{source} holds no {REGISTRATION}: name an experiment's file or its folder.")
            return cls(registered.design, source, registered.text)
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise LaunchError(f"{source} cannot be read ({reason}): name the file of an experiment.") from error
        return cls(parse_design(text, str(source)), source, text)

    @property
    def folder(self) -> Path:
        # Absolute, because the launcher of a run works in HOME.
        return self.source.absolute() if self.source.is_dir() else HOME / self.design.folder / self.design.name

    @property
    def has_runs(self) -> bool:
        """False if the folder holds at most results: a repository keeps the figures, not the logs."""
        return (self.folder / "runs").is_dir()

    @property
    def lock(self) -> Path:
        """The lock, which one process at a time holds."""
        return self.folder / "experiment.lock"

    @property
    def attempts(self) -> Path:
        """One line for each start of a run."""
        return self.folder / "attempts.jsonl"

    @property
    def results(self) -> Path:
        """The results of all finished runs, one line each."""
        return self.folder / "results.jsonl.gz"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs, seed by seed, so that arms can be compared before all seeds have run."""
        arms = [(arm, self.design.seeds_of(arm)) for arm in self.design.arms]
        seeds = sorted({seed for _arm, own in arms for seed in own})
        return tuple(Cell(arm, seed) for seed in seeds for arm, own in arms if seed in own)

    def configuration(self, arm: str) -> Path:
        """The file with the composed configuration of an arm at the start of its first run."""
        return self.folder / "configurations" / f"{arm}.yaml"

    def run(self, cell: Cell) -> RunFolder:
        """The folder of a run."""
        return RunFolder(self.folder / "runs" / str(cell))

    def result(self, cell: Cell) -> Path:
        """The result of a run; a run that has one is finished."""
        return self.run(cell).path / "result.json"

    def log(self, cell: Cell) -> Path:
        """The file with the output of a run's launcher."""
        return self.folder / "launcher_logs" / f"{cell}.log"

    def run_name(self, cell: Cell) -> str:
        """trainer.experiment_name of a run."""
        return f"{self.design.name}-{cell}"

    def overrides(self, arm: str) -> tuple[str, ...]:
        """The overrides of an arm that do not depend on its seed."""
        return (*self.design.overrides, *self.design.arms[arm].overrides)

    def own_overrides(self, cell: Cell) -> tuple[str, ...]:
        """The overrides that the experiment sets for one run: seed, name and folder."""
        return (
            f"seal.seed={cell.seed}",
            f"trainer.experiment_name={self.run_name(cell)}",
            f"seal.run_dir={self.run(cell).path}",
        )

    def finished(self) -> Iterator[tuple[Cell, RunResult]]:
        """The finished runs of the matrix with their results; LaunchError for a result that cannot be read.

        Results of runs whose folders are in another clone come from the file with all results.
        """
        kept = self.kept()
        for cell in self.cells:
            if (path := self.result(cell)).is_file():
                yield cell, _read(path)
            elif cell in kept:
                yield cell, kept[cell]

    def kept(self) -> dict[Cell, RunResult]:
        """The results in the file with all results, also those of runs that the matrix no longer has."""
        if not self.results.is_file():
            return {}
        results, bad = read_results(self.results)
        if bad:
            raise LaunchError(f"{bad[0]}: restore {self.results}.")
        return {Cell(result.arm, result.seed): result for result in results}


def _read(path: Path) -> RunResult:
    results, bad = read_results(path)
    if bad or len(results) != 1:
        reason = str(bad[0]) if bad else f"{path} holds {len(results)} results instead of one"
        raise LaunchError(f"{reason}: remove the folder {path.parent}.")
    return results[0]
