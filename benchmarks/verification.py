"""How fast `seal verify` checks a certificate: `python -m benchmarks.verification [FILE]`.

Without a FILE it is one step of a real quickstart, 64 trajectories, repeated: each time the
closed loop weighs them anew, and the cues stay off, since they would have changed the dialogues.
"""

import argparse
import copy
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from seal.records.trajectory import TrajectoryRecord
from seal.system.paths import HOME
from seal.training.closed_loop import ClosedLoop, weighed
from seal.training.group import mark_groups
from shelf.lab.certificate.file import read, write
from shelf.lab.certificate.findings import Findings
from shelf.lab.certificate.launches import Launch
from shelf.lab.certificate.verify import verify

STEP = HOME / "tests" / "certificate" / "quickstart.seal.gz"
NEVER = {"min_count": 10**9}
"""Settings of the evolution of cues under which none comes on."""


def repeated(times: int) -> Iterator[tuple[str, Any]]:
    """The records of a certificate of `times` steps, each with the trajectories of the real one."""
    contents = [(record.kind, record.value) for record in read(STEP)]
    facts = copy.deepcopy(next(value for kind, value in contents if kind == "launch"))
    facts["config"]["seal"]["interface"]["evolve"] |= NEVER
    launch = Launch.of(facts)
    played = [TrajectoryRecord.from_line(value) for kind, value in contents if kind == "training"]
    yield "head", next(value for kind, value in contents if kind == "head")
    yield "launch", facts
    loop = ClosedLoop(launch.settings)
    groups = mark_groups([str(number // launch.samples) for number in range(len(played))], played)
    signs = [(record.advantage > 0) - (record.advantage < 0) for record in played]
    for step in range(1, times + 1):
        records = [replace(record, step=step) for record in played]
        weights, report = loop.step(step, records, groups, signs)
        for record in weighed(records, groups, [record.advantage for record in played], weights):
            yield "training", record.line()
        lines = report.with_figures(seconds={}, seal_seconds=0.0, logp_diff_max=0.0, logp_diff_mean=0.0).lines()
        yield "step", {"step": step, "launch": 0, **lines}
    yield "end", {"trajectories": times * len(played)}


def measure(file: Path, processes: int) -> None:
    """Verify a certificate and print how long it took; SystemExit if it does not hold."""
    began, before = time.perf_counter(), os.times()
    found: Findings = verify(file, processes=processes)
    seconds, after = time.perf_counter() - began, os.times()
    if not found.holds:
        raise SystemExit(str(found.disagreements[0]))
    own = after.user + after.system - before.user - before.system
    others = after.children_user + after.children_system - before.children_user - before.children_system
    number, size = found.trajectories, file.stat().st_size
    print(f"{number:,} trajectories, {size / 1e6:.1f} MB, {processes} processes: {seconds:.1f} s")
    print(f"processor time: {own:.1f} s here, {others:.1f} s in the replaying processes, which includes their start;")
    print(f"{1000 * own / number:.2f} ms and {1000 * others / number:.2f} ms per trajectory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="a certificate (seal certify RUN)")
    parser.add_argument("--steps", type=int, default=313, help="how often the step is repeated without a FILE")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.file is not None:
        measure(arguments.file, arguments.processes)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "repeated.seal.gz"
        write(repeated(arguments.steps), file)
        measure(file, arguments.processes)


if __name__ == "__main__":
    main()
