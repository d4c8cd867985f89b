"""A scripted model that explores well: it acts, proposes two turns, and reads its own words."""

import json
from functools import cache

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.formats import get_format
from shelf.testbed.synthesis.llm.explorer import PROMPT_MODE, Playground, seed_tasks
from shelf.testbed.synthesis.llm.words import leaves
from shelf.testbed.tests.synthesis.scripted_model import MODEL, Asked

SCENARIOS = (0, 2, 46)
"""Training scenarios of the file system, of which the explorer below makes something."""

PLANS = {
    0: (("ls", {}), ("mkdir", {"dir_name": "zeppelin"}), ("touch", {"file_name": "quokka.txt"})),
    1: (
        ("touch", {"file_name": "walnut.csv"}),
        ("echo", {"content": "seven green lanterns", "file_name": "walnut.csv"}),
        ("pwd", {}),
    ),
}
"""Calls of the explorer in its first and in its second task of a scenario."""


@cache
def seeds() -> tuple[Task, ...]:
    return seed_tasks(SCENARIOS)


def number_of(asked: Asked) -> int:
    return int(asked.name.split("/")[1])


def plan(asked: Asked):
    return PLANS[number_of(asked) // len(SCENARIOS) % 2]


def render(*calls) -> str:
    return "\n".join(get_format(PROMPT_MODE).render_call(name, arguments) for name, arguments in calls)


def worked(asked: Asked) -> list[tuple[str, dict]]:
    """The successful calls of the plan."""
    playground = Playground(seeds()[number_of(asked) % len(SCENARIOS)])
    return [call for call in plan(asked) if playground.make(*call).call.succeeded]


def asking_for(name, arguments) -> str:
    wish = {"ls": "show me what is here", "pwd": "tell me where I am", "mkdir": "add a folder", "touch": "start a file"}
    values = " and ".join(f"'{leaf}'" for leaf in leaves(arguments))
    return f"{wish.get(name, 'write down')} {values}".strip()


def good(asked: Asked) -> str:
    """A good model: acts, proposes two turns, and reads its own words well."""
    calls = worked(asked)
    step = asked.name.rsplit("/", 1)[1]
    if step == "0":
        return f"<think>Let me see.</think>\n{render(*plan(asked), ('cat', {'file_name': 'no_such_file'}))}"
    if step == "propose":
        first = f"Please {asking_for(*calls[0])} for me and my {number_of(asked)} friends."
        rest = f"Then {' and '.join(asking_for(*call) for call in calls[1:])}, will you?"
        turns = [{"message": first, "calls": [1]}, {"message": rest, "calls": list(range(2, len(calls) + 1))}]
        return json.dumps({"turns": turns})
    if step == "read":
        listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return json.dumps({"turns": [listed[:1], listed[1:]]})
    return "I am done."


def command(endpoint, out, *more):
    where = ["--model", MODEL, "--base-url", endpoint.url, "--scenarios", *SCENARIOS]
    return ["explore", *where, "--concurrency", 2, "--out", out, *more]
