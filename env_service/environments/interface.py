"""The interface in the parameters of an episode: which splits may have one, and what it makes of unreadable calls."""

from typing import Any, Literal

from seal.interface.cues import Omega, catalogue

EVALUATION_SPLITS = ("val", "validation", "validate", "test", "eval", "evaluation")

ParseErrors = Literal["end_turn", "feedback", "end_episode"]
"""What an unreadable call does: ends the user turn, is answered with what is wrong, or ends the episode."""


def permitted(omega: Omega | Any | None, split: str) -> Omega | None:
    """The interface as sent, or made already; ValueError for one on an evaluation split, or with a key at fault."""
    if omega is None:
        return None
    if split.lower() in EVALUATION_SPLITS:
        raise ValueError(f"params: split {split!r} is evaluated without an interface; leave omega out.")
    return omega if isinstance(omega, Omega) else Omega.from_json(omega)


def parse_errors(omega: Omega | None, category: str) -> ParseErrors:
    """By default feedback while a cue gives feedback to tasks of this category, else the end of the turn."""
    gives = omega is not None and any(catalogue()[cue].kind == "feedback" for cue in omega.for_category(category))
    return "feedback" if gives else "end_turn"
