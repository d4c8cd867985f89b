"""Seconds of each stage of a start, in one checkout or two side by side: `python -m benchmarks.start BEFORE [AFTER]`.

Each checkout has an environment of its own (`make setup` there). Three times in turns each of them launches
exp/quickstart.yaml without a validation, and is stopped when the first step's trajectories are there. Prints the
medians of the seconds and of the memory in use by all processes, and the second checkout's as a share of the first's.
A commit without `seal_log/start.jsonl` has one stage, the whole start. Run it on a quiet machine.
"""

import argparse
import shutil
import signal
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from benchmarks.memory import PeakMemory
from seal.launch.follow import JsonlTail
from seal.records.folder import READY, RunFolder
from seal.system.net import free_port
from seal.system.processes import start, stop_tree
from shelf.statistics.tables import table

OVERRIDES = ("trainer.val_before_train=false", "trainer.total_training_steps=1", "trainer.test_freq=-1")
NAME = "start_benchmark"
DEADLINE_S = 600
ROLLOUTS, WHOLE, MEMORY = "first rollouts", "command to first trajectories", "memory, GiB"


def measured(checkout: Path, overrides: Sequence[str] = ()) -> dict[str, float]:
    """Seconds by stage of one start, and the largest memory in GiB; RuntimeError if it ends or takes too long."""
    folder = RunFolder(checkout / "experiments" / NAME)
    shutil.rmtree(folder.path, ignore_errors=True)
    port = f"env_service.env_url=http://127.0.0.1:{free_port()}"
    keys = (f"trainer.experiment_name={NAME}", port, *OVERRIDES, *overrides)
    command = [".venv/bin/python", "launcher.py", "--conf", "exp/quickstart.yaml", "--with-bfcl", "--", *keys]
    began, output = time.time(), folder.path.parent / f"{NAME}.log"
    output.unlink(missing_ok=True)
    launcher = start(command, log=output, cwd=checkout, env={})
    try:
        with PeakMemory(launcher.pid, "cpu") as memory:
            stages = []
            tail = JsonlTail(folder.stages, 0)
            while not any(line["stage"] == "update" for line in stages):
                if launcher.poll() is not None or time.time() - began > DEADLINE_S:
                    raise RuntimeError(f"{checkout} has no trajectories: {output} says why.")
                time.sleep(0.2)
                stages += tail
    finally:
        launcher.send_signal(signal.SIGINT)
        stop_tree(launcher, grace_s=60)
    ends = {line["stage"]: line["time"] for line in reversed(stages)}
    named = [(line["stage"], line["time"]) for line in JsonlTail(folder.start, 0)] or [("start", began)]
    named = [each for each in named if each[0] != READY] + [(ROLLOUTS, ends["train"]), ("end", ends["update"])]
    seconds = {name: after - at for (name, at), (_, after) in pairwise(named)}
    return {**seconds, WHOLE: ends["update"] - began, MEMORY: memory.peak.gib or 0.0}


def main(words: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args(words)
    runs = [[measured(checkout.resolve()) for checkout in given.checkouts] for _ in range(given.runs)]
    columns = [list(column) for column in zip(*runs, strict=True)]
    names = dict.fromkeys(name for column in columns[::-1] for run in column for name in run)
    shown = table("Seconds of a start, median (range)", ["stage", *map(str, given.checkouts), "ratio"])
    for name in names:
        values = [[run[name] for run in column if name in run] for column in columns]
        medians = [statistics.median(each) if each else None for each in values]
        cells = [f"{statistics.median(each):.1f} ({min(each):.1f}-{max(each):.1f})" if each else "-" for each in values]
        ratio = f"{medians[-1] / medians[0]:.2f}" if len(medians) > 1 and None not in medians else ""
        shown.add_row(name, *cells, ratio)
    Console().print(shown)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
