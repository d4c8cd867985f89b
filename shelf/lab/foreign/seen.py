"""Rollouts that no service can play again: a record with the labels that their dialogue shows."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from env_service.environments.kit.calls import read_blocks
from env_service.environments.kit.report import assessment
from env_service.environments.kit.stray import stray_call
from seal.method import labels
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.method.diagnosis.rules import Diagnosis, taxonomy_of
from seal.method.diagnosis.schema import violations
from seal.records.source import UNSCORED
from seal.records.trajectory import CUTS, PASS_SCORE, TrajectoryRecord
from seal.system.text import without_thoughts
from shelf.error_marks import marks_failure
from shelf.lab.foreign.rollout import REFUSES, Action, Call, Document, Heard, Rollout
from shelf.statistics.summary import FOREIGN
from shelf.suites.answers import looks_like_call

SHOWN = (labels.PASS, labels.INVALID_TOOL_CALL, labels.ARGUMENT_MISMATCH, labels.BUDGET_CUT, labels.RECOVERY_FAILURE)
"""The labels that a dialogue shows by itself; all others need the environment."""
UNKNOWN = frozenset(rule.label for rule in taxonomy_of("paper").rules) - {*SHOWN, *labels.BROKEN}
_REACT = re.compile(r"^Action:.*\n+Action Input:|^Action: *\w+[(\[]|<\|action_start\|>|functools\[", re.MULTILINE)
"""Calls in the forms of agents and templates, which no endpoint uses."""
WITHIN = re.compile(r".*(?:[.:/]|__)", re.DOTALL)
"""The name of a server or a module, as a prefix of its tool's name."""
_MAY_HOLD = re.compile(r"(?:tool|function)_?(?:calls?|results|outputs)|intermediate_steps|steps|actions", re.IGNORECASE)
"""Fields of a row in which programs keep calls apart from the messages."""
_SIGN = re.compile(r"\W|_")
"""Characters that endpoints replace if they allow only a few characters in a name."""
_ENDING = re.compile("final|finish|submit|complete|terminate|done|answer|transfer|hand_?off", re.IGNORECASE)
"""Names of tools with which harnesses let a policy finish or hand over, but which they do not list."""
_KIND, _UN = "(?:tool|function|action|command|method)", "un(?:known|avail|defin|recogni|supp)"
_NO_TOOL = re.compile(
    rf"(?:\S{{1,60}} is )?(?:{_UN}\w{{,6}}|invalid|no such|no|n[o']t (?:find|an?)(?: \w{{,20}})?) {_KIND}"
    r"(?! (?:call(?!ed)|arg|par|in))(?:(?: named| called)?\W{1,3}\S{1,60})?"
    rf"|(?:\S{{1,60}} )?(?:{_KIND}|name)(?:\W{{1,3}}\S{{1,60}})? (?:(?:is|was|does|could) ?)?"
    rf"(?:{_UN}|n[o']t (?:be )?(?:avail|exist|found|defin|regist|recogni|supp))",
    re.IGNORECASE,
)
"""What says that a tool does not exist, with the words beside it: one of them may be the tool's name."""
REPEATS = 3
"""A call made this often in a turn, with the same arguments and always the same result, was not needed."""


def label_dialogue(rollout: Rollout, names: dict[str, Any]) -> TrajectoryRecord:
    """A record with the labels that the dialogue shows; all other turns get `checker_error`, which counts nowhere."""
    answered = [turn for turn in rollout.turns if turn.actions]
    documents = None if rollout.tools is None else _by_name(rollout.tools)
    heard = [[_heard(action, documents or {}, rollout.structured) for action in turn.actions] for turn in answered]
    passed = rollout.reward is not None and rollout.reward >= PASS_SCORE
    cuts = [[action.cut for action in turn.actions] for turn in answered]
    turns = _evidence(heard, cuts, documents, passed, CUTS.get(rollout.cut, rollout.cut))
    evaluation = assessment(turns, "paper", UNKNOWN, passed, True)
    every = evaluation["diagnosis"]
    diagnosis = [_of_file(heard[each.turn], _withdraw_error(turns, each), rollout.reward) for each in every]
    evaluation |= {
        "labels": [found.label for found in diagnosis],
        "diagnosis": [asdict(found) for found in diagnosis],
        "evidence": [asdict(turn) for turn in turns],
    }
    return TrajectoryRecord.of(
        evaluation,
        **names,
        **sources(rollout, UNSCORED if rollout.reward is None else FOREIGN),
        score=float(rollout.reward or 0.0),
        stop=rollout.cut or "completed",
        messages=tuple(_dialogue(rollout)),
    )


