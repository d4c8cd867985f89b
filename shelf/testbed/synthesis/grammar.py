"""The writer `grammar`: phrases in frames, joined by connectives, with references to earlier turns. No model."""

import random
import re
from collections.abc import Sequence

from seal.records.benchmark import Level
from shelf.testbed.synthesis.held_out import HELD_OUT_PHRASES
from shelf.testbed.synthesis.path import CallPath, Clause, PathTurn, Slot
from shelf.testbed.synthesis.phrases import PhraseList, phrasebook

_SLOT = re.compile(r"\{(\w)\}")
_QUOTED_NAMES = 0.75
_REFER_BACK = 0.5
_SMALL_TALK = 0.2


class Grammar:
    """Writes messages from the phrasebook."""

    name = "grammar"
    """The writer in the provenance of a task."""

    def write(self, path: CallPath, level: Level, rng: random.Random) -> tuple[str | None, ...]:
        """One message per turn of the path, None for the turn in which the environment reveals tools."""
        message = _Message(rng, HELD_OUT_PHRASES[level])
        return tuple(None if turn is None else message.of(turn) for turn in path.turns)


class _Message:
    """The messages of one task."""

    def __init__(self, rng: random.Random, held_out: float) -> None:
        self._rng = rng
        self._held_out = held_out
        self._book = phrasebook()

    def of(self, turn: PathTurn) -> str:
        """The message of a turn."""
        said = self._request([self._clause(clause, turn) for clause in turn.clauses])
        if turn.login is not None:
            credentials = self._draw(self._book.credentials[turn.login.class_name])
            aside = credentials.format(u=self._quoted(turn.login.user), p=self._quoted(turn.login.password))
            said = self._beside(said, aside, 0.4)
        if turn.asking != "value" and self._rng.random() < _SMALL_TALK:
            said = self._beside(said, self._draw(self._book.small_talk[turn.class_name]), 0.8)
        return said

    def _beside(self, said: str, other: str, first: float) -> str:
        return f"{other} {said}" if self._rng.random() < first else f"{said} {other}"

    def _clause(self, clause: Clause, turn: PathTurn) -> tuple[str, bool]:
        key = (clause.operation, turn.left_out)
        if turn.asking == "without_value":
            phrases = self._book.ask[key]
        elif turn.asking == "value":
            phrases = self._book.give[key]
        else:
            phrases = self._book.say[clause.operation]
        text, is_sentence = phrases.draw(self._rng, self._held_out)
        return _SLOT.sub(lambda match: self._slot(clause.slots[match[1]]), text), is_sentence

    def _request(self, parts: Sequence[tuple[str, bool]]) -> str:
        if any(is_sentence for _, is_sentence in parts):
            said = (text if is_sentence else self._framed(text) for text, is_sentence in parts)
            return " ".join(text[0].upper() + text[1:] for text in said)
        joined = parts[0][0]
        for text, _ in parts[1:]:
            joined = _filled(self._draw(self._book.frames["join"]), a=joined, b=text)
        return self._framed(joined)

    def _framed(self, clause: str) -> str:
        frame = self._draw(self._book.frames["request"])
        said = _filled(frame, c=clause, C=clause[0].upper() + clause[1:])
        return said[0].upper() + said[1:]

    # --- values -------------------------------------------------------------------

    def _slot(self, slot: Slot) -> str:
        if slot.known == "new" and slot.thing in self._book.new:
            return self._draw(self._book.new[slot.thing])
        if slot.known == "before" and slot.thing in self._book.before and self._rng.random() < _REFER_BACK:
            return self._draw(self._book.before[slot.thing])
        if slot.thing in self._book.by_id:
            return _filled(self._draw(self._book.by_id[slot.thing]), i=str(slot.value))
        if slot.style == "name":
            return self._quoted(str(slot.value))
        if slot.style == "text":
            return f"'{slot.value}'"
        if slot.style == "amount" and float(slot.value).is_integer() and self._rng.random() < 0.8:
            return str(int(slot.value))
        if slot.style == "list":
            items = [str(item) for item in slot.value]
            return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))
        return str(slot.value)

    def _quoted(self, text: str) -> str:
        return f"'{text}'" if self._rng.random() < _QUOTED_NAMES else text

    def _draw(self, phrases: PhraseList) -> str:
        return phrases.draw(self._rng, self._held_out)[0]


def _filled(frame: str, **texts: str) -> str:
    """The frame with its places filled; braces in the texts stay as they are."""
    return _SLOT.sub(lambda match: texts[match[1]], frame)
