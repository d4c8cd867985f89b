"""What a model is asked: to write the messages of a path, and to read calls out of messages."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Document, Task, available_tools, revealed_tools
from shelf.testbed.synthesis.llm.exploration import CallResult
from shelf.testbed.synthesis.llm.intent import Intent
from shelf.testbed.synthesis.llm.model import Messages

STYLES = (
    "brief and to the point",
    "polite and a little wordy",
    "casual, as in a chat with a friend",
    "in a hurry",
    "with a word on why it is needed",
    "precise and businesslike",
    "telling a small story around the request",
    "plain, in short sentences",
)
"""How a user may talk; one is drawn for each task."""

_WRITE = """\
You write what a user says to an assistant that has tools. You are given, for each turn, the calls that the assistant \
will make and what the user's message must and must not say. Write one message per turn, in plain English, as a person \
writes who wants something done and has never heard of tools, functions or parameters.

Rules:
- A message asks for exactly what its calls do, in their order, and for nothing else.
- Never write the name of a tool or of an argument, code, JSON, or a call.
- Give every value under "must say" word for word. You may put it in quotes.
- Never give a value under "must not say": the assistant has to find it out. Refer to it by what it is \
("the ticket I just opened", "at its current price").
- You may refer to a value under "said before" instead of repeating it, as long as only one thing can be meant.
- A setting that follows from a tool's document (a mode, a unit, a flag) is said by its meaning.

Answer with one JSON object and nothing else: {"messages": ["first message", "second message", ...]}"""

FROM_RESULT = "<result>"
"""What a reader writes for a value that only a result tells."""

_READ = f"""\
You read a conversation in which a user asks an assistant for things, and list the calls of the assistant's tools that \
the user's messages ask for, turn by turn. You see no results.

Rules:
- List for each turn the calls that do what its message asks, in the order in which they are to be made, look-ups for \
values that the message does not give included.
- If what a turn asks for cannot be done with the tools that are there, or if a value is missing, list no call for it; \
list the calls in the later turn that makes them possible.
- If a message gives credentials, list the login too. If it says what to do instead in case something fails, list both \
calls, the first choice first.
- Give every argument that the messages determine, exactly as they say it. For a value that only the result of an \
earlier call can tell write "{FROM_RESULT}".
- Leave out arguments that have a default and are not asked for.

Answer with one JSON object and nothing else: {{"turns": [[{{"name": "...", "arguments": {{...}}}}, ...], ...]}}, with \
one list for each turn, empty if it asks for no call."""

_PROPOSE = """\
An assistant has looked around in its environment and made the calls that you are given, with their results. Write \
what a user could have wanted such that these calls are what the assistant has to do: a conversation of one to four \
turns, each with the user's message and the numbers of the calls that do what it asks.

Rules:
- Take calls that belong together and leave the others out. A turn has at least one call; the numbers ascend over the \
whole conversation, and no call is taken twice.
- The chosen calls must work without the others.
- A message asks for exactly what its calls do, in their order, and for nothing else: each call must be needed to do \
it, and its result wanted.
- The user has never heard of tools, functions or parameters: never write the name of a tool or of an argument, code, \
JSON, or a call.
- The user says every value that the assistant cannot find out. A value that the result of a chosen call shows is not \
said: refer to it by what it is.
- Plain English, as a person writes who wants something done.

Answer with one JSON object and nothing else: {"turns": [{"message": "...", "calls": [1, 2]}, ...]}"""

_NOTES = {
    "without_tool": "The calls cannot be made yet; the user does not know that and asks as usual.",
    "without_value": "The user forgets one value, so the calls cannot be made yet.",
    "value": "The user only adds the value that was missing; the calls are those of the turn before.",
}


_MOST_SHOWN = 600
"""Characters of a result."""


def writing(intents: Sequence[Intent], gists: Sequence[str | None], task: Task, style: str) -> Messages:
    """The request for the messages of a path.

    gists: by turn, another wording of what is asked for, where the calls alone do not tell.
    """
    used = {call.name for intent in intents for call in intent.about}
    tools = [tool for tool in available_tools(task, len(task.users)) if tool["name"] in used]
    spoken = [(intent, gist) for intent, gist in zip(intents, gists, strict=True) if intent.asking is not None]
    parts = [_documents("The tools", tools), f"The user's style: {style}."]
    parts += [_turn(number, intent, gist) for number, (intent, gist) in enumerate(spoken, start=1)]
    parts.append(f"Write {len(spoken)} message{'s' if len(spoken) > 1 else ''}.")
    return _dialogue(_WRITE, "\n\n".join(parts))


def proposing(made: Sequence[CallResult]) -> Messages:
    """The request for what a user could have wanted, given successful calls and their results."""
    lines = [f"{number}. {each.call}\n   -> {_shortened(each.result)}" for number, each in enumerate(made, start=1)]
    return _dialogue(_PROPOSE, "\n".join(["The calls:", *lines]))


def reading(users: Sequence[str | None], task: Task) -> Messages:
    """The request for the calls of messages; it shows the tools as the task does, and nothing of its reference."""
    parts = [_documents("The tools", available_tools(task, 0))]
    for turn, user in enumerate(users):
        if user is None:
            parts.append(_documents(f"Turn {turn + 1}: the user says nothing; new tools", revealed_tools(task, turn)))
        else:
            parts.append(f"Turn {turn + 1}, the user:\n{user}")
    parts.append(f"List the calls of the {len(users)} turns.")
    return _dialogue(_READ, "\n\n".join(parts))


def _turn(number: int, intent: Intent, gist: str | None) -> str:
    lines = [f"Turn {number}"]
    lines += [f"note: {_NOTES[intent.asking]}"] if intent.asking in _NOTES else []
    fails = "   (fails; the calls after it are what is done about it)"
    lines += ["calls:", *(f"  {call}{'' if call.succeeded else fails}" for call in intent.about)]
    lines += [f"must say: {_listed(intent.say)}"] if intent.say else []
    lines += [f"said before: {_listed(intent.before)}"] if intent.before else []
    lines += [f"must not say: {_listed(intent.secret)}"] if intent.secret else []
    lines += [f'the same request in other words (do not copy them): "{gist}"'] if gist else []
    return "\n".join(lines)


def _shortened(result: str) -> str:
    return result if len(result) <= _MOST_SHOWN else f"{result[:_MOST_SHOWN]} ..."


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(json.dumps(value, ensure_ascii=False) for value in values))


def _documents(title: str, tools: Iterable[Document]) -> str:
    shown = [{name: tool[name] for name in ("name", "description", "parameters")} for tool in tools]
    return "\n".join([f"{title}:", *(json.dumps(tool, ensure_ascii=False) for tool in shown)])


def _dialogue(system: str, user: str) -> Messages:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
