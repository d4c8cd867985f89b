"""Single faults in perfect runs, with the label that each must get.

The expected label comes from what was injected, from the paper's definitions
(Table 5) and from the package's own checker; it never asks the rules of
`seal.method.diagnosis` nor what our episode recorded. So the two can disagree.
"""

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import state_checker

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import Document, Task, available_tools, load_tasks, revealed_tools
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.formats import format_names, get_format
from env_service.environments.bfcl.python_calls import write_call
from env_service.environments.bfcl.tools import Toolbox
from seal.method import labels
from shelf.authoring.tests import bfcl_official as official

Turns = list[list[Call]]

_LISTED = re.compile(r"Enum|[Oo]ptions|\w/\w|' for |one of|can be|must be", re.IGNORECASE)
"""Marks of a description that lists the values of its argument."""

STEP_LIMIT = 40
"""Room for the longest reference, one call per message."""

_MODES = tuple(name for name in format_names() if name != "compact_arguments")
"""The modes whose calls differ; compact_arguments reads and writes them as compact does."""


@dataclass(frozen=True)
class InjectedFault:
    """One fault: the calls of every turn after it, and how it was made.

    turn: where it was injected. skipped: tools of the turn's reference that are not
    called any more. broken: the label that the definition gives when the turn fails,
    "" when the kind of failure decides. text: what is said in place of the turn's calls.
    cut, loop: a length limit cuts the message after the turn's calls, or the last of
    them is repeated until the step limit.
    """

    kind: str
    turn: int
    turns: Turns
    broken: str = ""
    skipped: tuple[str, ...] = ()
    text: str | None = None
    cut: bool = False
    loop: bool = False
    mode: str = "compact"

    @property
    def messages(self) -> list[list[tuple[str, bool]]]:
        """(text, whether a length limit cut it) of each assistant message, by turn."""
        written = get_format(self.mode).render_call
        messages = [[*((written(*call), False) for call in calls), ("Done.", False)] for calls in self.turns]
        if self.text is not None:
            messages[self.turn] = [(self.text, False)]
        elif self.cut:
            messages[self.turn][-1] = ("I will now go on with", True)
        elif self.loop:
            messages[self.turn][-1:] = [messages[self.turn][-2]] * (STEP_LIMIT + 1)
        return messages


# --- injecting -----------------------------------------------------------------------


@dataclass
class _Site:
    """A place for a fault: one call of a task's reference, or a turn in which nothing should be called."""

    task: Task
    turn: int
    at: int
    rng: random.Random
    turns: Turns = field(default_factory=list)

    @property
    def calls(self) -> list[Call]:
        return self.turns[self.turn]

    @property
    def call(self) -> Call:
        return self.calls[self.at]

    def put(self, kind: str, calls: Sequence[Call], **how: Any) -> InjectedFault:
        """The fault that makes these the turn's calls."""
        return InjectedFault(
            kind, self.turn, [list(calls) if i == self.turn else t for i, t in enumerate(self.turns)], **how
        )

    def replaced(self, kind: str, call: Call, **how: Any) -> InjectedFault:
        """The fault that exchanges the call."""
        return self.put(kind, [*self.calls[: self.at], call, *self.calls[self.at + 1 :]], **how)


@cache
def _known() -> dict[str, list[Call]]:
    """Every call of the references by tool, each once."""
    known: dict[str, dict[str, Call]] = {}
    for task in load_tasks().values():
        for call in (call for turn in BfclEnvironment().calls(task) for call in turn):
            known.setdefault(call[0], {})[json.dumps(call, sort_keys=True, default=str)] = call
    return {name: list(calls.values()) for name, calls in known.items()}


def _document(site: _Site) -> Document:
    return next(d for d in available_tools(site.task, len(site.turns)) if d["name"] == site.call[0])


def _other_tool_call(site: _Site, but: str = "") -> Call | None:
    visible = [document["name"] for document in available_tools(site.task, site.turn)]
    names = [name for name in visible if name != but and name in _known()]
    return site.rng.choice(_known()[site.rng.choice(names)]) if names else None


def _value(site: _Site) -> InjectedFault | None:
    name, arguments = site.call
    for key in site.rng.sample(sorted(arguments), len(arguments)):
        others = [call[1][key] for call in _known()[name] if key in call[1] and call[1][key] != arguments[key]]
        others = [value for value in others if type(value) is type(arguments[key])]
        if others:
            return site.replaced("value", (name, {**arguments, key: site.rng.choice(others)}))
    return None


def _type(site: _Site) -> InjectedFault | None:
    name, arguments = site.call
    wrong = {"string": [3], "integer": "three", "number": "three", "float": "three", "boolean": "yes", "array": "all"}
    properties = _document(site)["parameters"]["properties"]
    keys = [key for key in sorted(arguments) if properties.get(key, {}).get("type") in wrong]
    if not keys:
        return None
    key = site.rng.choice(keys)
    return site.replaced(
        "type", (name, {**arguments, key: wrong[properties[key]["type"]]}), broken=labels.ARGUMENT_MISMATCH
    )


