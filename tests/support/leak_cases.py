"""Generated augmentations that leak and that do not, and how the leak guard judges them.

python -m tests.support.leak_cases      # the figures of docs/how-it-works.md
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from env_service.environments.bfcl.catalog import Task, available_tools, load_tasks, revealed_tools
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.formats import format_names, get_format
from env_service.environments.bfcl.tools import Toolbox, argument_violations, parse_reference
from env_service.environments.bfcl.verifier import reference
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.feedback import observe_feedback
from seal.method.interface.guard import LeakGuard
from seal.method.interface.observation import observe_reveal, observe_start
from seal.method.interface.secrets import normal, numbers
from seal.method.interface.wording import PromptWording

FULL = Omega.of(list(catalogue()))
CARRIERS = ("For example, use {}.", "The right value here is {}.", "Try {} next.", "Expected: {}")
FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


@dataclass(frozen=True)
class Case:
    """One augmentation of a guarded episode."""

    guard: LeakGuard
    plain: str
    augmented: str


# --- augmentations that are as they should be ----------------------------------------


def episode_guard(task: Task, wording: PromptWording) -> LeakGuard:
    """The guard of an episode of a task."""
    return LeakGuard(BfclEnvironment().task_secrets(task), available_tools(task, 0), wording)


def legitimate(task: Task, mode: str, rng: random.Random, failures: int = 6) -> Iterator[Case]:
    """Yield the interface's additions when every cue is on and the policy fails in every way without the reference."""
    form, tools = get_format(mode), available_tools(task, 0)
    wording, guard = form.cue_wording, episode_guard(task, form.cue_wording)
    guard.saw(task.users[0] or "")
    start = form.system(tools)
    yield Case(guard, start, observe_start(start, tools, FULL, task.category, wording))
    toolbox, history = Toolbox(task), []
    for action in _failing(task, toolbox, tools, rng, failures):
        guard.saw_calls((call.name, call.arguments) for call in action.calls)
        plain = form.results([call.result for call in action.calls] or ["Error"])[-1]["content"]
        added = observe_feedback(plain, action, history, tools, FULL, task.category, wording)
        history += [action, action] if rng.random() < 0.3 else [action]
        yield Case(guard, plain, added)
    for turn in sorted(task.withheld):
        revealed = revealed_tools(task, turn)
        guard.reveal(revealed)
        plain = form.reveal(revealed)
        yield Case(guard, plain, observe_reveal(plain, revealed, FULL, task.category, wording))


def _failing(task, toolbox, tools, rng, count) -> Iterator[ActionEvidence]:
    documents = {tool["name"]: tool for tool in tools}
    yield ActionEvidence(refusals=("Tool call 1 is not valid JSON.",))
    hidden = [name for names in task.withheld.values() for name in names]
    for name in (rng.choice(sorted(documents)) + "_all", *hidden[:1]):
        yield ActionEvidence((CallEvidence(name, {"ä": 1}, False, (), "unavailable", f"name '{name}' is not defined"),))
    for name in rng.choices(sorted(documents), k=count):
        nodes = documents[name]["parameters"]["properties"]
        given = {key: _wrong(node, rng) for key, node in nodes.items() if rng.random() < 0.8}
        if rng.random() < 0.2:
            given[rng.choice(["zzz", "größe", "x" * 90])] = 1
        outcome = toolbox.call(name, given)
        yield ActionEvidence(
            (CallEvidence(name, given, True, argument_violations(name, given), outcome.error, outcome.text),)
        )


def _wrong(node, rng):
    word = rng.choice(["zzz", "/a/b", "", "0", "83"])
    many = [rng.choice([word, rng.randrange(100)]) for _ in range(rng.randrange(30))]
    return {
        "string": rng.choice([word, 7]),
        "integer": rng.choice([-7, 99, "x"]),
        "float": rng.choice([-7.5, 99.5, "x"]),
        "boolean": rng.choice([True, "yes"]),
        "array": rng.choice([many, [word], word]),
        "dict": rng.choice([{}, {"zzz": 1}]),
    }[node["type"]]


# --- augmentations that tell something of the reference ------------------------------


