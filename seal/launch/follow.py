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

from seal import exits
from seal.launch.errors import LaunchError
from seal.training.main import ENDED

POLL_S = 0.5
STAGES = {
    "validate": "validation: the trainer waits for the agent-loop workers, which wait for the rollout engine or the "
    "environment service",
    "train": "rollouts: the trainer waits for the agent-loop workers, which wait for the rollout engine or the "
    "environment service",
    "update": "log-probs and update: the trainer waits for the training workers",
    "save": "saving a checkpoint: the trainer waits for the training workers, which wait for the disk",
    "sync": "the weight sync: the training workers wait for the rollout engine to take the new weights",
}
"""What a run does in each stage, and who waits for whom."""
EXCEPTION = re.compile(r"\b((?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Failure|Exception|TooLong)): (\S.*)")
SHOWN_LABELS = 3


class JsonlTail:
    """The lines appended to a JSONL file since the last call."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            chunk = file.read()
        end = chunk.rfind(b"\n") + 1
        self._offset += end
        for line in chunk[:end].splitlines():
            yield json.loads(line)


class Deadline:
    """The time within which a run must come to its next stage or step."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._since = time.monotonic()
        self._stage: Mapping[str, Any] | None = None

    def passed_on(self, stage: Mapping[str, Any] | None = None) -> None:
        """Note that a stage begins, or that a step is done."""
        self._since = time.monotonic()
        self._stage = stage or self._stage

    def check(self, log: Path) -> None:
        """Raise LaunchError, saying who waits for whom, when the time is over."""
        if time.monotonic() - self._since <= self._seconds:
            return
        where = "its start"
        if self._stage is not None:
            where = f"step {self._stage['step']}, {STAGES.get(self._stage['stage'], self._stage['stage'])}"
        raise LaunchError(
            f"The run did not get on for {self._seconds:.0f} s (seal.step_deadline_s) in {where}. It was stopped; its "
            f"log is {log}. Start again to resume from the last checkpoint.",
            exits.INFRASTRUCTURE,
        )


def follow(run_dir: Path, log: Path, running: Callable[[], bool], *, deadline_s: float, console: Console) -> None:
    """Show a run's progress until `running` says that it has ended.

    Raises LaunchError when no stage begins and no step ends for `deadline_s`
    seconds.
    """
    stages = JsonlTail(run_dir / "seal_log" / "stages.jsonl")
    steps = JsonlTail(run_dir / "seal_log" / "steps.jsonl")
    deadline = Deadline(deadline_s)
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
                deadline.passed_on(stage)
                if stage["stage"] == "validate":
                    console.print(f"validating {stage['of']} tasks at step {stage['step']}")
                    progress.update(bar, description=f"validating {stage['of']} tasks", total=None)
                else:
                    description = f"step {stage['step']}: {stage['stage']}"
                    progress.update(bar, description=description, total=stage["of"], completed=stage["step"] - 1)
            for step in steps:
                deadline.passed_on()
                console.print(step_line(step), highlight=False)
                progress.update(bar, completed=step["step"])
            if ended:
                return
            ended = not running()
            if not ended:
                deadline.check(log)
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
    """Why a training process ended: what it said itself, else the last exception of its log."""
    reason = ""
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            _, said, text = line.partition(ENDED)
            if said:
                return text.strip()
            match = EXCEPTION.search(line)
            if match and not match.group(1).endswith("RayTaskError"):
                reason = f"{match.group(1).rsplit('.', 1)[-1]}: {match.group(2).strip()}"
    return reason or "the log names no exception"
