"""Model runs made from references: perfect ones, and ones that go wrong in known ways."""

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import Task, all_tools, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import parse_reference

Call = tuple[str, dict[str, Any]]


class Cut(str):
    """A message that a length limit cut."""


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
        yield task, *with_faults(task, rng)


def with_faults(task: Task, rng: random.Random) -> tuple[str, list[list[str]]]:
    """A run of a task with one to three faults: (what was done, texts)."""
    turns = reference_calls(task)
    kinds = rng.choices(KINDS, k=rng.choice([1, 1, 1, 2, 3]))
    for kind in kinds:
        _change(kind, turns, task, rng)
    return "+".join(kinds), texts(turns, rng)


def _damaged(text: str, call: Call, mode: str, rng: random.Random) -> str:
    """The message with the form of its call changed, in ways that models know."""
    name, arguments = call
    written = json.dumps({"name": name, "arguments": arguments})
    bad_values = [
        {"name": name, "parameters": arguments},
        {"name": name},
        {"arguments": arguments},
        {"name": name, "arguments": None},
        {"name": name, "arguments": json.dumps(arguments)},
        {"name": name, "arguments": "none"},
        {"name": 5, "arguments": arguments},
        {"name": None, "arguments": arguments},
        {"name": "\ud800", "arguments": arguments},
        {"type": "function", "function": {"name": name, "arguments": arguments}},
        {"name": name, "arguments": arguments, "function": name},
        [{"name": name, "arguments": arguments}],
        {},
        name,
        3,
        None,
    ]
    bad = json.dumps(rng.choice(bad_values))
    python = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    cut = Cut(text[: rng.randrange(1, len(text) + 1)])
    choices = [
        cut,
        cut,
        f"Sure.\n{text}",
        f"{text}\nThat should do.",
        f"```json\n{written}\n```",
        written,
        python,
        f"I will do that: [{python}]",
        f"<think>\n{text}\n</think>\n\nDone.",
    ]
    if mode == "bfcl_qwen_fc":
        block = f"<tool_call>\n{bad}\n</tool_call>"
        choices += [block] * 8 + [f"{text}\n{block}", f"{block}\n{text}", f"<think>\n{block}\n</think>\n\n{text}"]
    else:
        choices += [bad, bad, text.replace("parameters", "arguments"), text[1:], text[:-1], f"<tool_call>{text}"]
    return rng.choice(choices)


def malformed(seed: int, count: int, mode: str) -> Iterator[tuple[Task, list[list[str]]]]:
    """`count` perfect runs in which the form of one or two messages is damaged, the very last one at times."""
    rng = random.Random(f"{mode}{seed}")
    tasks, render = list(load_tasks().values()), get_format(mode).render_call
    for _ in range(count):
        task = rng.choice(tasks)
        turns = reference_calls(task)
        messages = [[render(*call) for call in turn] + ["Done."] for turn in turns]
        for _ in range(rng.choice([1, 1, 2])):
            place = _place(turns, rng)
            if place is not None:
                t, c = place
                damaged = _damaged(messages[t][c], turns[t][c], mode, rng)
                if rng.random() < 0.2:
                    messages[-1][-1] = damaged
                else:
                    messages[t][c] = damaged
                if rng.random() < 0.5:  # the model says it again, in the right form
                    messages[t].insert(c + 1, render(*turns[t][c]))
        yield task, messages
