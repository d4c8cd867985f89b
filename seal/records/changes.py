"""The settings that a run changed when it was resumed, by its log of launches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seal.records.folder import RunFolder
from seal.settings.sentences import shown
from seal.system.jsonl import Line, read_jsonl

MODEL = "actor_rollout_ref.model.path"
ANCHORS = ("actor_rollout_ref.rollout.agent.agent_loop_config_path", "seal.run_dir")
"""Paths in the repository and in the run's folder: if these have moved, other paths move with them."""


class Change(NamedTuple):
    """A setting that has another value after a step."""

    step: int
    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"after step {self.step} {self.key} changes from {shown(self.before)} to {shown(self.after)}"

    @property
    def roots(self) -> tuple[Path, Path] | None:
        """Two absolute paths of the same name, without their common last parts; None for other values."""
        one, two = (Path(str(value)) for value in (self.before, self.after))
        if not (one.is_absolute() and two.is_absolute() and one.name == two.name):
            return None
        while one.name == two.name and one != one.parent:
            one, two = one.parent, two.parent
        return one, two


def without_moves(changes: Sequence[Change], same_model: Callable[[], bool | None]) -> list[Change]:
    """The changes without paths that moved along with the repository or the run, and without a model of the same files.

    same_model: asked only if a model's path has changed and its name has not; None if that is not known.
    """
    moved = {change.roots for change in changes if change.key in ANCHORS} - {None}

    def stays(change: Change) -> bool:
        known = same_model() if change.key == MODEL and change.roots else None
        return change.roots in moved if known is None else known

    return [change for change in changes if not stays(change)]


def same_model(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool | None:
    """Return whether two launches read the same files of a model; None if one of them logged no hashes."""
    old, new = (
        {name: found for name, found in launch.get("hashes", {}).items() if name.startswith("model/")}
        for launch in (before, after)
    )
    return old == new if old and new else None


def training_launches(folder: RunFolder, last: float = float("inf")) -> dict[int, Mapping[str, Any]]:
    """The facts of the launches that trained a run up to the step `last`, by the step that each continued after."""
    lines = read_jsonl(folder.launches) if folder.launches.exists() else ()
    values = [line.value for line in lines if isinstance(line, Line) and isinstance(line.value.get("config"), dict)]
    # Of several launches at a step, the last one has trained what stays.
    return {step: value for value in values if isinstance(step := value.get("step"), int) and step < last}


def compare(before: Mapping[str, Any], after: Mapping[str, Any], step: int) -> list[Change]:
    """The changes from one configuration to another, by key."""
    old, new = dict(flatten(before)), dict(flatten(after))
    changes = [Change(step, key, old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys())]
    return [each for each in changes if each.before != each.after and not isinstance(each.before or each.after, dict)]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The full name and the value of every key and block."""
    for key, value in tree.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
