"""Progress of long work: a bar in a terminal, else one line per tenth of the work."""

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Bar(Progress):
    """Rich's progress of one or several tasks; call `update`, which writes the lines. done: the word for a step."""

    def __init__(self, console: Console, done: str = ""):
        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        shown = {"console": console, "transient": True, "disable": not console.is_terminal}
        super().__init__(*columns, **shown)
        self._done = done
        self._said: dict[TaskID, int] = {}

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """Advance a task; the arguments are those of rich."""
        super().update(task_id, **fields)
        task = next(task for task in self.tasks if task.id == task_id)
        tenths = int(10 * task.completed / task.total) if task.total else 0
        if tenths > self._said.get(task_id, 0) and not self.console.is_terminal:
            self._said[task_id] = tenths
            count = f"{task.completed:.0f} of {task.total:.0f}"
            line = f"{task.description}, {count} {self._done}" if self._done else f"{task.description}: {count}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
