"""Which tasks a run trains or evaluates on: the ``seal.data`` block of a recipe.

Filters narrow the tasks of one side of one split; ``prefix_turns`` turns each
into tasks of its first user turns. Every filter that leaves nothing says so.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.task_file import read_task_file as read_made_tasks
from env_service.environments.kit.settings import EVALUATION_SPLITS
from env_service.environments.registry import get_environment
from seal.data.rows import TaskRow, mix, whole_rows, withdrawal_file, write_rows
from seal.method.diagnosis.categories import qualify
from seal.records.benchmark import parse_task_id, variant
from seal.records.source import WHOLE
from seal.settings.data import BENCHMARK, DataSettings, Selection, Source
from seal.system.grouping import grouped
from seal.system.jsonl import flaw


class RunRows(NamedTuple):
    """The rows that a run trains on, validates on, and plays a withdrawal on, in the order of their files."""

    train: tuple[TaskRow, ...]
    val: tuple[TaskRow, ...]
    withdrawal: tuple[TaskRow, ...] = ()

    @classmethod
    def of(cls, data: DataSettings, environment: str) -> "RunRows":
        """The rows that the settings select; ValueError that names the key. environment: of selections without one."""

        def rows(name: str, selection: Selection) -> tuple[TaskRow, ...]:
            try:
                found = selected_rows(selection, environment)
                if not found:
                    where = selection.subset or selection.split
                    raise ValueError(f"{selection.environment or environment} has no task for {where}.")
                return found
            except (ValueError, FileNotFoundError) as error:
                raise ValueError(f"seal.data.{name}: {error}") from error

        if not data.val:
            raise ValueError("seal.data.val is empty, but verl needs a task: select [{split: eval, limit: 1}].")
        played = rows("withdrawal", data.withdrawal) if data.withdrawal is not None else ()
        withdrawal = tuple(replace(row, withdrawal=side) for row in played for side in ("shown", "hidden"))
        every = (row for selection in data.val for row in rows("val", selection))
        val = {(row.data_source, row.task_id): row for row in every}  # selections may overlap
        return cls(rows("train", data.train), tuple(val.values()), withdrawal)

    def write(self, train: Path, val: Path) -> None:
        """Write the files of a run; that of the withdrawal stands beside the one of the validation."""
        write_rows(self.train, train)
        write_rows(self.val, val)
        if self.withdrawal:
            write_rows(self.withdrawal, withdrawal_file(val), first=len(self.val))


def selected_rows(selection: Selection, environment: str = BENCHMARK) -> tuple[TaskRow, ...]:
    """The selected rows of the side or subset, in file order or mixed; ValueError when nothing is left.

    The filters apply to every source of a mixture. environment: that of a selection that names none.
    """
    if selection.mixture:
        return mix([(source.weight, _rows_of(source, selection)) for source in selection.mixture])
    name = selection.environment or environment
    elsewhere, found = name != BENCHMARK, get_environment(name)
    if elsewhere and selection.categories:
        raise ValueError(f"categories filters tasks of bfcl, not of {name}: use subset, limit or task_file.")
    if not elsewhere and selection.subset not in (None, released := f"released_ids_{selection.split}"):
        raise ValueError(f"subset={selection.subset}: of bfcl it may be {released}; else use split and categories.")
    other = "train" if selection.split == "eval" else "eval"
    opposite = {f"{each}_{other}" for each in found.splits()} | {*(EVALUATION_SPLITS if other == "eval" else ["train"])}
    if elsewhere and selection.subset in opposite:
        raise ValueError(f"subset={selection.subset} of {name} is on the side {other}: set split={other} too.")
    tasks = [found.task(task) for task in found.task_ids(selection.subset or selection.split)]
    if marked := next((task.category for task in tasks if "@" in task.category), None):
        raise ValueError(f"{name} has a category {marked!r}, and @ marks prefixes of tasks: rename it.")
    scenarios = [crc32(task.group.encode()) if elsewhere else int(task.group) for task in tasks]
    rows = [
        TaskRow(task.id, qualify(name, task.category), scenario, selection.split)
        for task, scenario in zip(tasks, scenarios, strict=True)
    ]
    # A list of tasks may name synthesised ones too, which the benchmark does not have.
    return select(rows, selection, {task.id: task.turns for task in tasks}, found.task if elsewhere else parse_task_id)


def made_rows(file: Path | str, selection: Selection, own_side: bool = False) -> tuple[TaskRow, ...]:
    """The rows of a file of synthesised tasks, each on the side of its level, that pass a selection's filters.

    own_side: refuse tasks of the side that is not the selection's.
    """
    made = read_made_tasks(file)
    if own_side and (wrong := [task.id for task in made if side_of(task.id) != selection.split]):
        raise ValueError(
            f"{file} holds {wrong[0]}, which is not for split={selection.split}: "
            "train takes tasks of the level train, eval those of the other levels."
        )
    rows = [row for task in made for row in whole_rows([task.id], side_of(task.id))]
    try:
        return select(rows, selection, {task.id: len(task.users) for task in made})
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _rows_of(source: Source, selection: Selection) -> tuple[TaskRow, ...]:
    if source.prefix_turns is not None:
        selection = selection.model_copy(update={"prefix_turns": source.prefix_turns})
    if source.environment is not None:
        own: dict[str, Any] = {"mixture": (), "environment": source.environment}
        if source.environment != BENCHMARK:
            # The benchmark's filters, prefixes and lists of tasks are not meant for others.
            own |= {"subset": None, "categories": (), "prefix_turns": source.prefix_turns or (), "task_file": None}
        selection = selection.model_copy(update=own)
    named = source.environment is not None
    try:
        rows = selected_rows(selection) if named else made_rows(source.tasks, selection, own_side=True)
    except ValueError as error:
        raise ValueError(f"mixture: {f'{source.tasks}: ' if named else ''}{error}") from error
    if not rows:
        raise ValueError(f"mixture: {source.tasks} has no task for {selection.subset or selection.split}.")
    return rows


def select(
    rows: Iterable[TaskRow],
    selection: Selection,
    turns: Mapping[str, int],
    known: Callable[[str], object] = parse_task_id,
) -> tuple[TaskRow, ...]:
    """Apply a selection's filters to whole-task rows; ValueError that names the filter that left nothing.

    turns: user turns by task. known: ValueError for an unknown task.
    """
    kept = list(rows)
    if selection.categories:
        kept = _narrow("categories", (row for row in kept if variant(row.category) in selection.categories))
    if selection.prefix_turns:
        prefixes = (replace(row, turns=number) for number in selection.prefix_turns for row in kept)
        kept = _narrow("prefix_turns", (row for row in prefixes if row.turns <= turns[row.task_id]))
    if selection.task_file:
        kept = _narrow_to_file(kept, Path(selection.task_file), known)
    return tuple(_spread(kept, selection.limit) if selection.limit else kept)


def read_task_file(
    path: Path | str, known: Callable[[str], object] = parse_task_id
) -> tuple[tuple[str, int | None], ...]:
    """Task ids with their number of turns (None if the file does not say) from a task list.

    The file is text with one id per line (# starts a comment), a JSON list of ids, or an object whose ``tasks`` lists
    ids or ``{"task_id", "turns"}``. known: raises ValueError for an id that the environment does not have. ValueError
    that names the file for anything else.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"The task file {path} does not exist: name a text or JSON file of task ids.")
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            value = json.loads(text)
            entries = value.get("tasks") if isinstance(value, dict) else value
        else:
            entries = [task for line in text.splitlines() if (task := line.partition("#")[0].strip())]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The task file {path} cannot be read: {flaw(error)}.") from error
    if not isinstance(entries, list):
        raise ValueError(f"The task file {path} holds no list of task ids (a list, or an object with a list 'tasks').")
    listed = []
    for entry in entries:
        task, turns = (entry.get("task_id"), entry.get("turns")) if isinstance(entry, dict) else (entry, None)
        try:
            known(str(task))
        except ValueError as error:
            raise ValueError(f"The task file {path} is wrong: {error}") from error
        if not isinstance(turns, int | None):
            raise ValueError(f"The task file {path} is wrong: turns of {task} is {turns!r}, not a whole number.")
        listed.append((str(task), turns))
    return tuple(listed)