def _missing_argument(site: _Site) -> InjectedFault | None:
    name, arguments = site.call
    keys = [key for key in _document(site)["parameters"]["required"] if key in arguments]
    if not keys:
        return None
    omitted = site.rng.choice(keys)
    left = {key: value for key, value in arguments.items() if key != omitted}
    return site.replaced("missing argument", (name, left), broken=labels.ARGUMENT_MISMATCH)


def _unknown_argument(site: _Site) -> InjectedFault | None:
    name, arguments = site.call
    return site.replaced("unknown argument", (name, {**arguments, "verbosity": 2}), broken=labels.ARGUMENT_MISMATCH)


def _other_tool(site: _Site) -> InjectedFault | None:
    other = _other_tool_call(site, but=site.call[0])
    return other and site.replaced("other tool", other, skipped=(site.call[0],))


def _invented_tool(site: _Site) -> InjectedFault | None:
    invented = (site.call[0] + site.rng.choice(["_all", "_now", "Item"]), site.call[1])
    return site.replaced("invented tool", invented, broken=labels.INVALID_TOOL_CALL)


def _dropped(site: _Site) -> InjectedFault | None:
    rest = [call for at, call in enumerate(site.calls) if at != site.at]
    return site.put("dropped call", rest, skipped=(site.call[0],))


def _abandoned(site: _Site) -> InjectedFault | None:
    return site.put("abandoned turn", [], broken=labels.MISSING_TOOL_CALL)


def _extra(site: _Site) -> InjectedFault | None:
    extra = _other_tool_call(site)
    return extra and site.put("extra call", [*site.calls[: site.at], extra, *site.calls[site.at :]])


def _order(site: _Site) -> InjectedFault | None:
    at = site.at
    if at + 1 >= len(site.calls) or site.calls[at] == site.calls[at + 1]:
        return None
    calls = [*site.calls[:at], site.calls[at + 1], site.calls[at], *site.calls[at + 2 :]]
    return site.put("wrong order", calls)


def _failing(site: _Site) -> Call | None:
    """The call with a text argument that names nothing; None when it has none, or only texts from a list of values."""
    name, arguments = site.call
    properties = _document(site)["parameters"]["properties"]
    listed = [key for key, node in properties.items() if _LISTED.search(node.get("description", ""))]
    keys = [key for key, value in sorted(arguments.items()) if isinstance(value, str) and key not in listed]
    return (name, {**arguments, site.rng.choice(keys): "zz_nothing_zz"}) if keys else None


def _unrecovered(site: _Site) -> InjectedFault | None:
    failing = _failing(site)
    skipped = tuple(name for name, _ in site.calls[site.at + 1 :])
    return failing and site.put("error, given up", [*site.calls[: site.at], failing], skipped=skipped)


def _recovered(site: _Site) -> InjectedFault | None:
    failing = _failing(site)
    return failing and site.put("error, recovered", [*site.calls[: site.at], failing, *site.calls[site.at :]])


def _wrong_format(site: _Site) -> InjectedFault | None:
    mode = site.rng.choice(_MODES)
    text = site.rng.choice(_foreign(mode, site.call))
    return site.put("wrong format", [], text=text, mode=mode, broken=labels.INVALID_TOOL_CALL)


def _foreign(mode: str, call: Call) -> list[str]:
    """A call as other formats than the mode's write it."""
    name, arguments = call
    python = write_call(name, arguments)
    qwen = json.dumps({"name": name, "arguments": arguments})
    llama = json.dumps({"name": name, "parameters": arguments})
    found = [f"```json\n{qwen}\n```", f"I will do this now: {qwen}", f"Sure.\n\n{qwen}", f"Let me see. [{python}]"]
    if mode != "toolace_official_prompt":
        found += [python, f"[{python}]", f"```python\n{python}\n```"]
    if mode not in ("compact", "bfcl_qwen_fc"):
        found += [f"<tool_call>\n{qwen}\n</tool_call>", f"I call it.\n{get_format(mode).render_call(name, arguments)}"]
    return [*found, llama, qwen]


def _cut(site: _Site) -> InjectedFault | None:
    return site.put("cut", site.calls[: site.at], cut=True, broken=labels.BUDGET_CUT)


def _loop(site: _Site) -> InjectedFault | None:
    done = site.calls[: site.at]
    if not done or done[-1][0] in writers():
        return None
    toolbox = Toolbox(site.task)
    results = [toolbox.call(*call).text for turn in [*site.turns[: site.turn], done, done[-1:]] for call in turn]
    if _is_error(results[-1]):
        return None  # a loop of failing calls is a failure to recover
    return site.put("loop", site.calls[: site.at], loop=True, broken=labels.BUDGET_CUT)


