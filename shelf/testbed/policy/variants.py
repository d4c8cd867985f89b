"""Variants of a task: other values, same shape, verified.

A task's user texts, initial configuration and reference calls share values (file names, amounts, people). Each value
of a reference argument that also occurs verbatim in a user text or in the configuration can be exchanged, in all
places at once, for one of the same written shape. A change is kept only if the simulators then answer in the same
shape, every argument that could be read before its call still can, and the verifier accepts the new reference.
"""

import json
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import Toolbox
from shelf.testbed.policy.dialogue import parsed, reference_passes
from shelf.testbed.synthesis.path import PathCall

Scalar = str | int | float
Responses = tuple[tuple[str, ...], ...]
"""The answers to the calls, by turn."""

_TRIALS = 4
"""How often each value is exchanged by itself; it is safe if at least half of the results are sound."""
_ATTEMPTS = 4
"""At a variant."""


class Exchange(NamedTuple):
    """One value for another, in every place."""

    old: Scalar
    new: Scalar


def leaves(value: Any) -> Iterator[Scalar]:
    """The strings and numbers inside a JSON-like value; booleans and None are structure, not values."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield value


def written_forms(value: Scalar) -> tuple[str, ...]:
    """How a value may be written in text: 1500.0 as 1500.0, 1500 and 1,500."""
    if isinstance(value, str):
        return (value,)
    if value == int(value):
        whole = int(value)
        return (repr(value), str(whole), f"{whole:,}", f"{float(whole)!r}")
    return (repr(value), f"{value:,}")


def _pattern(value: Scalar) -> str:
    if isinstance(value, str):
        return rf"(?<![A-Za-z0-9_]){re.escape(value)}(?![A-Za-z0-9_])"
    forms = sorted({re.escape(form) for form in written_forms(value)}, key=len, reverse=True)
    return rf"(?<![A-Za-z0-9_.])(?:{'|'.join(forms)})(?![A-Za-z0-9_]|\.\d)"


def occurs(value: Scalar, text: str) -> bool:
    """Whether the text contains the value, in one of its written forms, between word boundaries."""
    return re.search(_pattern(value), text) is not None


def exchange_text(text: str, exchanges: Sequence[Exchange]) -> str:
    """Make all exchanges in one pass, longer values first, so that a new value is never exchanged again."""
    if not exchanges:
        return text
    written: dict[str, str] = {}
    for exchange in exchanges:
        for old, new in zip(written_forms(exchange.old), written_forms(exchange.new), strict=False):
            written.setdefault(old, new)
    ordered = sorted(exchanges, key=lambda exchange: len(str(exchange.old)), reverse=True)
    pattern = "|".join(f"(?:{_pattern(exchange.old)})" for exchange in ordered)
    return re.sub(pattern, lambda match: written.get(match[0], match[0]), text)


def exchange_value(value: Any, exchanges: Sequence[Exchange]) -> Any:
    """The same structure with exchanged strings (keys too) and numbers; types are kept."""
    if isinstance(value, Mapping):
        return {
            exchange_text(key, exchanges) if isinstance(key, str) else key: exchange_value(item, exchanges)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(exchange_value(item, exchanges) for item in value)
    if isinstance(value, str):
        return exchange_text(value, exchanges)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for exchange in exchanges:
            if not isinstance(exchange.old, str) and exchange.old == value:
                return type(value)(exchange.new)
    return value


def exchange_task(task: Task, exchanges: Sequence[Exchange]) -> Task:
    """Make the exchanges in the user texts, the initial configuration and the reference of a task."""
    return replace(
        task,
        users=tuple(None if text is None else exchange_text(text, exchanges) for text in task.users),
        initial_config=exchange_value(task.initial_config, exchanges),
        reference=tuple(
            tuple(str(PathCall(name, exchange_value(arguments, exchanges))) for name, arguments in turn)
            for turn in parsed(task.reference)
        ),
    )


def run_reference(task: Task) -> Responses:
    """The answers to the reference's calls in fresh simulators."""
    toolbox = Toolbox(task)
    # Two tools change the list that they receive: parsing gives each call its own.
    return tuple(tuple(toolbox.call(*call).text for call in turn) for turn in parsed(task.reference))


