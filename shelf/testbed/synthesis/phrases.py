"""The phrases of `phrases.toml`, each list divided into those for training and those held out."""

import random
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from shelf.testbed.synthesis.held_out import divide

_CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")


@dataclass(frozen=True)
class Phrase:
    """A clause (an imperative that can be joined to others) or a whole sentence."""

    text: str
    is_sentence: bool

    def vary(self, rng: random.Random) -> str:
        """The text with one branch of every [choice|of|words]."""
        return _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), self.text)


@dataclass(frozen=True)
class PhraseList:
    """The phrases for one purpose."""

    training: tuple[Phrase, ...]
    held_out: tuple[Phrase, ...]

    def draw(self, rng: random.Random, held_out: float) -> tuple[str, bool]:
        """A phrase in one variant, and whether it is a sentence; held_out: the probability of a held-out one."""
        phrase = rng.choice(self.held_out if held_out and rng.random() < held_out else self.training)
        return phrase.vary(rng), phrase.is_sentence


@dataclass(frozen=True)
class Phrasebook:
    """Every list of phrases.

    say: by operation. ask, give: by (operation, slot); the slot's value is left out and
    then given. The grammar puts the others around and into the clauses.
    """

    say: Mapping[str, PhraseList]
    ask: Mapping[tuple[str, str], PhraseList]
    give: Mapping[tuple[str, str], PhraseList]
    frames: Mapping[str, PhraseList]
    credentials: Mapping[str, PhraseList]
    before: Mapping[str, PhraseList]
    new: Mapping[str, PhraseList]
    by_id: Mapping[str, PhraseList]
    small_talk: Mapping[str, PhraseList]

    def askable(self, operation: str) -> tuple[str, ...]:
        """The slots of an operation whose value a message may leave out."""
        return tuple(slot for name, slot in self.ask if name == operation)


@cache
def phrasebook() -> Phrasebook:
    """The phrases of phrases.toml."""
    data = tomllib.loads(resources.files("shelf.testbed.synthesis").joinpath("phrases.toml").read_text("utf-8"))
    lists: dict[tuple[str, str | tuple[str, str]], list[Phrase]] = {}
    for name, table in data.pop("say").items():
        lists["say", name] = _spoken(table)
    for kind in ("ask", "give"):
        for name, slots in data.pop(kind).items():
            lists |= {(kind, (name, slot)): _spoken(table) for slot, table in slots.items()}
    for kind, table in data.items():
        lists |= {(kind, key): [Phrase(text, is_sentence=True) for text in texts] for key, texts in table.items()}
    divided = divide({f"{kind} {key}": [phrase.text for phrase in phrases] for (kind, key), phrases in lists.items()})
    tables: dict[str, dict] = {}
    for (kind, key), phrases in lists.items():
        training, held_out = divided[f"{kind} {key}"]
        sides = (tuple(phrase for phrase in phrases if phrase.text in side) for side in (training, held_out))
        tables.setdefault(kind, {})[key] = PhraseList(*sides)
    return Phrasebook(**tables)


def _spoken(table: Mapping[str, list[str]]) -> list[Phrase]:
    clauses = [Phrase(text, is_sentence=False) for text in table.get("clauses", ())]
    return clauses + [Phrase(text, is_sentence=True) for text in table.get("sentences", ())]