def unread_call(rollout: Rollout, row: Iterable[str]) -> str:
    """A sentence on a call that the rollout's program may have read and this reader did not, "" if there is none.

    Either no harness refused arguments that are not an object, or no call was read and a text looks like a call or a
    field of the row may hold some. row: the fields with lists, objects or JSON.
    """
    names = _by_name(rollout.tools or ())
    actions = [action for turn in rollout.turns for action in turn.actions]
    heard = [call for action in actions for call in _heard(action, names, rollout.structured)]
    asdict(TurnEvidence(0, 0, (_action(heard, None, False, False),)))  # RecursionError if a record cannot hold them
    for call in heard:
        written = isinstance(call.arguments, str) and call.name and not call.arguments.startswith("{'")  # by the policy
        if call.refused and (call.result or not written) and not REFUSES.search(call.result or ""):
            return f"{call.refused}, and its harness may read them"
    for action in (each for each in actions if not each.calls):
        answers = [each for each in action.results if each and not REFUSES.search(each)]
        if len(answers) > len(_heard(action, names, False)) and not answers[0].startswith(("assistant: ", "tool: ")):
            return f"{len(answers)} results answer a message with fewer calls that are read"
    if heard:
        return ""
    if field := next(filter(_MAY_HOLD.fullmatch, row), ""):
        return f"no call was read, and {field} may hold some"
    for action in actions:
        said = without_thoughts(action.text)
        stray = stray_call(said, names) or stray_call(said, ())
        if looks_like_call(said) or _REACT.search(said) or stray or _names_tool(said, names):
            return f"no call was read, and a text looks like one, {said.strip()!r:.60}"
    return ""


