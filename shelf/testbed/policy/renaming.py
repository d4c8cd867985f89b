"""Argument names exchanged for random ones, so that a policy has to read them.

A policy that has always seen `cd` with `folder` calls it so by heart and never looks at a
schema cue. In a part of the warm start the names are therefore exchanged, in what the
cue or an error says and in the calls alike; the environment still gets the real ones.
The tools in CUED appear in no other way: what their arguments are called stands nowhere
but in a cue or an error.
"""

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import CLASSES, Document, documents

CUED = frozenset(
    (
        *("mention", "follow_user", "unfollow_user", "get_tweet", "get_user_tweets", "search_tweets"),
        *("get_tweet_comments", "get_user_stats", "add_contact", "search_messages", "edit_ticket"),
        *("withdraw_funds", "notify_price_change", "filter_stocks_by_price", "get_symbol_by_name"),
        *("gallon_to_liter", "setHeadlights", "displayCarStatus", "display_log", "adjustClimateControl"),
        *("setCruiseControl", "register_credit_card", "power", "percentage", "round_number"),
        *("si_unit_conversion", "imperial_si_conversion", "absolute_value", "max_value", "min_value", "sum_values"),
    )
)
"""Tools that few training scenarios of the benchmark need: the warm start never shows the names of their arguments."""

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_COMPOUND = 0.4


@cache
def argument_names() -> Mapping[str, tuple[str, ...]]:
    """The names of every documented tool's arguments, by tool."""
    return {
        document["name"]: tuple(document["parameters"]["properties"])
        for name in CLASSES
        for document in documents(name)
    }


@dataclass(frozen=True)
class Renaming:
    """names: by tool, the new name of each of its arguments. A tool without an entry keeps its own."""

    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def draw(cls, tools: Collection[str], rng: random.Random) -> "Renaming":
        """Random names for the arguments of these tools, none of them a name that the tool has itself."""
        known = sorted({name for names in argument_names().values() for name in names})
        return cls({tool: _exchange(argument_names()[tool], known, rng) for tool in tools})

    def document(self, document: Document) -> Document:
        """The document of a tool as a renamed tool would have it."""
        names = self.names.get(document["name"])
        if names is None:
            return document
        parameters = document["parameters"]
        renamed = {
            **parameters,
            "properties": {names.get(name, name): value for name, value in parameters["properties"].items()},
            "required": [names.get(name, name) for name in parameters.get("required", ())],
        }
        return {**document, "parameters": renamed}

    def arguments(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call under their new names; those that the tool does not know stay."""
        names = self.names.get(tool, {})
        return {names.get(name, name): value for name, value in arguments.items()}

    def answer(self, tool: str, text: str) -> str:
        """What the environment says of a call of `tool`, with the new names in place of the old."""
        names = self.names.get(tool, {})
        return _WORD.sub(lambda match: names.get(match[0], match[0]), text) if names else text


REAL_NAMES = Renaming()
"""Every tool keeps the names of its arguments."""


def _exchange(own: tuple[str, ...], known: list[str], rng: random.Random) -> dict[str, str]:
    new: list[str] = []
    while len(new) < len(own):
        name = rng.choice(known)
        if rng.random() < _COMPOUND:
            name = f"{name.split('_')[0]}_{rng.choice(known).split('_')[-1]}"
        if name not in new and name not in own:
            new.append(name)
    return dict(zip(own, new, strict=True))
