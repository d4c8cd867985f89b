"""One viewed run: the answers that pages, exports and the terminal show, as JSON values."""

import functools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson

from seal.records.folder import RunFolder
from seal.system.jsonl import step_files
from shelf.statistics.log import Log, read_stages
from shelf.view import overview
from shelf.view.examples import first_group, learnt
from shelf.view.headline import headline
from shelf.view.index import TRAIN, Index, stamp_of
from shelf.view.lifts import lift_values
from shelf.view.query import By, Filters, bad_lines, counts, trajectories
from shelf.view.report.run import logged_steps
from shelf.view.runs import ViewedRun
from shelf.view.trajectory import raw_line, rollout, whole_group

SEARCHES = 32
"""The number of searches whose hits are kept."""
BUDGET_S = 4.0
"""A search stops after this time and says how far it got."""

Value = TypeVar("Value")


def search(index: Index, log: str, text: str) -> tuple[frozenset[int], float]:
    """The ids of the trajectories whose lines contain `text`, newest step first, and the share of the bytes searched.

    The case of ASCII letters is ignored. The text is compared with the line as logged, so a line break matches its
    escape in JSON.
    """
    # The text as the trainer writes it, and as a writer that uses only ASCII does.
    needles = {orjson.dumps(text)[1:-1].lower(), json.dumps(text)[1:-1].encode().lower()}
    folder = index.folder.trajectories if log == "train" else index.folder.validations
    matching: set[int] = set()
    deadline = time.monotonic() + BUDGET_S
    with index.reading() as db:
        files = db.execute("SELECT id, name, size FROM file WHERE log = ? ORDER BY step DESC", (log,)).fetchall()
        total, searched = sum(row["size"] for row in files) or 1, 0
        for file, name, size in map(tuple, files):
            if time.monotonic() > deadline:
                break
            try:
                data = (folder / name).read_bytes().lower()
            except FileNotFoundError:  # a resumed run dropped it
                data = b""
            if any(needle in data for needle in needles):
                lines = db.execute("SELECT id, offset, offset + length FROM trajectory WHERE file = ?", (file,))
                matching |= {
                    line for line, start, end in lines if any(data.find(needle, start, end) >= 0 for needle in needles)
                }
            searched += size
    return frozenset(matching), searched / total if files else 1.0


class Viewed:
    """A run with its index, its steps and its last searches. A bad request raises ValueError.

    ask: returns the answer of a function of a connection to the index.
    """

    def __init__(self, run: ViewedRun):
        folder = run.folder
        self.run = run
        self.index = Index(folder)
        self.ask = self.index.ask
        self._steps = Watched(lambda: [folder.steps], lambda: logged_steps(folder))
        self._stage = Watched(lambda: [folder.stages], lambda: read_stages(folder))
        self._lift = Watched(lambda: [path for _, path in step_files(folder.withdrawals)], lambda: lift_values(folder))
        self._search = functools.lru_cache(maxsize=SEARCHES)(lambda log, text, _changes: search(self.index, log, text))

    def listed(self) -> dict[str, Any]:
        """The run in the list of runs; its signature changes with what the pages show, except for the stage."""
        steps, _ = self._steps.get()
        last = steps[-1].step if steps else None
        progress = self.index.progress
        return {
            "name": self.run.name,
            "arm": self.run.arm,
            "path": str(self.run.folder.path),
            "last": last,
            "stage": overview.stage(self.run.folder, self._stage.get(), last),
            "index": {"read": progress.read, "of": progress.of, "ready": progress.ready},
            "signature": f"{progress.changes}-{hash((self._steps.stamps, self._lift.stamps))}",
        }

    def overview(self) -> dict[str, Any]:
        """The curves, and the problems of the logs."""
        steps, bad = self._steps.get()
        problems = {"bad_steps": [*self.index.problems, *map(str, bad)], "bad": self.ask(bad_lines)}
        return overview.overview(self.run, steps) | problems

    def validation(self) -> dict[str, Any]:
        """The run in one sentence, and its pass rates by validation and data source."""
        records = self.ask(overview.validated)
        first = headline(self.run.folder, self._steps.get()[0], records)
        return {"name": self.run.name, "headline": first, "validation": overview.validation(records)}

    def examples(self) -> dict[str, Any]:
        """Where to look first: a group with signal, and both rollouts of a task that the run learnt; null if none."""
        folder, shown = self.run.folder, {"group": self.ask(first_group), "learnt": None}
        if group := shown["group"]:
            place = (group["step"], group["source"], group["task"], group["prompt"])
            rollouts = self.ask(whole_group, folder, TRAIN, *place)
            one = {member["passed"]: member for member in reversed(rollouts["members"]) if not member["infra"]}
            shown["group"] |= {"users": rollouts["users"], "pair": [one[True], one[False]] if len(one) > 1 else []}
        if found := learnt(Log(tuple(self.ask(overview.validated)))):
            before, after = (self.ask(rollout, folder, line) for line in (found.before, found.after))
            shown["learnt"] = {"turn": found.turn, "before": before, "after": after}
        return shown

    def failures(self, filters: Filters, by: By) -> dict[str, Any]:
        """Turns by label, what changed over the filtered steps, and how many turns cues reached."""
        steps = [step for step in self._steps.get()[0] if filters.spans(step.step)]
        cells = self.ask(counts, filters, by)
        return {"cells": cells, "changes": overview.changes(steps), "reached": overview.reached(steps)}

    def trajectories(self, filters: Filters, offset: int = 0, limit: int = 100) -> dict[str, Any]:
        """Rows of the list. searched: the share of the log that a text search covered."""
        log, text, changes = filters.log, filters.text, self.index.progress.changes
        found, share = self._search(log, text, changes) if text else (None, None)
        return self.ask(trajectories, filters, offset, limit, found) | {"searched": share}

    def line(self, key: str) -> tuple[dict[str, Any], int, RunFolder]:
        """Return a replay's inputs: the logged object of a trajectory, its step and its run."""
        value, row = self.ask(raw_line, self.run.folder, key)
        return value, row["step"], self.run.folder

    def omega(self) -> dict[str, Any]:
        """The cues over the steps, and the lift of the interface."""
        return overview.omega(self.run.folder, self._steps.get()[0]) | {"lift": self._lift.get()}


class Watched(Generic[Value]):
    """The result of `read`, read again when one of `files()` has changed; read copes with missing files."""

    def __init__(self, files: Callable[[], Iterable[Path]], read: Callable[[], Value]):
        self._files, self._read = files, read
        self._last: tuple[tuple[tuple[str, int, int], ...], Value] | None = None

    @property
    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Name, size and modification time of each file that exists now."""
        return tuple((path.name, *stamp[1:]) for path in self._files() if (stamp := stamp_of(path)))

    def get(self) -> Value:
        """The value for the current files."""
        stamps = self.stamps
        if self._last is None or self._last[0] != stamps:
            self._last = stamps, self._read()
        return self._last[1]
