"""Draws of values: words, names, texts, amounts. All randomness comes from the given generator."""

import random
from collections.abc import Collection
from functools import cache
from importlib import resources
from typing import TypeVar

from shelf.testbed.synthesis.held_out import word_is_held_out

Item = TypeVar("Item")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PEOPLE = _listed(
    """
    Alice Bob Catherine Daniel Emma Frank Grace Henry Isabel Jack Kelly Liam Maria Nora Oscar Paula Quentin Robert Susan
    Thomas Ursula Victor Wendy Xavier Yvonne Zack Michael Sarah John Jane Peter Julia Martin Laura Simon
    """
)
_ONSETS = _listed("b bl br c ch d dr f fl g gr h j k l m n p pl pr r s sh sk sl st t th tr v w z")
_NUCLEI = _listed("a e i o u ai ea oo ou")
_CODAS = ("", "n", "r", "l", "s", "t", "m", "x", "nd", "rk")
_INVENTED = 0.25
_TITLES = ("{a} {b}", "{a} {b}", "{a}", "{a} {b} {c}", "The {a} {b} is {c}", "New {a} for {b}", "No {a} without {b}")
_SUFFIXES = (".txt", ".txt", ".pdf", ".csv", ".md")


@cache
def word_list() -> tuple[str, ...]:
    """The words of words.txt."""
    lines = resources.files("shelf.testbed.synthesis").joinpath("words.txt").read_text("utf-8").splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def _side(held_out: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The held-out words and first names, or the others."""
    return tuple(tuple(word for word in words if word_is_held_out(word) == held_out) for words in (word_list(), PEOPLE))


class Values:
    """Draws values. held_out: use the words that training tasks never use."""

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self.rng, self.integer, self.sample = rng, rng.randint, rng.sample
        self._held_out = held_out
        self._words, self._people = _side(held_out)

    def pick(self, items: Collection[Item]) -> Item | None:
        """One of the items, None if there is none."""
        return self.rng.choice(list(items)) if items else None

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.rng.random() < share

    def amount(self, low: int, high: int, unit: int = 1) -> float:
        """A multiple of `unit` as a float."""
        return float(self.rng.randint(low, high) * unit)

    def word(self) -> str:
        """A word of the list, or an invented one that can be pronounced."""
        if self.rng.random() >= _INVENTED:
            return self.rng.choice(self._words)
        while True:
            choice = self.rng.choice
            word = "".join(choice(_ONSETS) + choice(_NUCLEI) + choice(_CODAS) for _ in range(choice((2, 2, 3))))
            if word_is_held_out(word) == self._held_out:
                return word

    def person(self) -> str:
        """A first name."""
        return self.rng.choice(self._people) if self.chance(0.5) else self.word().capitalize()

    def user_name(self) -> str:
        """A login name."""
        return self.word() if self.chance(0.5) else f"{self.word()}{self.integer(1, 9)}"

    def secret(self) -> str:
        """A password."""
        return f"{self.word()}{self.integer(10, 99)}"

    def text(self) -> str:
        """A short text."""
        a, b, c = self.word(), self.word(), self.word()
        return self.rng.choice(_TITLES).format(a=a, b=b, c=c)

    def title(self) -> str:
        """One or two words."""
        return " ".join(self.word() for _ in range(self.rng.choice((1, 2, 2))))

    def file_name(self, like: str | None = None) -> str:
        """A file name, with the suffix of another one if given."""
        suffix = like[like.rindex(".") :] if like and "." in like else self.rng.choice(_SUFFIXES)
        return (self.word() if self.chance(0.8) else f"{self.word()}_{self.word()}") + suffix

    def date(self, years: tuple[int, int] = (2024, 2027)) -> str:
        """A date as YYYY-MM-DD."""
        return f"{self.integer(*years)}-{self.integer(1, 12):02d}-{self.integer(1, 28):02d}"
