"""The trajectories of a run's folder as traces."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seal.jsonl import step_files
from seal.records.folder import RunFolder
from seal.records.validation import read_log
from seal.trace.otlp import traces_data
from seal.trace.spans import spans


def traces(run: Path, steps: frozenset[int] = frozenset(), *, validations: bool = True) -> Iterator[dict[str, Any]]:
    """One OTLP `TracesData` per trajectory: training steps first, then validations, ascending.

    steps: only these, all without any. ValueError for a folder without trajectories, or
    with a line that cannot be read.
    """
    folder = RunFolder(run)
    files = step_files(folder.trajectories) + (step_files(folder.validations) if validations else [])
    chosen = [path for step, path in files if not steps or step in steps]
    if not chosen:
        asked = f" of step {', '.join(map(str, sorted(steps)))}" if steps else ""
        raise ValueError(f"{run} holds no trajectories{asked}: name a run (experiments/NAME).")
    name = run.resolve().name
    for path in chosen:
        for record in read_log(path).without_bad():
            yield traces_data(spans(record, name), name)
