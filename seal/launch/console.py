"""A run on the console: the stages of its start, one line per step, and the live line; read from the run's logs."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from seal.method.labels import PASS
from seal.records.folder import FIRST, READY, START, RunFolder
from seal.records.step import PATIENCE, StepRecord, harness_warnings, nothing_learnt, read_steps

PLAIN_S = 30.0  # seconds between two lines on how many prompts are played, if no line is live
ROLLOUT = "the trainer waits for the agent-loop workers, which wait for the rollout engine or the environment service"
STAGES = {
    "validate": f"validation: {ROLLOUT}",
    "train": f"rollouts: {ROLLOUT}",
    "update": "log-probs and update: the trainer waits for the training workers",
    "save": "saving a checkpoint: the trainer waits for the training workers, which wait for the disk",
    "sync": "the weight sync: the training workers wait for the rollout engine to take the new weights",
}
"""The activity of a run by stage, and who waits for whom."""
WIDTH = 80
"""Characters of a step's line at most: a terminal's."""
WARNING = "[yellow]warning:[/yellow] "


def tell(console: Console, text: str, mark: str = "") -> None:
    """Print a sentence on one line; mark: rich's markup before it."""
    console.print(mark + escape(text), highlight=False, soft_wrap=True)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class JsonlTail:
    """The lines appended to a JSONL file since the last call; offset: where the first one starts, else the end."""

    def __init__(self, path: Path, offset: int | None = None):
        self._path = path
        self._offset = size_of(path) if offset is None else offset

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                lines, newline, _ = file.read().rpartition(b"\n")
            self._offset += len(lines) + len(newline)
            yield from map(json.loads, lines.splitlines())


class Shown:
    """A run on the console: the stages of its start with their seconds, validations, steps, and a live line.

    moved: when a stage began or a step ended, as time.monotonic() counts. where: the stage, and who waits for whom.
    """

    def __init__(self, folder: RunFolder, console: Console, progress: Progress):
        self._folder, self._console, self._progress = folder, console, progress
        self._bar = progress.add_task("starting", total=None)
        self._stages, self._steps = JsonlTail(folder.stages), JsonlTail(folder.steps)
        self._starts = JsonlTail(folder.start, 0)
        self.moved = self._said = time.monotonic()
        self.where = "its start"
        self._warned: set[str] = set()
        self._begun: dict[str, Any] | None = None
        earlier = [*self._starts]
        launched = max((place for place, line in enumerate(earlier) if line["stage"] == FIRST), default=0)
        for line in earlier[launched:]:
            self._start(line)

    def update(self) -> None:
        """Show what was added to the run's logs since the last call."""
        for line in self._starts:
            self._start(line)
        for line in self._stages:
            self._stage(line)
        for step in map(StepRecord.from_line, self._steps):
            self._step(step)
        if self._begun and self._begun["stage"] in ("validate", "train"):
            self._rollouts(self._begun)

    def _start(self, line: dict[str, Any]) -> None:
        self.moved = time.monotonic()
        if self._begun:
            seconds = line["time"] - self._begun["time"]
            self._console.print(f"start: {self._begun['stage']} {seconds:.0f} s", highlight=False)
        self._begun = None if line["stage"] == READY else line
        what = START.get(line["stage"], READY)
        self.where = f"its start, {line['stage']}: {what}"
        self._progress.reset(self._bar, total=None, description=f"start: {what}")  # its clock restarts at 0

    def _stage(self, line: dict[str, Any]) -> None:
        self.moved, self._begun = time.monotonic(), line
        name, step = line["stage"], line["step"]
        self.where = f"step {step}, {STAGES.get(name, name)}"
        if name == "validate":
            self._console.print(f"validating {line['of']} prompts at step {step}")
            self._progress.update(self._bar, description=f"validating {line['of']} prompts", total=None)
        else:
            self._progress.update(self._bar, description=f"step {step}: {name}", total=line["of"], completed=step - 1)

    def _rollouts(self, line: dict[str, Any]) -> None:
        """Show how many prompts are played."""
        path = self._folder.progress
        if not path.exists() or path.stat().st_mtime < line["time"]:
            return
        said = "{done} of {of} prompts played".format_map(json.loads(path.read_text(encoding="utf-8")))
        name = "validation" if line["stage"] == "validate" else f"step {line['step']}: {line['stage']}"
        self._progress.update(self._bar, description=f"{name}, {said}")
        if not self._console.is_terminal and time.monotonic() - max(self._said, self.moved) > PLAIN_S:
            self._said = time.monotonic()
            self._console.print(f"{name}, {said}", highlight=False)

    def _step(self, step: StepRecord) -> None:
        self.moved = time.monotonic()
        self._console.print(step_line(step), highlight=False)
        for name, sentence in harness_warnings(step).items():
            if name not in self._warned:
                tell(self._console, sentence, WARNING)
            self._warned.add(name)
        if step.step == PATIENCE and (notice := nothing_learnt(read_steps(self._folder.steps)[0])):
            tell(self._console, notice, WARNING)
        self._progress.update(self._bar, completed=step.step)


def step_line(step: StepRecord) -> str:
    """One step in WIDTH: reward, groups with signal, the labels that fit, failures first, w, cues and seconds."""
    reward = "-" if step.reward_mean is None else f"{step.reward_mean:.3f}"
    weight = f"w {step.w.mean:.2f}" if step.w else "w -"
    cues = f"cues {len(step.cues)}" if step.omega else "no Omega"
    part = f"trained {step.trained_share:.0%}  " if step.trained_share < 1 else ""
    lost = f" infra {sum(step.infra.values())}" if step.infra else ""
    head = f"step {step.step:>4}  reward {reward}  signal {step.groups_with_spread}  "
    tail = f"{weight}  {cues}  {part}{step.total_seconds:.0f} s"
    labels, room = "", WIDTH - len(head + tail + lost)
    for label, share in sorted(step.label_shares.items(), key=lambda item: (item[0] == PASS, -item[1])):
        if len(more := f"{labels}{label} {share:.0%}  ") <= room:
            labels = more
    return f"{head}{labels}{tail}" + (f"[red]{lost}[/red]" if lost else "")
