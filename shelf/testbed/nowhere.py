"""Values that come from nowhere: reference arguments that a policy cannot know when it must give them.

An argument's value is known if the dialogue so far, a tool's document or the answer of a read-only call that is
possible then shows it: in words, as a date in another spelling, or put together from words that are shown. It does not
count if the verifier passes another value too.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from datetime import date
from functools import partial
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import Task, available_tools, load_tasks
from env_service.environments.bfcl.tools import WRITES, Toolbox, parse_reference
from shelf.statistics.summary import DEFAULT_PATH, load_suspected
from shelf.testbed.synthesis.llm.words import leaves
from shelf.testbed.synthesis.verify import passes

FILES = frozenset(["cat", "cd", "diff", "du", "find", "grep", "ls", "sort", "tail", "wc"])
"""Tools that read the file system, whose whole content counts as shown: `cd`, `find` and `cat` reach all of it."""
UNREAD = FILES | {"contact_customer_support"}
ROUNDS = 2
"""Rounds of reads whose arguments come from the answers of earlier reads."""
COUNTS = {"half": 0.5, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10, "double": 2, "twice": 2}

Call = tuple[str, dict[str, Any]]


class Nowhere(NamedTuple):
    """A value, its first 100 characters, that nothing shows; turn (from 0) and tool need it."""

    task_id: str
    turn: int
    tool: str
    argument: str
    value: str


def problems() -> Iterator[str]:
    """A sentence for each value from nowhere that `suspected_items.json` neither suspects nor explains."""
    listed = {(item.task_id, item.turn) for item in load_suspected()}
    explained = json.loads(DEFAULT_PATH.read_text(encoding="utf-8"))["derived"]
    for task in load_tasks().values():
        for found in values(task):
            known = any(each["value"] == found.value and each["scenario"] == task.scenario for each in explained)
            if not known and (found.task_id, found.turn) not in listed:
                what = f"{found.argument}={found.value!r} of {found.tool}"
                yield (
                    f"{found.task_id}, turn {found.turn}: nothing shows {what} before it is needed. Read the task and "
                    f"add it to {DEFAULT_PATH.name}, as an item or as derived."
                )


def values(task: Task) -> Iterator[Nowhere]:
    """The values of a task that come from nowhere."""
    turns = [[parse_reference(call) for call in calls] for calls in task.reference]
    done: list[Call] = []
    world, said, results = Toolbox(task), [], []
    for turn, calls in enumerate(turns):
        said += [task.users[turn] or ""]
        documents = [json.dumps(document) for document in available_tools(task, turn)]
        for number, (tool, arguments) in enumerate(calls):
            shown = _Shown([*said, *results], documents)
            missing = [(name, value) for name, given in arguments.items() for value in leaves(given)]
            missing = [each for each in missing if not shown.has(each[1])]
            missing = [each for each in missing if not passes(task, _changed(turns, turn, number, *each))]
            if missing:
                shown = _Shown([*said, *results, *_reads(task, turn, done, said, results)], documents)
            for name, value in missing:
                if not shown.has(value):
                    yield Nowhere(task.id, turn, tool, name, str(value)[:100])
            done.append((tool, arguments))
            results += _texts(world.call(tool, deepcopy(arguments)).text)


class _Shown:
    """The text that a policy has seen: the dialogue and the tools' documents."""

    def __init__(self, dialogue: Iterable[str], documents: Iterable[str]):
        dialogue = [*dialogue]
        self._words = [_words(text) for text in (*dialogue, *documents)]
        self._text = " | ".join(" ".join(words) for words in self._words)
        self._dialogue = {word for text in dialogue for word in _words(text)}
        self._numbers = {float(word) for words in self._words for word in words if word[0].isdigit()}
        self._numbers |= {COUNTS[word] for word in self._dialogue & COUNTS.keys()}

    def has(self, value: Any) -> bool:
        """Return whether the value is shown."""
        if isinstance(value, bool) or value is None:
            return True
        if isinstance(value, int | float):
            return float(value) in self._numbers
        words = _words(value)
        return f" {' '.join(words)} " in f" {self._text} " or {*words} <= self._dialogue or self._has_date(value)

    def _has_date(self, value: str) -> bool:
        try:
            day = date.fromisoformat(value)
        except ValueError:
            return False
        days = {f"{day.day}{suffix}" for suffix in ("", "st", "nd", "rd", "th")} | {f"{day.day:02}"}
        months = {day.strftime("%B").lower(), day.strftime("%b").lower(), f"{day.month}", f"{day.month:02}"}
        return all(each & self._dialogue for each in (days, months, {str(day.year)}))