def _silent_call(site: _Site) -> InjectedFault | None:
    other = _other_tool_call(site)
    return other and site.put("silent: call", [other], broken=labels.SPURIOUS_TOOL_CALL)


def _silent_withheld(site: _Site) -> InjectedFault | None:
    withheld = [d["name"] for turn in site.task.withheld for d in revealed_tools(site.task, turn) if turn > site.turn]
    calls = [call for name in withheld for call in _known().get(name, ())]
    if not calls:
        return None
    return site.put("silent: withheld tool", [site.rng.choice(calls)], broken=labels.INVALID_TOOL_CALL)


def _silent_format(site: _Site) -> InjectedFault | None:
    mode, call = site.rng.choice(_MODES), _other_tool_call(site)
    if call is None:
        return None
    text = site.rng.choice(_foreign(mode, call))
    return site.put("silent: wrong format", [], text=text, mode=mode, broken=labels.INVALID_TOOL_CALL)


def _silent_cut(site: _Site) -> InjectedFault | None:
    return site.put("silent: cut", [], cut=True, broken=labels.BUDGET_CUT)


def _silent_answer(site: _Site) -> InjectedFault | None:
    return site.put("silent: answer", [], broken=labels.CORRECT_ABSTENTION)


Injection = Callable[[_Site], InjectedFault | None]
WANTED: tuple[Injection, ...] = (
    _value,
    _type,
    _missing_argument,
    _unknown_argument,
    _other_tool,
    _invented_tool,
    _dropped,
    _abandoned,
    _extra,
    _order,
    _unrecovered,
    _recovered,
    _wrong_format,
    _cut,
    _loop,
)
"""Faults of a turn that needs calls."""
SILENT: tuple[Injection, ...] = (_silent_call, _silent_withheld, _silent_format, _silent_cut, _silent_answer)
"""Faults of a turn in which nothing should be called; the last injects none."""


def faults(task: Task, seed: int = 0) -> Iterator[InjectedFault]:
    """One fault of each kind that the task has a place for, the same for the same seed."""
    rng = random.Random(f"{task.id}/{seed}")
    wanted = [(t, c) for t, calls in enumerate(task.reference) for c in range(len(calls))]
    silent = [(t, 0) for t, calls in enumerate(task.reference) if not calls]
    for kinds, places in ((WANTED, wanted), (SILENT, silent)):
        for inject in kinds:
            tries = rng.sample(places, min(5, len(places)))  # not every call has room for every fault
            made = (inject(_Site(task, t, c, rng, BfclEnvironment().calls(task))) for t, c in tries)
            yield from [fault for fault in made if fault is not None][:1]


# --- what the definitions say --------------------------------------------------------


def expected(task: Task, fault: InjectedFault) -> str:
    """Return the label that the faulty turn must get."""
    if not task.reference[fault.turn] or fault.cut or fault.loop:
        return fault.broken
    found = official.check(task, [[[write_call(*call)] for call in calls] for calls in fault.turns])
    if found.valid or found.turn != fault.turn:
        return labels.PASS  # the fault changes nothing that the turn is judged by
    if fault.broken:
        return fault.broken
    calls = fault.turns[fault.turn]
    wrote = [n for (n, _), text in zip(calls, found.results, strict=True) if n in writers() and not _is_error(text)]
    if found.error.endswith("state_mismatch") and wrote:
        return labels.STATE_MISMATCH
    if _ends_in_error(calls, found.results):
        return labels.RECOVERY_FAILURE
    if found.error.endswith("state_mismatch") or fault.skipped:
        return labels.MISSING_TOOL_CALL
    return labels.RESPONSE_MISMATCH


@cache
def writers() -> frozenset[str]:
    """Return the tools that were seen to change the state that the checker compares, in any reference."""
    found = set()
    for task in (task for task in load_tasks().values() if task.category == "base"):
        toolbox = Toolbox(task)
        for name, arguments in (call for turn in BfclEnvironment().calls(task) for call in turn):
            before = None if name in found else copy.deepcopy(toolbox.instances)
            toolbox.call(name, arguments)
            if before is not None and not state_checker(toolbox.instances, before)["valid"]:
                found.add(name)
    return frozenset(found)


_ERRORS = ('"error":', '"login_status": false, "message"', '{"success": false')
_OPENINGS = ("Error", "[{'error'", "['Error")


def _is_error(text: str) -> bool:
    return any(part in text for part in _ERRORS) or text.startswith(_OPENINGS)


def _ends_in_error(calls: Sequence[Call], results: Sequence[str]) -> bool:
    """Return whether a call failed and no later call of its tool succeeded."""
    failed = [_is_error(text) for text in results]
    for at, (name, _) in enumerate(calls):
        later = zip(calls[at + 1 :], failed[at + 1 :], strict=True)
        if failed[at] and not any(other == name and not error for (other, _), error in later):
            return True
    return False
