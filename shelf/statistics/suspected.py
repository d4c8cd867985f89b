"""Benchmark items that were reported or found to be wrong or unsolvable.

``suspected_items.json`` lists them with a reason, and with a link if they were reported.
Figures are printed with and without them; nothing else treats them differently.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from seal.diagnosis.categories import parse_task_id

DEFAULT_PATH = Path(__file__).with_name("suspected_items.json")


class SuspectedItem(BaseModel):
    """One item, why it is suspected, and where it was reported; turn (from 0) is the one at fault."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    turn: int
    reason: str
    link: str | None = None

    @field_validator("task_id")
    @classmethod
    def _names_a_task(cls, task_id: str) -> str:
        parse_task_id(task_id)
        return task_id

    def concerns(self, prefix: int) -> bool:
        """Return whether a prefix of this many turns (-1: the whole task) contains the turn at fault."""
        return prefix < 0 or prefix > self.turn


class _Items(BaseModel):
    items: tuple[SuspectedItem, ...]


def load_suspected(path: Path | str = DEFAULT_PATH) -> tuple[SuspectedItem, ...]:
    """The suspected items; ValueError that names the file and the entry at fault."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a file like shelf/statistics/suspected_items.json.")
    try:
        return _Items.model_validate_json(path.read_bytes()).items
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path} is not a list of suspected items ({place}: {first['msg']}).") from error
