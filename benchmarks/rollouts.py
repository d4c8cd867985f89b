"""One line per rollout of an experiment's certified runs: `python -m benchmarks.rollouts benchmarks/NAME` writes it.

`rollouts.csv.gz` holds what the tables of the pages need of the certificates, which are not in the tree: of every
training rollout and of every rollout of the last validation the run, step, task, score, labels, advantage, weight and
sampled tokens, and whether its prompt held cues. `certificates.json` holds the digest of each certificate.
"""

import csv
import gzip
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from seal.system.files import replacing, write_json
from shelf.lab.certificate.file import read
from shelf.lab.experiment.matrix import DIGESTS

FILE = "rollouts.csv.gz"


class Rollout(NamedTuple):
    """One rollout. run: ARM-SEED; source: its data source; cues: whether it saw Omega.

    advantage, w: 0 in a validation. tokens: sampled ones. labels: one per user turn.
    """

    run: str
    step: int
    validation: bool
    source: str
    task: str
    cues: bool
    score: float
    advantage: float
    w: float
    tokens: int
    labels: tuple[str, ...]

    @classmethod
    def of(cls, run: str, line: dict[str, Any], validation: bool) -> Self:
        """A trajectory of a certificate, which infrastructure did not lose."""
        sees = line["omega_version"] is not None
        weighed = line["advantage"] or 0.0, line["w"] or 0.0
        names = line["step"], validation, line["data_source"], line["task_id"], sees
        return cls(run, *names, line["score"], *weighed, line["tokens"], tuple(line["labels"]))

    def row(self) -> tuple[Any, ...]:
        """The rollout as a row of the file."""
        flags = {"validation": int(self.validation), "cues": int(self.cues), "labels": " ".join(self.labels)}
        rounded = {name: f"{getattr(self, name):.7g}" for name in ("score", "advantage", "w")}
        return tuple(self._replace(**flags, **rounded))

    @classmethod
    def from_row(cls, row: list[str]) -> Self:
        """Read a row."""
        run, step, validation, source, task, cues, score, advantage, w, tokens, labels = row
        numbers = float(score), float(advantage), float(w), int(tokens)
        return cls(run, int(step), validation == "1", source, task, cues == "1", *numbers, tuple(labels.split()))


def certified(run: str, certificate: Path) -> tuple[list[Rollout], str]:
    """The rollouts of a certified run and the certificate's digest."""
    training, validation, digest = [], [], ""
    for record in read(certificate):
        digest = record.sha256
        if record.kind in ("training", "validation") and not (line := record.value)["infra"]:
            validates = record.kind == "validation"
            (validation if validates else training).append(Rollout.of(run, line, validates))
    last = max(each.step for each in validation)
    return [*training, *(each for each in validation if each.step == last)], digest


def write(rollouts: Iterable[Rollout], path: Path) -> None:
    """Write rollouts as compressed CSV; the same rollouts give the same bytes."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Rollout._fields)
    writer.writerows(each.row() for each in rollouts)
    with replacing(path) as draft:
        draft.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def rollouts_of(folder: Path) -> Iterator[Rollout]:
    """The rollouts of an experiment's certified runs, by run."""
    with gzip.open(folder / FILE, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        yield from map(Rollout.from_row, rows)


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        certificates = sorted((folder / "runs").glob("*/certificate.seal.gz"))
        made = {path.parent.name: certified(path.parent.name, path) for path in certificates}
        write((each for rollouts, _digest in made.values() for each in rollouts), folder / FILE)
        write_json({run: digest for run, (_rollouts, digest) in made.items()}, folder / DIGESTS)


if __name__ == "__main__":
    main()
