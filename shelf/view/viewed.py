"""One viewed run: the answers that pages, exports and the terminal show, as JSON values."""

import functools
from pathlib import Path
from typing import Any

from shelf.view import overview as figures
from shelf.view.index import Index
from shelf.view.lifts import Lifts
from shelf.view.query import By, Filters, bad_lines, choices, counts, groups, trajectories
from shelf.view.runs import ViewedRun
from shelf.view.search import Found, search
from shelf.view.trajectory import raw_line, trajectory, whole_group

SEARCHES = 32


class Viewed:
    """A run with its index, its steps and its last searches. What cannot be asked for raises ValueError."""

    def __init__(self, run: ViewedRun):
        self.run = run
        self.index = Index(run.folder)
        self._steps = figures.Steps(run.folder)
        self._lifts = Lifts(run.folder)
        self._search = functools.lru_cache(maxsize=SEARCHES)(self._search_now)

    def _search_now(self, log: str, text: str, _changes: int) -> Found:
        return search(self.index, log, text)

    def listed(self) -> dict[str, Any]:
        """The run in the list of runs: its name, its last step, what it does now, how much is indexed."""
        steps, _ = self._steps.get()
        progress = self.index.progress
        return {
            "name": self.run.name,
            "arm": self.run.arm,
            "path": str(self.run.folder.path),
            "steps": len(steps),
            "last": steps[-1].step if steps else None,
            "stage": figures.stage(self.run.folder),
            "index": {"read": progress.read, "of": progress.of, "ready": progress.ready},
            "signature": figures.signature(self.index, self._steps, self._lifts),
        }

    def overview(self) -> dict[str, Any]:
        """The curves, and the problems of the logs."""
        steps, bad = self._steps.get()
        with self.index.reading() as db:
            problems = {"bad_steps": [str(each) for each in bad], "bad": bad_lines(db)}
        return figures.overview(self.run, steps) | problems

    def validation(self) -> list[dict[str, Any]]:
        """Pass rates by validation and data source."""
        with self.index.reading() as db:
            return figures.validation(db)

    def choices(self) -> dict[str, list[Any]]:
        """The values that the filters can take."""
        with self.index.reading() as db:
            return choices(db)

    def failures(self, filters: Filters, by: By) -> dict[str, Any]:
        """Turns by label, what changed over the steps of the filters, and what cues reached."""
        steps = [
            step
            for step in self._steps.get()[0]
            if (filters.from_step is None or step.step >= filters.from_step)
            and (filters.to_step is None or step.step <= filters.to_step)
        ]
        with self.index.reading() as db:
            cells = counts(db, filters, by)
        return {"cells": cells, "changes": figures.changes(steps), "reached": figures.reached(steps)}

    def trajectories(self, filters: Filters, offset: int = 0, limit: int = 100) -> dict[str, Any]:
        """Rows of the list; searched: the share of the log that a text search came through."""
        text = filters.text
        found = self._search(filters.log, text, self.index.progress.changes) if text else None
        with self.index.reading() as db:
            shown = trajectories(db, filters, max(0, offset), max(1, limit), found.ids if found else None)
        return shown | {"searched": found.share if found else None}

    def groups(self, filters: Filters, offset: int = 0, limit: int = 100, spread: bool = False) -> dict[str, Any]:
        """Rows of the list of groups."""
        with self.index.reading() as db:
            return groups(db, filters, max(0, offset), max(1, limit), spread)

    def group(self, log: str, step: int, source: str, task: str) -> dict[str, Any]:
        """The rollouts of a prompt."""
        with self.index.reading() as db:
            return whole_group(self.index, db, log, step, source, task)

    def trajectory(self, key: str, with_tokens: bool = False) -> dict[str, Any]:
        """All that the log holds of a trajectory."""
        with self.index.reading() as db:
            return trajectory(self.index, db, key, with_tokens)

    def line(self, key: str) -> tuple[dict[str, Any], int, Path]:
        """What a replay takes: the logged object of a trajectory, its step, and the log of the run's launches."""
        with self.index.reading() as db:
            value, row = raw_line(self.index, db, key)
        return value, row["step"], self.run.folder.launches

    def omega(self) -> dict[str, Any]:
        """The cues over the steps, and what each of them gives."""
        return figures.omega(self.run.folder, self._steps.get()[0]) | {"lifts": self._lifts.get()}
