"""The task rows of a run: selected by `seal.data`, and written as the parquet files that verl reads."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from seal.data.parquet import withdrawal_file, write_rows
from seal.data.rows import TaskRow
from seal.data.selection import selected_rows
from seal.records.trajectory import EVERY_CUE
from seal.settings.data import DataSettings, Selection


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
                return selected_rows(selection, environment)
            except (ValueError, FileNotFoundError) as error:
                raise ValueError(f"seal.data.{name}: {error}") from error

        if not data.val:
            raise ValueError(
                "seal.data.val is empty, but verl needs a task: select at least [{split: eval, limit: 1}]."
            )
        played = rows("withdrawal", data.withdrawal) if data.withdrawal is not None else ()
        withdrawal = tuple(replace(row, withdrawn=left_out) for row in played for left_out in ("", EVERY_CUE))
        val = tuple(row for selection in data.val for row in rows("val", selection))
        return cls(rows("train", data.train), val, withdrawal)

    def write(self, train: Path, val: Path) -> None:
        """Write the files of a run; that of the withdrawal stands beside the one of the validation."""
        write_rows(self.train, train)
        write_rows(self.val, val)
        if self.withdrawal:
            write_rows(self.withdrawal, withdrawal_file(val), first=len(self.val))
