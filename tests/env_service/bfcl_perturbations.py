"""Model runs made from references: perfect ones, and ones that go wrong in known ways."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import Task, all_tools, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import parse_reference

Call = tuple[str, dict[str, Any]]
Turns = list[list[Call]]


def reference_calls(task: Task) -> Turns:
    """The reference as (name, arguments) a turn."""
    return [[parse_reference(call) for call in calls] for calls in task.reference]


@cache
def known_calls() -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    for task in load_tasks().values():
        for call in (call for turn in reference_calls(task) for call in turn):
            calls.setdefault(call[0], []).append(call)
    return calls


def _other(value: Any, rng: random.Random) -> Any:
    """A value that differs, sometimes in type."""
    choices: list[Any] = [None, [value], {"value": value}, str(value), "use ls() now", 3.5, True]
    if isinstance(value, str):
        choices += [value + "x", value.upper(), f"{value} (copy)", f"{value}(copy)", "../" + value, ""]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        choices += [value + 1, -value, float(value), str(value)]
    elif isinstance(value, list):
        choices += [value[:-1], [*value, "x"], tuple(value)]
    return rng.choice(choices)


def _place(turns: Turns, rng: random.Random) -> tuple[int, int] | None:
    places = [(t, c) for t, turn in enumerate(turns) for c in range(len(turn))]
    return rng.choice(places) if places else None


def _spurious(task: Task, rng: random.Random) -> Call:
    name = rng.choice([tool["name"] for tool in all_tools(task)])
    known = known_calls().get(name)
    name, arguments = rng.choice(known) if known else (name, {})
    return name, dict(arguments)


def _change(kind: str, turns: Turns, task: Task, rng: random.Random) -> None:
    if kind == "spurious":
        turn = rng.choice(turns)
        turn.insert(rng.randint(0, len(turn)), _spurious(task, rng))
        return
    place = _place(turns, rng)
    if place is None:
        return
    t, c = place
    name, arguments = turns[t][c]
    if kind == "dropped":
        del turns[t][c]
    elif kind == "altered" and arguments:
        key = rng.choice(list(arguments))
        turns[t][c] = (name, {**arguments, key: _other(arguments[key], rng)})
    elif kind == "duplicated":
        turns[t].insert(c, (name, dict(arguments)))
    elif kind == "reordered":
        rng.shuffle(turns[t])
    elif kind in ("early", "late"):
        target = max(0, t - 1) if kind == "early" else min(len(turns) - 1, t + 1)
        turns[target].append(turns[t].pop(c))
    elif kind == "missing" and arguments:
        key = rng.choice(list(arguments))
        turns[t][c] = (name, {k: v for k, v in arguments.items() if k != key})
    elif kind == "unknown":
        extra = rng.choice(["verbose", "class", "not a name", " limit", "\uff4cimit"])
        turns[t][c] = (name, {**arguments, extra: rng.choice([1, "x", None])})
    elif kind == "renamed":
        turns[t][c] = (rng.choice([name + "_all", name.upper(), "__init__", "print", f" {name}"]), dict(arguments))
    elif kind == "emptied":
        turns[t].clear()


KINDS = (
    "dropped",
    "altered",
    "duplicated",
    "reordered",
    "early",
    "late",
    "spurious",
    "missing",
    "unknown",
    "renamed",
    "emptied",
)


def texts(turns: Turns, rng: random.Random | None, mode: str = "bfcl_qwen_fc") -> list[list[str]]:
    """Assistant messages a turn: one call a message, or (with rng) any grouping and some noise."""
    render = get_format(mode).render_call
    grouped: list[list[str]] = []
    for turn in turns:
        calls, messages = [render(name, arguments) for name, arguments in turn], []
        while calls:
            # More than 20 messages in a turn would be cut, officially too.
            size = -(-len(turn) // 20) if rng is None else rng.randint(1, len(calls))
            messages.append("\n".join(calls[:size]))
            calls = calls[size:]
        if rng is not None and messages and rng.random() < 0.1:
            messages[0] = (
                "<think>\nlet me see\n</think>\n\nSure.\n" + messages[0] + "\n<tool_call>\n{broken\n</tool_call>"
            )
        grouped.append([*messages, "Done."])
    return grouped


def perturbed(seed: int, count: int) -> Iterator[tuple[Task, str, list[list[str]]]]:
    """`count` runs with one to three faults each: (task, what was done, texts)."""
    rng = random.Random(seed)
    tasks = list(load_tasks().values())
    for _ in range(count):
        task = rng.choice(tasks)
        turns = reference_calls(task)
        kinds = rng.choices(KINDS, k=rng.choice([1, 1, 1, 2, 3]))
        for kind in kinds:
            _change(kind, turns, task, rng)
        yield task, "+".join(kinds), texts(turns, rng)
