"""The settings that a run changed when it was resumed, by its log of launches."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seal.records.folder import RunFolder
from seal.settings.sentences import shown
from seal.system.jsonl import Line, read_jsonl

MODEL = "actor_rollout_ref.model.path"


class Change(NamedTuple):
    """A setting that has another value after a step."""

    step: int
    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"after step {self.step} {self.key} changes from {shown(self.before)} to {shown(self.after)}"

    @property
    def moves(self) -> bool:
        """True if both values are the path of a folder of one name, as in a repository that has moved."""
        paths = [Path(str(value)) for value in (self.before, self.after)]
        return all(path.is_absolute() for path in paths) and paths[0].name == paths[1].name


def same_model(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two launches read the same files of a model; True if one of them logged no hashes."""
    old, new = (
        {name: found for name, found in launch.get("hashes", {}).items() if name.startswith("model/")}
        for launch in (before, after)
    )
    return old == new or not (old and new)


def training_launches(folder: RunFolder, last: int) -> dict[int, Mapping[str, Any]]:
    """The facts of the launches that trained a run up to the step `last`, by the step that each went on after."""
    lines = read_jsonl(folder.launches) if folder.launches.exists() else ()
    values = [line.value for line in lines if isinstance(line, Line) and {"step", "config"} <= line.value.keys()]
    # Of several launches at a step, the last one has trained what stays.
    return {value["step"]: value for value in values if value["step"] < last}


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
