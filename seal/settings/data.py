"""`seal.data`: which tasks a run trains and validates on."""

import re
from typing import Any, Literal

from pydantic import PositiveFloat, field_validator

from seal.settings.base import Count, Settings

Category = Literal["base", "miss_func", "miss_param", "long_context"]

BENCHMARK = "bfcl"
"""The name of the benchmark among the sources of a mixture."""
_ENVIRONMENT = re.compile(r"[a-z][a-z0-9_]*")


class Source(Settings):
    """One source of a mixture."""

    tasks: str
    """A file of synthesised tasks, `bfcl` for the benchmark's, or another environment (write `./x` for a file `x`)."""
    weight: PositiveFloat = 1.0
    """The relative weight of this source in the mixture."""
    prefix_turns: tuple[Count, ...] | None = None
    """The selection's `prefix_turns` for this source; `[]` keeps its tasks whole."""

    @property
    def environment(self) -> str | None:
        """The environment that it names; None for a file."""
        return self.tasks if _ENVIRONMENT.fullmatch(self.tasks) else None


class Selection(Settings):
    """Filters over the tasks of one side of a split; an empty filter passes every task (docs/recipes.md)."""

    environment: str | None = None
    """The environment of the tasks (docs/environments.md); `env_service.env_type` without it."""
    split: Literal["train", "eval"] = "train"
    """The side of the split."""
    subset: str | None = None
    """One of the environment's splits or categories instead of the side (`seal env list`); for the benchmark, the
    release's side, `released_ids_train` or `released_ids_eval`."""
    categories: tuple[Category, ...] = ()
    """Task categories; one may be given as a text."""
    prefix_turns: tuple[Count, ...] = ()
    """Keeps only the first k user turns, for each k given; shorter tasks are left out."""
    task_file: str | None = None
    """A text file of ids, a JSON list of ids, or a band (docs/recipes.md)."""
    limit: Count | None = None
    """The most rows of each data source, evenly spread over it."""
    mixture: tuple[Source, ...] = ()
    """Sources and weights, as `[{tasks: bfcl, weight: 1}, {tasks: FILE, weight: 3}]`; one environment without it."""

    @field_validator("categories", "prefix_turns", "mixture", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if value is None:
            return ()
        return value if isinstance(value, tuple) else (value,)


class DataSettings(Settings):
    """The tasks of a run (docs/recipes.md)."""

    train: Selection = Selection()
    """The tasks to train on."""
    val: tuple[Selection, ...] = (Selection(split="eval"),)
    """The tasks to validate on: a list of selections with the keys of `seal.data.train`."""
    withdrawal: Selection | None = None
    """Tasks of the training side that each validation plays with Omega and without."""

    @field_validator("withdrawal")
    @classmethod
    def _of_the_training_side(cls, value: Selection | None) -> Selection | None:
        if value is not None and value.split != "train":
            raise ValueError("seal.data.withdrawal needs split=train: no evaluation task is played with an interface.")
        return value

    def task_files(self) -> tuple[str, ...]:
        """The files of synthesised tasks that training and validation take tasks from."""
        sources = (source for selection in self.selections() for source in selection.mixture)
        return tuple(dict.fromkeys(source.tasks for source in sources if source.environment is None))

    def files(self) -> tuple[str, ...]:
        """All files that the selections read: those of synthesised tasks, and lists of tasks."""
        lists = (selection.task_file for selection in self.selections())
        return tuple(dict.fromkeys((*self.task_files(), *filter(None, lists))))

    def selections(self) -> tuple[Selection, ...]:
        """All selections: of training, validation and withdrawal."""
        return (self.train, *self.val, *([self.withdrawal] if self.withdrawal else []))

    def environments(self, default: str) -> tuple[str, ...]:
        """The environments that the run takes tasks from. default: that of selections that name none."""
        named = []
        for selection in self.selections():
            sources = [source.environment or BENCHMARK for source in selection.mixture]
            named += sources or [selection.environment or default]
        return tuple(dict.fromkeys(named))
