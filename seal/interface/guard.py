"""The leak guard: no augmentation tells what only the reference knows (paper, section 3.3).

Secrets are the values, calls, results and states of a task's reference. Public is
what the policy may know without it: the tools' documents and the dialogue so far,
its own messages included. An augmentation leaks when it alters the observation
proper, or when what it adds holds a secret that is not public.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class InterfaceLeak(RuntimeError):
    """An augmented observation holds what only the reference knows; the run must stop."""


def leaves(value: Any) -> frozenset[str]:
    """Every scalar inside a value, as the texts in which it could be told (30.0 also as 30).

    Looks into mappings, lists and the attributes of objects (a simulator's state), each
    object once. True, False and None are no secrets: they are words of every schema.
    """
    found: set[str] = set()
    waiting, entered = [value], set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.add(item.strip())
        elif isinstance(item, int | float) and not isinstance(item, bool):
            found.add(str(item))
            if isinstance(item, float) and item.is_integer():
                found.add(str(int(item)))
        elif id(item) not in entered:
            entered.add(id(item))
            if isinstance(item, Mapping):
                waiting.extend(item.values())
            elif isinstance(item, list | tuple | set | frozenset):
                waiting.extend(item)
            elif hasattr(item, "__dict__"):
                waiting.extend(vars(item).values())
    return frozenset(found - {""})


def reference_secrets(
    calls: Iterable[tuple[str, Mapping[str, Any]]],
    results: Iterable[str] = (),
    states: Iterable[Any] = (),
) -> frozenset[str]:
    """What a reference knows: argument values, whole calls, results (whole and in parts), states.

    ``states`` are the simulators, or what they hold, before and after the reference ran.
    """
    found: set[str] = set()
    for name, arguments in calls:
        found.update(leaves(arguments))
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        found.update((f"{name}({shown})", json.dumps({"name": name, "arguments": arguments}, default=str)))
    for result in results:
        found.update(leaves(result))
        try:
            found.update(leaves(json.loads(result)))
        except ValueError:
            continue
    for state in states:
        found.update(leaves(state))
    return frozenset(found)


@dataclass(frozen=True)
class Leak:
    """One secret that an augmentation told, or "" when it altered the observation itself."""

    secret: str
    added: str


class LeakGuard:
    """Watches the augmentations of one episode.

    Secrets come from :func:`reference_secrets`. ``saw`` takes all that becomes public
    on the way: documents of tools, observations as the benchmark sends them, and the
    policy's messages.
    """

    def __init__(self, secrets: Iterable[str], public: Iterable[str] = ()) -> None:
        self._secrets = sorted(secrets)
        self._public = ""
        for text in public:
            self.saw(text)

    def saw(self, text: str) -> None:
        """Add a text that the policy has been shown, or has written itself."""
        self._public += "\n" + text

    def leaks(self, original: str, augmented: str) -> tuple[Leak, ...]:
        """Every leak of one augmentation, in a fixed order."""
        if not augmented.startswith(original):
            return (Leak("", augmented),)
        added = augmented[len(original) :]
        known = self._public + "\n" + original
        return tuple(
            Leak(secret, added)
            for secret in self._secrets
            if secret in added and _holds(added, secret) and not _holds(known, secret)
        )

    def check(self, original: str, augmented: str) -> None:
        """Raise InterfaceLeak when the augmentation leaks; otherwise note the observation as seen."""
        found = self.leaks(original, augmented)
        if found:
            what = f"{found[0].secret!r}" if found[0].secret else "a changed observation"
            raise InterfaceLeak(
                f"the learning interface told {what}, which only the reference knows: {found[0].added!r}"
            )
        self.saw(original)


def _holds(text: str, secret: str) -> bool:
    """True when the secret stands in the text as a word of its own."""
    return secret in text and re.search(rf"(?<![A-Za-z0-9_]){re.escape(secret)}(?![A-Za-z0-9_])", text) is not None


def public_documents(tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The tools' documents as public text: names, descriptions, arguments, and their parts."""
    return tuple(json.dumps(document, ensure_ascii=False) for document in tools)