def similar(value: Scalar, words: Sequence[str], rng: random.Random) -> Scalar:
    """A random value of the same written shape.

    Numbers keep sign and digits before and after the point; dates stay dates;
    words become words with the same capitalisation and digits become digits; an
    extension and everything between the words stays.
    """
    if isinstance(value, int):
        digits = len(str(abs(value)))
        low = 10 ** (digits - 1) if digits > 1 else 1
        return rng.randint(low, 10**digits - 1) * (-1 if value < 0 else 1)
    if isinstance(value, float):
        whole, point, fraction = repr(abs(value)).partition(".")
        if not point or "e" in fraction:
            return value
        low = 10 ** (len(whole) - 1) if len(whole) > 1 else int(whole != "0")
        high = 10 ** len(whole) - 1 if whole != "0" else 0
        digits = "0" if fraction == "0" else "".join(rng.choice("0123456789") for _ in fraction)
        return float(f"{'-' if value < 0 else ''}{rng.randint(low, high)}.{digits}")
    if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return f"{rng.randint(2023, 2026)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"

    def another(match: re.Match[str]) -> str:
        old = match[0]
        if old.isdigit():
            return rng.choice("123456789") + "".join(rng.choice("0123456789") for _ in old[1:])
        word = rng.choice(words)
        if len(old) > 1 and old.isupper():
            return word.upper()[: len(old)]
        return word.capitalize() if old[0].isupper() else word

    stem, extension = re.fullmatch(r"(.*?)((?:\.[a-z]{2,4})?)", value, re.DOTALL).groups()
    return re.sub(r"[A-Za-z]+|\d+", another, stem) + extension


def candidates(task: Task, fixed: Collection[str]) -> tuple[Scalar, ...]:
    """The values of reference arguments that could be exchanged.

    They occur verbatim in a user text or in the configuration, and are not among
    the `fixed` words (allowed values of the tools, compared in lower case).
    """
    text = "\n".join(user or "" for user in task.users) + "\n" + json.dumps(task.initial_config, default=str)
    values: list[Scalar] = []
    for value in leaves([arguments for turn in parsed(task.reference) for _, arguments in turn]):
        if isinstance(value, str) and (len(value) < 2 or value.lower() in fixed or not re.search("[A-Za-z0-9]", value)):
            continue
        if value not in values and occurs(value, text):
            values.append(value)
    return tuple(values)


def response_shape(text: str) -> Any:
    """The part of a tool's answer that must not change: whether it failed, its keys, or its JSON type."""
    if text.startswith("Error during"):
        return "exception"
    try:
        answer = json.loads(text)
    except ValueError:
        return "text"
    if isinstance(answer, dict):
        return "error" if "error" in answer else tuple(sorted(answer))
    return type(answer).__name__


def readable(task: Task, responses: Responses) -> tuple[tuple[bool, ...], ...]:
    """For each call, which of its values could be read in an earlier user text or answer."""
    seen: list[str] = []
    result: list[tuple[bool, ...]] = []
    for user, calls, answers in zip(task.users, parsed(task.reference), responses, strict=True):
        seen.append(user or "")
        for (_, arguments), answer in zip(calls, answers, strict=True):
            text = "\n".join(seen)
            result.append(tuple(occurs(value, text) for value in leaves(arguments)))
            seen.append(answer)
    return tuple(result)


class VariantMaker:
    """Makes variants of one task.

    words: lower-case words for new values. fixed: words that must stay.
    """

    def __init__(self, task: Task, words: Sequence[str], fixed: Collection[str], rng: random.Random) -> None:
        self._task, self._words, self._rng = task, words, rng
        responses = run_reference(task)
        self._shapes = _shapes(responses)
        self._readable = readable(task, responses)
        self._text = json.dumps([task.users, task.initial_config], default=str)
        self.safe: tuple[Scalar, ...] = tuple(
            value
            for value in candidates(task, fixed)
            if sum(self._sound(self._changed((value,))) for _ in range(_TRIALS)) * 2 >= _TRIALS
        )

    def variant(self) -> Task | None:
        """A verified task with every safe value exchanged, or None if no attempt gave one."""
        if not self.safe:
            return None
        changed = (self._changed(self.safe) for _ in range(_ATTEMPTS))
        return next((task for task in changed if self._sound(task) and reference_passes(task)), None)

    def _changed(self, values: Sequence[Scalar]) -> Task:
        exchanges: list[Exchange] = []
        for value in values:
            for _ in range(9):
                new = similar(value, self._words, self._rng)
                if new not in (exchange.new for exchange in exchanges) and not occurs(new, self._text):
                    break
            exchanges.append(Exchange(value, new))
        return exchange_task(self._task, exchanges)

    def _sound(self, task: Task) -> bool:
        responses = run_reference(task)
        if _shapes(responses) != self._shapes:
            return False
        now = readable(task, responses)
        return all(
            len(old) == len(new) and all(after or not before for before, after in zip(old, new, strict=True))
            for old, new in zip(self._readable, now, strict=True)
        )


def _shapes(responses: Responses) -> list[list[Any]]:
    return [[response_shape(text) for text in turn] for turn in responses]
