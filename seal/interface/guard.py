"""The leak guard: no augmentation tells what only the reference knows (paper, section 3.3).

Public is what the policy may know without the reference: the documents of the tools that
it can see and the dialogue so far, its own messages included. An augmentation leaks when
it changes the observation proper, or when what it adds holds a secret that is not public.

The interface adds fixed wording, which the guard takes out first, and parts of public
text. So a specific secret in what remains is certain to come from the reference, and only
that stops a run; a common value or a part of a secret is suspected and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from seal.interface.observation import ADVICE_TITLE, SCHEMA_TITLE
from seal.interface.schema_cue import schema_text
from seal.interface.secrets import Secrets, dates, is_specific, normal, numbers, spoken
from seal.interface.wording import PromptWording, templates

_VIOLATION = re.compile(
    r"must be (?:one of:|at least|at most|a multiple of|an object|a list|an? (?:whole )?number|a string|a boolean)"
    r"|is not an argument of this tool|\bmissing\b"
)
"""What :mod:`seal.diagnosis.schema` and phi_err say of arguments, beside the documents' own words."""
_INDEX = re.compile(r"(?<=[\w\]])\[\d+\]")
_PART = 5
_NAME = 64
"""Feedback and schema messages cut the policy's names to this length."""
_SHINGLE = 3
_CONTEXT = r"[^.;\n]{0,24}?"


class InterfaceLeak(RuntimeError):
    """An augmented observation holds what only the reference knows; the run must stop."""


@dataclass(frozen=True)
class Leak:
    """One secret that an augmentation told, or "" when it changed the observation itself.

    certain: the secret is specific and stands there whole. Otherwise it is suspected.
    """

    secret: str
    added: str
    certain: bool = True


class LeakGuard:
    """Watches the augmentations of one episode.

    secrets come from :func:`seal.interface.secrets.reference_secrets`, documents are those
    of the tools that are visible at the start, mode is the prompt mode's wording. `saw` takes all
    that becomes public on the way: observations as the benchmark sends them and the
    policy's messages; `reveal` takes tools that are announced later.
    """

    def __init__(self, secrets: Secrets, documents: Sequence[Mapping[str, Any]], mode: PromptWording) -> None:
        self._secrets = secrets
        self._fixed = _fixed_wording(mode)
        self._told = ""
        self._documents = ""
        self._numbers: frozenset[Decimal] = frozenset()
        self._dates: frozenset[date] = frozenset()
        self._announced: set[str] = set()
        self.reveal(documents)

    def saw(self, *texts: str) -> None:
        """Add texts that the policy has been shown or has written itself."""
        self._told += _public(texts)
        self._note(texts)

    def saw_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add calls as they were parsed: their text in the message may have been escaped, and feedback cuts names."""
        for name, arguments in calls:
            self.saw(name, name[:_NAME], *spoken(arguments), *(key[:_NAME] for key in arguments))

    def reveal(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Add the documents of tools that are visible from now on, and what they imply."""
        texts = [json.dumps(document, ensure_ascii=False) for document in documents] + [schema_text(documents)]
        self._documents += _public(texts)
        self._announced.update(normal(document["name"]) for document in documents)
        self._note(texts)

    def leaks(self, original: str, augmented: str) -> tuple[Leak, ...]:
        """Every leak of one augmentation: the certain ones first, in a fixed order."""
        if not augmented.startswith(original):
            return (Leak("", augmented),)
        added = augmented[len(original) :]
        rest = self._variable_part(added)
        if not rest:
            return ()
        told = self._told + _public([original])
        found = dict.fromkeys(self._found(rest, told, told + self._documents, original))
        return tuple(Leak(secret, added, certain) for secret, certain in sorted(found, key=_certain_first))

    def check(self, original: str, augmented: str) -> tuple[Leak, ...]:
        """The suspected leaks of an augmentation; InterfaceLeak when one is certain. The observation counts as seen."""
        found = self.leaks(original, augmented)
        if found and found[0].certain:
            what = f"{found[0].secret!r}" if found[0].secret else "a changed observation"
            raise InterfaceLeak(
                f"the learning interface told {what}, which only the reference knows: {found[0].added!r}"
            )
        self.saw(original)
        return found

    def _note(self, texts: Iterable[str]) -> None:
        for text in map(normal, texts):
            self._numbers |= numbers(text)
            self._dates |= dates(text)

    def _variable_part(self, added: str) -> str:
        """What an augmentation adds beyond fixed wording and list indices, as a normal text."""
        for pattern in (*self._fixed, _VIOLATION):
            added = pattern.sub("\n", added)
        return "\n".join(filter(None, map(normal, _INDEX.sub("", added).split("\n"))))

    def _found(self, rest: str, told: str, public: str, original: str) -> Iterator[tuple[str, bool]]:
        secrets, shown = self._secrets, normal(original)
        for tool in secrets.tools - self._announced:
            if _holds(rest, tool) and not _holds(told, tool):
                yield tool, True
        for number in (numbers(rest) & secrets.numbers) - self._numbers - numbers(shown):
            yield format(number.normalize(), "f"), is_specific(number)
        for day in (dates(rest) & secrets.dates) - self._dates - dates(shown):
            yield day.isoformat(), True
        for word in secrets.words:
            if word in rest and word not in public and _holds(rest, word):
                yield word, is_specific(word)
        for part, certain in _parts(rest):
            if part not in public and any(part in word for word in secrets.words):
                yield part, certain
        for key, value in secrets.pairs:
            if value in rest and (pair := _pair(key, value)).search(rest) and not pair.search(public):
                yield f"{key}: {value}", False


def _certain_first(found: tuple[str, bool]) -> tuple[bool, str]:
    secret, certain = found
    return not certain, secret


def _public(texts: Iterable[str]) -> str:
    return "".join("\n" + normal(text) for text in texts)


def _fixed_wording(mode: PromptWording) -> tuple[re.Pattern[str], ...]:
    """Patterns of the wording between placeholders, the longest first; {count} is part of it."""
    texts = {*templates(), *mode.values().values(), SCHEMA_TITLE, ADVICE_TITLE}
    pieces = {piece for text in texts for piece in re.split(r"\{(?!count)\w+\}", text) if any(map(str.isalpha, piece))}
    return tuple(
        re.compile(re.escape(piece).replace(re.escape("{count}"), r"\d{1,3}"))
        for piece in sorted(pieces, key=lambda piece: (-len(piece), piece))
    )


def _holds(text: str, secret: str) -> bool:
    """True when the secret is a word of its own in the text."""
    return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text) is not None


def _parts(rest: str) -> Iterator[tuple[str, bool]]:
    """Words of at least five characters, which may be a part of a secret, and runs of three words, which surely are."""
    for line in rest.split("\n"):
        words = line.split(" ")
        yield from ((part, False) for part in re.findall(r"\w+", line) if len(part) >= _PART)
        for start in range(len(words) - _SHINGLE + 1):
            run = " ".join(words[start : start + _SHINGLE]).strip(".,:;!?")
            yield run, is_specific(run)


def _pair(key: str, value: str) -> re.Pattern[str]:
    loose = r"[\W_]*".join(map(re.escape, key.split("_")))
    return re.compile(rf"(?<![a-z0-9]){loose}(?![a-z0-9]){_CONTEXT}(?<!\w){re.escape(value)}(?!\w)")
