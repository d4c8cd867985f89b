"""How hard successes and failures push: `python -m benchmarks.pushes FOLDER...`, a row per certified run.

FOLDER is a published experiment (benchmarks/NAME). A success has a positive advantage, a failure a negative one. Sums
are over all training trajectories of a run: of A and of w A, and of the same times the trajectory's sampled tokens, as
the token-mean loss counts them.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

from benchmarks.rollouts import Rollout, rollouts_of


def row(run: str, rollouts: Sequence[Rollout]) -> str:
    """A row of the table: mean weights by sign, sums of w A, and failures over successes, counted in both ways."""
    sides = [each for each in rollouts if each.advantage > 0], [each for each in rollouts if each.advantage < 0]
    weights = [fmean(each.w for each in side) for side in sides]
    summed = [sum(each.w * each.advantage for each in side) for side in sides]
    plain = [sum(each.advantage * each.tokens for each in side) for side in sides]
    weighted = [sum(each.w * each.advantage * each.tokens for each in side) for side in sides]
    ratios = [-failures / successes for successes, failures in (summed, plain, weighted)]
    return f"| {run} | {' | '.join(f'{value:.2f}' for value in (*weights, *summed, *ratios))} |"


def rows(folder: Path) -> Iterator[str]:
    """The rows of an experiment."""
    for run, rollouts in groupby(rollouts_of(folder), key=lambda rollout: rollout.run):
        yield row(run, tuple(rollouts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+", type=Path)
    print("| run | w of successes | w of failures | sum of w A, successes | failures | ratio | by token: A | w A |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for folder in parser.parse_args().experiments:
        for line in rows(folder):
            print(line)


if __name__ == "__main__":
    main()
