"""Lessons: tasks as dialogues of a warm start, whole or a single call at a time.

Half of what a policy of two million parameters has to learn is to read: the names of
arguments in a schema cue, what is missing in the answer to a mistake. So a share of the
lessons are training episodes with random cues, in some of them the arguments' names are
exchanged, and in some the assistant errs once, is told so, and corrects it.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from env_service.environments.bfcl.catalog import Task, all_tools, available_tools
from env_service.environments.bfcl.formats import get_format
from seal.interface.cues import EVERYWHERE, Omega, catalogue
from seal.interface.schema_cue import compact_schema
from shelf.testbed.policy.dialogue import (
    PROMPT_MODE,
    Mistake,
    Transcript,
    broken_arguments,
    play,
    slip_text,
    tool_names,
)
from shelf.testbed.policy.renaming import CUED, Renaming
from shelf.testbed.synthesis.path import PathCall
from shelf.testbed.synthesis.verify import Calls

_CALL = re.compile(r"<tool_call>(\{.*\})</tool_call>", re.DOTALL)
_RENAMED_TOOLS = 0.8
_RENAMED_WHEN_READING = 0.9
_TOLD_BY_ERROR, _WITH_FEEDBACK, _ALL_WRONG = 0.3, 0.6, 0.5
_OTHER_TOOLS = (3, 7)
_ACTIVE = (0.15, 0.3, 0.6, 1.0)
"""Shares of the cues that are active: in a run all at first, later those of the labels that remain."""

Message = Mapping[str, str]


@dataclass(frozen=True)
class LessonSettings:
    """How tasks become lessons.

    cue_share: share of lessons that are training episodes, with random cues; the others are evaluation episodes.
    slip_share: share of the former in which the assistant makes a mistake, reads the answer and corrects it (the
    mistake itself is not learnt); plain_slip_share: of the latter. renamed_share: share of lessons with a schema
    cue in which most tools' arguments are renamed.
    """

    cue_share: float = 0.55
    slip_share: float = 0.35
    plain_slip_share: float = 0.1
    renamed_share: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}.")


def lesson(task: Task, calls: Calls, settings: LessonSettings, rng: random.Random) -> Transcript | None:
    """One dialogue of a task; None if nothing in it tells what the arguments of a CUED tool are called."""
    transcript = _dialogue(task, calls, settings, rng)
    return transcript if transcript is not None and _told(transcript) else None


def reading_lessons(task: Task, calls: Calls, rng: random.Random) -> Iterator[Transcript]:
    """Requests with the call that answers them, under a schema cue with other names for most tools' arguments.

    Only where the request has all of the call's values, and the cue all of its arguments.
    """
    renaming = _shown(task, _RENAMED_WHEN_READING, rng)
    transcript = play(task, calls, Omega.of({EVERYWHERE: ["schema_required"]}), renaming=renaming)
    if transcript is None:
        return
    system = transcript.messages[0]
    entries = dict(entry.partition(" ")[::2] for entry in _entries(system["content"].rpartition("Required: ")[2]))
    for request, call, content in _requests(transcript):
        names = entries.get(content["name"], "").split()
        if content["arguments"] and set(content["arguments"]) <= set(names):
            yield Transcript((system, request, call))


def _dialogue(task: Task, calls: Calls, settings: LessonSettings, rng: random.Random) -> Transcript | None:
    cued = {name for turn in calls for name, arguments in turn if name in CUED and arguments}
    if cued and rng.random() < _TOLD_BY_ERROR:
        return _told_by_an_error(task, calls, cued, rng)
    if not cued and rng.random() >= settings.cue_share:
        return _with_slip(task, calls, None, settings.plain_slip_share, rng)
    names = drawn_cues(rng)
    if cued:
        names.add("schema_required")
    omega = Omega.of({EVERYWHERE: sorted(names)})
    if "schema_required" not in names:
        return _with_slip(task, calls, omega, settings.slip_share, rng)
    renaming = _renaming(task, settings, rng)
    if cued <= renaming.names.keys():
        return play(task, calls, omega, renaming=renaming)
    return None


def drawn_cues(rng: random.Random) -> set[str]:
    """The names of cues that are active in a lesson."""
    share = rng.choice(_ACTIVE)
    return {cue.name for cue in catalogue().values() if cue.taxonomy in (None, "paper") and rng.random() < share}


def few_tools(task: Task, rng: random.Random) -> Task:
    """The task with only the tools that it needs and a few others, so that a compact schema cue shows them all."""
    every = sorted(document["name"] for document in all_tools(task))
    kept = {call.split("(")[0] for calls in task.reference for call in calls}
    kept |= {name for names in task.withheld.values() for name in names}
    kept |= set(rng.sample(every, min(len(every), rng.randint(*_OTHER_TOOLS))))
    return replace(task, hidden=frozenset(every) - kept)


def micro_lessons(transcript: Transcript) -> Iterator[Transcript]:
    """Requests with the call that answers them, nothing before: only where the request has all of its values."""
    for request, call, content in _requests(transcript):
        if content["name"] not in CUED:
            yield Transcript((request, call))


def _requests(transcript: Transcript) -> Iterator[tuple[Message, Message, Mapping[str, Any]]]:
    """Requests that hold all values of the call that follows them, that call, and what it says."""
    messages = transcript.messages
    for position in range(1, len(messages) - 1):
        request, call = messages[position], messages[position + 1]
        if call["role"] != "assistant" or position + 1 in transcript.slips or "<tool_response>" in request["content"]:
            continue
        match = _CALL.fullmatch(call["content"])
        if match is None:
            continue
        content = json.loads(match[1])
        if all(_stands_in(value, request["content"]) for value in _leaves(content)):
            yield request, call, content


def _with_slip(task: Task, calls: Calls, omega: Omega | None, share: float, rng: random.Random) -> Transcript | None:
    places = [(t, i) for t, made in enumerate(calls) for i, call in enumerate(made) if call[0] not in CUED]
    if places and rng.random() < share:
        turn, index = rng.choice(places)
        slip = Mistake(turn, index, *slip_text(PathCall(*calls[turn][index]), tool_names(), rng))
        transcript = play(task, calls, omega, slip)
        if transcript is not None:
            return transcript
    return play(task, calls, omega)


def _told_by_an_error(task: Task, calls: Calls, cued: set[str], rng: random.Random) -> Transcript | None:
    """The first call of a CUED tool goes wrong, and the answer, with or without feedback, names what is missing."""
    if len(cued) > 1:
        return None
    (tool,) = cued
    turn, index = next((t, i) for t, made in enumerate(calls) for i, call in enumerate(made) if call[0] == tool)
    omega = None
    if rng.random() < _WITH_FEEDBACK:
        names = drawn_cues(rng) - {"schema_required"} | {"feedback_error"}
        omega = Omega.of({EVERYWHERE: sorted(names)})
    arguments = calls[turn][index][1]
    guessed = Renaming.draw([tool], rng).arguments(tool, arguments)  # as by a policy that knows none of the names
    wrong = guessed if rng.random() < _ALL_WRONG else broken_arguments(arguments, rng)
    slip = Mistake(turn, index, tool, get_format(PROMPT_MODE).render_call(tool, wrong))
    return play(task, calls, omega, slip, Renaming.draw([tool], rng))


def _renaming(task: Task, settings: LessonSettings, rng: random.Random) -> Renaming:
    """New names for CUED tools that the schema cue shows, and in a share of the lessons for most others."""
    return _shown(task, _RENAMED_TOOLS if rng.random() < settings.renamed_share else 0.0, rng)


def _shown(task: Task, others: float, rng: random.Random) -> Renaming:
    """New names for the CUED tools that the schema cue shows, and for a share of the others."""
    latest = max(task.withheld, default=0)
    chosen = [
        document["name"]
        for document in available_tools(task, latest)
        if document["name"] in CUED or rng.random() < others
    ]
    renaming = Renaming.draw(chosen, rng)
    shown = set()
    for turn in {0, *task.withheld}:
        tools = [renaming.document(document) for document in available_tools(task, turn)]
        line = compact_schema(tools if not turn else tools[-len(task.withheld[turn]) :], {"schema_required"})
        shown |= {entry.split(" ")[0] for entry in _entries(line.removeprefix("Required: "))}
    # The cue is cut at its limit and names required arguments only: others keep their names, unless nothing tells them.
    return Renaming({tool: names for tool, names in renaming.names.items() if tool in shown})


def _entries(line: str) -> Sequence[str]:
    """The entries of a schema cue: a tool and its required arguments each."""
    return line.removesuffix("...").split("; ")


def _told(transcript: Transcript) -> bool:
    """Whether every name of an argument of a CUED tool stands before the call that uses it."""
    read = ""
    for position, message in enumerate(transcript.messages):
        match = _CALL.fullmatch(message["content"]) if position not in transcript.slips else None
        if message["role"] != "assistant":
            request = message["role"] == "user" and not re.search("<tool_response>|Required: ", message["content"])
            read += "" if request else message["content"] + "\n"
        elif match and not _tells(read, json.loads(match[1])):
            return False
    return True


def _tells(text: str, call: Mapping[str, Any]) -> bool:
    names = call["arguments"] if call["name"] in CUED else ()
    return all(re.search(rf"\b{name}\b", text) for name in names)


def _leaves(content: Any) -> Sequence[Any]:
    values = content["arguments"].values()
    return [leaf for value in values for leaf in (value if isinstance(value, list) else [value])]


def _stands_in(value: Any, text: str) -> bool:
    return isinstance(value, bool) or str(value).lower().removesuffix(".0") in text.lower()