def _narrow(name: str, rows: Iterable[TaskRow]) -> list[TaskRow]:
    kept = list(rows)
    if not kept:
        raise ValueError(f"{name} leaves no task: widen it, or another filter before it.")
    return kept


def _narrow_to_file(rows: Sequence[TaskRow], path: Path, known: Callable[[str], object]) -> list[TaskRow]:
    listed = read_task_file(path, known)
    wanted = set(listed)
    kept = [row for row in rows if (row.task_id, row.turns) in wanted or (row.task_id, None) in wanted]
    if not kept:
        turns = sorted({turns for _task, turns in listed if turns not in (None, WHOLE)})
        hint = f" (it lists prefixes of {turns} turns: set prefix_turns to match)" if turns else ""
        raise ValueError(f"The task file {path} has no task in common with the rest of the selection{hint}.")
    return kept


def _spread(rows: Sequence[TaskRow], limit: int) -> list[TaskRow]:
    """Evenly spaced rows of each data source, shifted from one to the next so that scenarios differ."""
    groups = grouped((row.data_source, row) for row in rows)
    chosen: set[TaskRow] = set()
    for number, group in enumerate(groups.values()):
        count, shift = min(limit, len(group)), number / len(groups)
        chosen.update(group[int((position + shift) * len(group) / count)] for position in range(count))
    return [row for row in rows if row in chosen]