def _changed(turns: Sequence[Sequence[Call]], turn: int, number: int, name: str, value: Any) -> list[list[Call]]:
    """The reference with another value in one place."""
    changed = deepcopy([[*calls] for calls in turns])
    other = value + 1 if isinstance(value, int | float) else f"{value}, or not"
    changed[turn][number][1][name] = _replaced(changed[turn][number][1][name], value, other)
    return changed


def _replaced(given: Any, value: Any, other: Any) -> Any:
    if isinstance(given, list | tuple):
        return [_replaced(each, value, other) for each in given]
    if isinstance(given, dict):
        return {name: _replaced(each, value, other) for name, each in given.items()}
    return other if given == value else given


def _reads(task: Task, turn: int, done: Sequence[Call], said: Sequence[str], results: Sequence[str]) -> list[str]:
    """Return the answers of read-only calls after these calls, with known values as their arguments."""
    world, found = Toolbox(task), []
    for tool, arguments in done:
        world.call(tool, deepcopy(arguments))
    if files := world.instances.get("GorillaFileSystem"):
        found += _tree(files.root)
    travel = world.instances.get("TravelAPI")
    tools = [each for each in available_tools(task, turn) if each["name"] not in WRITES | UNREAD]
    for _ in range(ROUNDS):
        candidates, answers = _candidates(said, [*results, *found]), []
        for document in tools:
            call, properties = partial(world.call, document["name"]), document["parameters"]["properties"]
            required = list(document["parameters"].get("required", ()))
            known = {"access_token": getattr(travel, "access_token", None)} if "access_token" in required else {}
            open_ = [name for name in required if name not in known]
            if not open_:
                answers.append(call(known))
            elif len(open_) == 1:
                kind = {"string": str, "integer": int}.get(properties[open_[0]]["type"], ())
                answers += [call({**known, open_[0]: each}) for each in candidates if isinstance(each, kind)]
        new = [text for answer in answers if answer.error is None for text in _texts(answer.text)]
        found += dict.fromkeys(new)
    return found


def _candidates(said: Sequence[str], results: Sequence[str]) -> list[str | int]:
    """Arguments that a policy may try: up to three words of the user's in a row, and every text of a result."""
    words = [text.split() for text in said]
    runs = [" ".join(text[at : at + size]) for text in words for size in (1, 2, 3) for at in range(len(text))]
    ends = (r"\W*$", r"'\w?\W*$", r"[^\w.]*$")  # Ltd, Ltd. and Ltd. of "Ltd.'s" or "Ltd.?"
    tried = dict.fromkeys(re.sub(end, "", run.lstrip("'\"$(")) for run in runs for end in ends)
    tried |= dict.fromkeys(text for text in results if len(text) < 64)
    return [*tried, *(int(text) for text in tried if text.isdecimal())]


def _tree(folder: Any) -> Iterator[str]:
    for name, item in folder.contents.items():
        yield name
        if hasattr(item, "contents"):
            yield from _tree(item)
        else:
            yield str(item.content)


def _texts(result: str) -> list[str]:
    """The keys and values of a result, each as text."""
    try:
        return [str(leaf) for leaf in leaves(json.loads(result), keys=True)]
    except ValueError:
        return [result]


def _words(text: Any) -> list[str]:
    """Numbers without commas, and other words in small letters."""
    return re.findall(r"\d+(?:\.\d+)?|[a-z0-9]+", re.sub(r"(?<=\d),(?=\d{3})", "", str(text).casefold()))