def leaking(task: Task, mode: str, rng: random.Random) -> Iterator[tuple[str, Case]]:
    """(kind of leak, case): one leak of each kind that the task has a secret for, after what the interface adds."""
    form, tools = get_format(mode), available_tools(task, 0)
    public = (json.dumps(tools) + (task.users[0] or "")).casefold()
    plain = form.system(tools)
    honest = observe_start(plain, tools, FULL, task.category, form.cue_wording)
    told = public + plain.casefold()
    for kind, text in _told(task, rng, told):
        guard = episode_guard(task, form.cue_wording)
        guard.saw(task.users[0] or "")
        yield kind, Case(guard, plain, f"{honest}\n{rng.choice(CARRIERS).format(text)}")


def _told(task: Task, rng: random.Random, told: str) -> Iterator[tuple[str, str]]:
    def hidden(values):
        return sorted({value for value in values if str(value).casefold() not in told}, key=str)

    calls = [parse_reference(call) for turn in task.reference for call in turn]
    arguments = [(key, value) for _, given in calls for key, value in given.items()]
    words = hidden(value for _, value in arguments if isinstance(value, str) and sum(map(str.isalnum, value)) >= 6)
    known = numbers(normal(told))
    figures = sorted(
        value
        for _, value in arguments
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1000 and value not in known
    )
    if words:
        word = rng.choice(words)
        yield "a value as it is", word
        yield "a value in another case", word.swapcase()
        yield "a value with zero-width characters", "\u200b".join(word)
        yield "a value in full-width characters", word.translate(FULL_WIDTH)
    if figures:
        figure = rng.choice(figures)
        yield "a number as it is", f"{figure}"
        yield "a number with separators", f"{figure:,}"
        yield "a number with more decimals", f"{float(figure):.3f}"
        yield "a number with an exponent", f"{float(figure):.10e}"
    name, given = rng.choice(calls)
    if given and any(str(value).casefold() not in told for value in given.values() if not isinstance(value, bool)):
        yield "a whole call", f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
    keys = hidden(key for key in _state_keys(task) if len(key) >= 4)
    if keys:
        yield "a key of the state", rng.choice(keys)
    states = sorted(
        word for word in BfclEnvironment().task_secrets(task).words if word not in told and 6 <= len(word) <= 40
    )
    if states:
        yield "a value of a result or a state", rng.choice(states)
    withheld = hidden(name for names in task.withheld.values() for name in names)
    if withheld:
        yield "a tool that is withheld", rng.choice(withheld)


def _state_keys(task: Task) -> set[str]:
    found, waiting = set(), [vars(each) for each in reference(task)[-1].instances.values()]
    inner = [value for state in waiting for value in state.values()]
    while inner:
        value = inner.pop()
        if isinstance(value, dict):
            found |= {key for key in value if isinstance(key, str)}
            inner += value.values()
        elif isinstance(value, list):
            inner += value
    return found


# --- the figures ---------------------------------------------------------------------


def judged(step: int = 4) -> tuple[Counter, dict[str, Counter]]:
    """Count the legitimate augmentations that alarm, and leaks by kind, over every step-th task, modes in turn."""
    modes, clean, leaks = format_names(), Counter(), {}
    for number, task in enumerate(list(load_tasks().values())[::step]):
        rng, mode = random.Random(task.id), modes[number % len(modes)]
        for case in legitimate(task, mode, rng):
            clean[_leaks(case)] += 1
            case.guard.saw(case.plain)
        for kind, case in leaking(task, mode, rng):
            leaks.setdefault(kind, Counter())[_leaks(case)] += 1
    return clean, leaks


def _leaks(case: Case) -> bool:
    return bool(case.guard.leaks(case.plain, case.augmented))


def table(step: int = 4) -> str:
    """Precision and recall as a Markdown table."""
    clean, leaks = judged(step)
    total = sum(leaks.values(), Counter())
    lines = ["| leak | cases | caught |", "| --- | --- | --- |"]
    for kind, verdicts in [*leaks.items(), ("all", total)]:
        lines.append(f"| {kind} | {verdicts.total()} | {verdicts[True] / verdicts.total():.2f} |")
    lines += ["", f"Legitimate augmentations: {clean.total()}, alarms: {clean[True]}."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
