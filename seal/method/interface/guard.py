"""The leak guard: no augmentation reveals what only the reference knows (paper, section 3.3).

Public means what the policy can know without the reference: the documents of the tools that it can see and the dialogue
so far, its own messages included. An augmentation leaks when it changes the observation proper, or when the text that
it adds, apart from the interface's fixed wording, contains a secret that is not public.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from seal.method.interface.cues import catalogue
from seal.method.interface.observation import ADVICE_TITLE, SCHEMA_TITLE
from seal.method.interface.schema_cue import schema_text
from seal.method.interface.secrets import Secrets, normal, numbers, scalars
from seal.method.interface.wording import PromptWording, templates

_VIOLATION = re.compile(
    r"must be (?:one of:|at least|at most|a multiple of|an object|a list|an? (?:whole )?number|a string|a boolean)"
    r"|must keep to (?:the \w+ of )?its schema|is not an argument of this tool|\bmissing\b"
)
"""The phrases of :mod:`seal.method.diagnosis.schema` and phi_err about arguments, beside the documents' own words."""
_INDEX = re.compile(r"(?<=[\w\]])\[\d+\]")
_NAME = 64
"""Feedback and schema messages cut the policy's names to this length."""


class InterfaceLeak(RuntimeError):
    """An augmented observation holds what only the reference knows; the run must stop."""


class LeakGuard:
    """Watches the augmentations of one episode.

    secrets come from :func:`seal.method.interface.secrets.reference_secrets`, documents are those of the tools that are
    visible at the start, mode is the prompt mode's wording. `saw` takes all that becomes public in the episode:
    observations as the benchmark sends them and the policy's messages; `reveal` takes tools that are announced later.
    """

    def __init__(self, secrets: Secrets, documents: Sequence[Mapping[str, Any]], mode: PromptWording) -> None:
        self._secrets = secrets
        self._fixed = _fixed_wording(mode)
        self._told = ""
        self._documents = ""
        self._numbers: frozenset[Decimal] = frozenset()
        self._announced: set[str] = set()
        self.reveal(documents)

    def saw(self, *texts: str) -> None:
        """Add texts that the policy has been shown or has written itself."""
        self._told += self._public(texts)

    def saw_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add calls as they were parsed: their text in the message may have been escaped, and feedback cuts names."""
        for name, arguments in calls:
            self.saw(name, name[:_NAME], *map(str, scalars(arguments, keys=True)), *(key[:_NAME] for key in arguments))

    def reveal(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Add the documents of tools that are visible from now on, and what they imply."""
        texts = [schema_text(documents), *map(str, scalars([*documents], keys=True))]
        self._documents += self._public(texts)
        self._announced.update(normal(document["name"]) for document in documents)

    def leaks(self, original: str, augmented: str) -> tuple[str, ...]:
        """The secrets that an augmentation reveals, sorted; "" when it changes the observation itself."""
        if not augmented.startswith(original):
            return ("",)
        return tuple(sorted(set(self._leaks(self._variable_part(augmented[len(original) :]), normal(original)))))

    def check(self, original: str, augmented: str) -> None:
        """InterfaceLeak when an augmentation reveals a secret; else the observation counts as seen."""
        for secret in self.leaks(original, augmented):
            what = repr(secret) if secret else "a changed observation"
            raise InterfaceLeak(
                f"the learning interface told {what}, which only the reference knows: "
                f"{augmented.removeprefix(original)!r}"
            )
        self.saw(original)

    def _public(self, texts: Iterable[str]) -> str:
        shown = [normal(text) for text in texts]
        self._numbers = self._numbers.union(*map(numbers, shown))
        return "".join("\n" + text for text in shown)

    def _variable_part(self, added: str) -> str:
        """Return the normal text of an augmentation without fixed wording and list indices."""
        for pattern in (*self._fixed, _VIOLATION):
            added = pattern.sub("\n", added)
        return "\n".join(filter(None, map(normal, _INDEX.sub("", added).split("\n"))))

    def _leaks(self, rest: str, shown: str) -> Iterator[str]:
        told = f"{self._told}\n{shown}"
        public = told + self._documents
        for tool in self._secrets.tools - self._announced:
            if _holds(rest, tool) and not _holds(told, tool):
                yield tool
        for number in (numbers(rest) & self._secrets.numbers) - self._numbers - numbers(shown):
            yield format(number.normalize(), "f")
        for word in self._secrets.words:
            if word in rest and word not in public and _holds(rest, word):
                yield word


def _fixed_wording(mode: PromptWording) -> tuple[re.Pattern[str], ...]:
    """Patterns of the wording between placeholders, the longest first; {count} is part of it."""
    texts = {*templates(), *mode.values().values(), SCHEMA_TITLE, ADVICE_TITLE}
    texts |= {text for cue in catalogue().values() for text in (cue.text, cue.compact) if text}
    pieces = {piece for text in texts for piece in re.split(r"\{(?!count)\w+\}", text) if any(map(str.isalpha, piece))}
    return tuple(
        re.compile(re.escape(piece).replace(re.escape("{count}"), r"\d{1,3}"))
        for piece in sorted(pieces, key=lambda piece: (-len(piece), piece))
    )


def _holds(text: str, secret: str) -> bool:
    """True when the secret is a whole word in the text."""
    return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text) is not None
