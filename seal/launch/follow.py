"""A training run as a person sees it: one line a step, a progress bar, and the reason when it fails."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from seal.launch.errors import LaunchError

POLL_S = 0.5
EXCEPTION = re.compile(r"\b((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Failure|Exception|TooLong)): (\S.*)")
SHOWN_LABELS = 3


class JsonlTail:
    """The lines appended to a JSONL file since the last call."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        if self._path.stat().st_size < self._offset:
            self._offset = 0  # the log was cut back to a checkpoint
        with self._path.open("rb") as file:
            file.seek(self._offset)
            chunk = file.read()
        end = chunk.rfind(b"\n") + 1
        self._offset += end
        for line in chunk[:end].splitlines():
            yield json.loads(line)


def follow(run_dir: Path, log: Path, running: Callable[[], bool], *, deadline_s: float, console: Console) -> None:
    """Show a run's progress until `running` says that it has ended.

    Raises LaunchError when neither a log line nor a step has come for
    `deadline_s` seconds.
    """
    stages = JsonlTail(run_dir / "seal_log" / "stages.jsonl")
    steps = JsonlTail(run_dir / "seal_log" / "steps.jsonl")
    alive, size = time.monotonic(), -1
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting Ray, the trainer and the rollout engine", total=None)
        ended = False
        while True:
            for stage in stages:
                alive = time.monotonic()
                if stage["stage"] == "validate":
                    console.print(f"validating {stage['of']} tasks at step {stage['step']}")
                    progress.update(bar, description=f"validating {stage['of']} tasks", total=None)
                else:
                    progress.update(
                        bar, description=f"step {stage['step']}", total=stage["of"], completed=stage["step"] - 1
                    )
            for step in steps:
                alive = time.monotonic()
                console.print(step_line(step), highlight=False)
                progress.update(bar, completed=step["step"])
            if ended:
                return
            ended = not running()
            written = log.stat().st_size if log.exists() else 0
            if written != size:
                alive, size = time.monotonic(), written
            if time.monotonic() - alive > deadline_s:
                raise LaunchError(
                    f"The training process gave no sign of life for {deadline_s:.0f} s (seal.step_deadline_s); it was "
                    f"stopped. Its last words are in {log}; start again to resume from the last checkpoint."
                )
            time.sleep(POLL_S)


def step_line(step: Mapping[str, Any]) -> str:
    """One step for the console: reward, spread, commonest labels, w, cues and seconds."""
    shares = sorted(step["label_shares"].items(), key=lambda item: -item[1])[:SHOWN_LABELS]
    labels = " ".join(f"{label} {share:.0%}" for label, share in shares)
    reward = "-" if step["reward_mean"] is None else f"{step['reward_mean']:.3f}"
    weight = f"w {step['w']['mean']:.2f}" if step["w"] else "w -"
    cues = f"cues {len(step['omega']['cues'])}" if step["omega"] else "no Omega"
    seconds = step["seconds"]
    stages = " ".join(
        f"{name} {seconds[key]:.0f}" for name, key in (("gen", "gen"), ("update", "update_actor")) if key in seconds
    )
    lost = f" [red]infra {sum(step['infra'].values())}[/red]" if step["infra"] else ""
    return (
        f"step {step['step']:>4}  reward {reward}  spread {step['groups_with_spread']}  {labels}  {weight}  {cues}  "
        f"{seconds.get('step', 0):.0f} s ({stages}){lost}"
    )


def failure_reason(log: Path) -> str:
    """The exception that ended a training process, from its log."""
    reason = ""
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            match = EXCEPTION.search(line)
            if match and not match.group(1).endswith("RayTaskError"):
                reason = f"{match.group(1).rsplit('.', 1)[-1]}: {match.group(2).strip()}"
    return reason or "the log names no exception"
