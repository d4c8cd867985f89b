"""Tasks as text for people."""

import json
from collections import Counter
from collections.abc import Sequence

from env_service.environments.bfcl.catalog import all_tools, available_tools
from env_service.environments.bfcl.task_file import MadeTask


def overview(tasks: Sequence[MadeTask]) -> str:
    """Counts by level and category and by kind, then one line per task."""
    groups = Counter(f"{task.level} {task.category}" for task in tasks)
    kinds = Counter(kind for task in tasks for kind in task.kinds)
    lines = [f"{len(tasks)} tasks: {_counted(groups)}", f"kinds: {_counted(kinds)}"]
    lines += [f"{task.id}  {len(task.users)} turns  {' '.join(task.kinds) or '-'}" for task in tasks]
    return "\n".join(lines)


def describe(task: MadeTask) -> str:
    """One task in full: where it comes from, the tools that it shows, its turns, and the state in which it starts."""
    made = task.provenance
    shown = [tool["name"] for tool in available_tools(task.task, 0)]
    lines = [
        task.id,
        f"level {task.level}, category {task.category}, kinds {' '.join(task.kinds) or '-'}",
        f"made by {made.writer}{_named(' with', made.model)}{_named(' from', made.source)}, seed {made.seed}, "
        f"number {made.number}",
        f"tools at the start ({len(shown)} of {len(all_tools(task.task))}): {' '.join(shown)}",
    ]
    for turn, (user, reference) in enumerate(zip(task.users, task.reference, strict=True)):
        said = user if user is not None else f"(the environment reveals {' '.join(task.withheld.get(turn, ()))})"
        lines += ["", f"turn {turn}: {said}"]
        calls = task.demonstration[turn] if task.demonstration else reference
        lines += [f"  {call}{'' if ok else '   <- fails first'}" for call, ok in _succeeding(calls, reference)]
        lines += [] if calls else ["  (no call)"]
    lines += ["", "initial state:", json.dumps(task.config, indent=1, ensure_ascii=False)]
    return "\n".join(lines)


def _succeeding(calls: Sequence[str], reference: Sequence[str]) -> list[tuple[str, bool]]:
    """Each call of a demonstration, and whether it is the reference's: the last calls of the same text are."""
    remaining, marked = list(reference), []
    for call in reversed(calls):
        ok = bool(remaining) and remaining[-1] == call
        if ok:
            remaining.pop()
        marked.append((call, ok))
    return marked[::-1]


def _named(word: str, name: str | None) -> str:
    return f"{word} {name}" if name else ""


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