def require_text(rollout: Rollout) -> None:
    """ValueError for a lone surrogate, which JSON can hold but no file or request: it would stop all other rollouts."""
    actions = [action for turn in rollout.turns for action in turn.actions]
    said = [(action.text, action.nudge, action.results, _heard(action, {}, False)) for action in actions]
    users = [turn.user for turn in rollout.turns]
    every = [rollout.task_id, rollout.failure, rollout.system, rollout.tools, rollout.unread, users, said]
    try:
        json.dumps(every, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is not text") from None


def sources(rollout: Rollout, environment: str) -> dict[str, str]:
    """The category and the data source of a rollout: the benchmark's, or those of its file ("@" marks prefixes)."""
    category = rollout.category or f"{environment}/{Path(rollout.place).stem.replace('@', '_')}"
    return {"data_source": category, "category": category}


def _by_name(tools: Sequence[Document]) -> dict[str, Document]:
    """The documents by name; if a name has several, none of them judges."""
    found: dict[str, Document] = {}
    for tool in tools:
        found[tool["name"]] = tool if found.get(tool["name"], tool) == tool else {"name": tool["name"]}
    return found


def _names_tool(text: str, tools: Collection[str]) -> bool:
    """Whether a text has a tool's name as a tag, in a tag or as a JSON value, or calls a tool in a code block."""
    one = f"(?:{'|'.join(re.escape(each) for each in tools if each)})"
    called = rf"<{one}>|:\s*[\"']{one}[\"']|>\s*{one}\s*</|(?:```\w*|<code>)\n(?:(?!```).){{,4000}}?\b{one}\("
    return bool(any(tools) and re.search(called, text, re.DOTALL))


def _heard(action: Action, documents: dict[str, Document], structured: bool) -> list[Heard]:
    """The calls of a message, which may be in its text, as Qwen's template writes them.

    structured: its harness reads calls apart from the text, so that a call in a text counts only if it was answered.
    """
    if not action.calls and (action.results or not structured):  # unreadable blocks count as no fault
        found = read_blocks(without_thoughts(action.text), ()).calls
        action = replace(action, calls=tuple(Call(name=name, arguments=given) for name, given in found))
    return action.heard(documents)


def _evidence(
    heard: Sequence[Sequence[Sequence[Heard]]],
    cuts: Sequence[Sequence[bool]],
    documents: dict[str, Document] | None,
    passed: bool,
    cut: str,
) -> list[TurnEvidence]:
    """The evidence of turns, given the calls of each message, and whether a limit on its length cut the message.

    cut: the budget that ended the last turn, "" if none.
    """
    turns, pending = [], False
    for number, messages in enumerate(heard):
        ends = (cut if number == len(heard) - 1 else "") or "length" * cuts[number][-1]
        actions = []
        for calls, truncated in zip(messages, cuts[number], strict=True):
            final = calls is messages[-1]
            actions.append(_action(calls, documents, final, truncated or (final and ends == "length")))
        calls = [call for action in actions for call in action.calls]
        turns.append(
            TurnEvidence(
                turn=number,
                expected_calls=len(calls),  # assumes that the calls that the policy made were needed
                actions=tuple(actions),
                stop=ends or "answered",
                state_match=True if passed and calls else None,
                feedback_before=pending,
                judged="passed" if passed else "turn",
            )
        )
        for action in actions:
            pending = action.failed or (pending and all(call.failed for call in action.calls))
    return turns


def _action(
    heard: Sequence[Heard], documents: dict[str, Document] | None, ends: bool, truncated: bool
) -> ActionEvidence:
    """The evidence of a message, of whose last call a cut may have left a part (`truncated`), which nothing judges.

    ends: only its results follow it in its turn.
    """
    calls = []
    for call in heard:
        if call.refused:
            continue
        name, arguments, result = call.name, call.arguments, call.result or ""
        judged = documents is not None and call.documented and not (truncated and call is heard[-1])
        if judged and name not in documents:
            known = (ends and _ENDING.search(name)) or any(_same_tool(name, each) for each in documents)
            judged = denies(result, name) or not (known or result)
        available, document = not judged or name in documents, documents.get(name, {}) if judged else {}
        broken = violations(arguments, document)
        error = "execution" if marks_failure(result) else None
        calls.append(CallEvidence(name, arguments, available, broken, error if available else "unavailable", result))
    return ActionEvidence(tuple(calls), tuple(call.refused for call in heard if call.refused), truncated)


def denies(result: str, name: str) -> bool:
    """Whether an answer denies this tool, not what it ran; any other one shows that the file's list is not whole."""
    every = (said[0] for said in _NO_TOOL.finditer(result[:300]))  # what follows is no harness's
    return any("tool" in said.lower() or re.search(rf"\b{re.escape(WITHIN.sub('', name))}\b", said) for said in every)


def _same_tool(name: str, other: str) -> bool:
    """Whether two names mean one tool: one has a server's or module's prefix, or a character is written differently."""
    return (
        WITHIN.sub("", name) == other
        or name == WITHIN.sub("", other)
        or _SIGN.sub("", name).lower() == _SIGN.sub("", other).lower()
    )


def _withdraw_error(turns: Sequence[TurnEvidence], found: Diagnosis) -> Diagnosis:
    """The diagnosis; unread if each tool that failed worked in a later turn, as after the user's correction."""
    last = {call.name: call.failed for call in turns[found.turn].calls}
    worked = {call.name for turn in turns[found.turn + 1 :] for call in turn.calls if not call.failed}
    if found.label != labels.RECOVERY_FAILURE or not worked or any(last[name] for name in last.keys() - worked):
        return found
    reason = "the tools that failed worked in a later turn"
    return replace(found, label=labels.CHECKER_ERROR, signals=(), rule="unjudged", reason=reason)


def _of_file(heard: Sequence[Sequence[Heard]], found: Diagnosis, reward: float | None) -> Diagnosis:
    """The diagnosis with its grounds: the file decides on a pass, and a repeated call was not needed.

    It was if its result changed or that of a call between, as of a policy that waits, or after a new call, as of a
    policy that tests its work.
    Results that the file lacks do not count.
    """
    if found.label == labels.PASS:
        return replace(found, reason=f"the file's reward of {reward:g} was read, nothing was verified")
    every = (call for calls in heard for call in calls if not call.refused)
    known = [(call.name, json.dumps(call.arguments, sort_keys=True), call.result) for call in every]
    since, often = 0, ""
    for at, call in enumerate(known):
        new = call not in known[:at] or any(one != call for one in known if one[:2] == call[:2])
        since = at if new else since  # the others may wait for it, or find what it changed
        often = call[0] if call[2] is not None and known[since : at + 1].count(call) == REPEATS else often
    if found.rule != "unjudged" or not often:
        return found
    reason = f"{often} was called {REPEATS} times with the same arguments and the same result, and nothing new between"
    return replace(found, label=labels.SPURIOUS_TOOL_CALL, rule="repeated_call", reason=reason)


def _dialogue(rollout: Rollout) -> Iterator[dict[str, str]]:
    """The messages as a log holds them, with calls as text."""
    if rollout.system:
        yield {"role": "system", "content": rollout.system}
    for turn in rollout.turns:
        yield {"role": "user", "content": turn.user}
        for action in turn.actions:
            calls = (call.written for call in action.heard({}))
            yield {"role": "assistant", "content": "\n".join(filter(None, (action.text, *calls)))}
            yield from ({"role": "tool", "content": result} for result in action.results if result is not None)
