"""How hard successes and failures push: `python -m benchmarks.pushes CERTIFICATE...`, a row per run.

A success has a positive advantage, a failure a negative one. Sums are over all training trajectories of a run:
of A and of w A, and of the same times the trajectory's sampled tokens, as the token-mean loss counts them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seal.reweighting import sign_of
from shelf.lab.certificate.file import read


class Push(NamedTuple):
    """What one trajectory adds: its advantage, its weight and its sampled tokens."""

    advantage: float
    weight: float
    tokens: int


def pushes(path: Path) -> Iterator[Push]:
    """The training trajectories of a certificate whose advantage is not 0."""
    for record in read(path):
        if record.kind == "training" and (line := record.value)["advantage"]:
            yield Push(line["advantage"], line["w"], line["tokens"])


def row(path: Path) -> str:
    """A row of the table: mean weights by sign, sums of w A, and failures over successes, counted in both ways."""
    found = list(pushes(path))
    good, bad = ([each for each in found if sign_of(each.advantage) == sign] for sign in (1, -1))
    mean = [sum(each.weight for each in some) / len(some) for some in (good, bad)]
    summed = [sum(each.weight * each.advantage for each in some) for some in (good, bad)]
    plain = [sum(each.advantage * each.tokens for each in some) for some in (good, bad)]
    weighted = [sum(each.weight * each.advantage * each.tokens for each in some) for some in (good, bad)]
    ratios = [-failures / successes for successes, failures in (summed, plain, weighted)]
    cells = [f"{value:.2f}" for value in (*mean, *summed, *ratios)]
    return f"| {path.parent.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("certificates", nargs="+", type=Path)
    print("| run | w of successes | w of failures | sum of w A, successes | failures | ratio | by token: A | w A |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for path in parser.parse_args().certificates:
        print(row(path))


if __name__ == "__main__":
    main()
