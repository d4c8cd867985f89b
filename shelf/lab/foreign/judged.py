"""Rollouts of other programs as records: played again where the service can, else judged by what they show."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.kit.calls import read_blocks
from env_service.environments.kit.report import assessment
from seal import labels
from seal.diagnosis.categories import parse_task_id
from seal.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.diagnosis.results import reports_failure
from seal.diagnosis.rules import Diagnosis, taxonomy_of
from seal.diagnosis.schema import violations
from seal.records.source import WHOLE, data_source
from seal.records.trajectory import CUTS, PASS_SCORE, TrajectoryRecord
from shelf.lab.foreign.rollout import STEP_LIMIT, Action, Document, Rollout, Turn
from shelf.view.again import Again, played_again

STRUCTURED = "bfcl_qwen_fc"
"""The prompt mode that expresses calls which the file has apart from the text."""
TEXT_MODES = (STRUCTURED, "toolace_official_prompt", "llama31_official_fc")
"""The prompt modes, one of which reads the calls in texts."""
SHOWN = (labels.PASS, labels.INVALID_TOOL_CALL, labels.ARGUMENT_MISMATCH, labels.RECOVERY_FAILURE)
"""The labels that a dialogue shows by itself, by reward, schemas and errors; all others need the environment."""
UNKNOWN = frozenset(rule.label for rule in taxonomy_of("paper").rules) - {*SHOWN, *labels.BROKEN}
UNLIMITED = 1000
"""The most messages with calls per turn that the service allows."""
REPEATS = 3
"""A call made so often in a turn, with the same arguments and result, was not needed."""


class Judged(NamedTuple):
    """A rollout and its record; differs: what the replay contradicts, as a sentence, "" if nothing."""

    rollout: Rollout
    record: TrajectoryRecord
    differs: str = ""


def judged(rollouts: Sequence[Rollout], url: str) -> Iterator[Judged]:
    """Every rollout judged, in order, those of the benchmark's tasks by the service at `url`."""
    samples: Counter[tuple[str, int]] = Counter()
    known = []
    for rollout in rollouts:
        task = rollout.task_id, rollout.prefix
        known.append({"task_id": rollout.task_id, "split": "eval", "step": 0, "sample": samples[task]})
        samples[task] += 1
    pairs = list(zip(rollouts, known, strict=True))
    played = played_again((_again(rollout, names) for rollout, names in pairs if rollout.replays), url)
    for rollout, names in pairs:
        yield _compared(rollout, next(played)) if rollout.replays else Judged(rollout, _seen(rollout, names))


# --- played again ----------------------------------------------------------------------


def _again(rollout: Rollout, names: dict[str, Any]) -> Again:
    """What plays a rollout as the official evaluation does; a file with fewer turns than the task was cut.

    The runner has a limit of messages and the evaluation none, so only a rollout that such a limit ended has it here.
    """
    mode, (category, _) = _mode(rollout), parse_task_id(rollout.task_id)
    record = TrajectoryRecord(
        **names,
        data_source=data_source(category, rollout.prefix),
        category=category,
        score=0.0,
        stop=rollout.cut if rollout.cut in CUTS else "max_steps",
        truncated=rollout.truncated,
        prompt_mode=mode,
        messages=tuple(
            {"role": "assistant", "content": text} for turn in rollout.turns for text in _texts(turn, rollout, mode)
        ),
    )
    params = {"split": "eval", "tool_prompt_mode": mode}
    params |= {} if rollout.cut == STEP_LIMIT else {"max_steps": UNLIMITED}
    return Again(record, params if rollout.prefix == WHOLE else params | {"turns": rollout.prefix})


def _mode(rollout: Rollout) -> str:
    """The prompt mode to play in: the one that reads calls in the most texts if they are not apart."""
    if rollout.structured:
        return STRUCTURED
    texts = [action.text for turn in rollout.turns for action in turn.actions]
    return max(TEXT_MODES, key=lambda mode: sum(bool(get_format(mode).parse(text).calls) for text in texts))


def _texts(turn: Turn, rollout: Rollout, mode: str) -> list[str]:
    """The messages of a turn. If calls are apart: those with calls, and the answer that ends the turn."""
    if not rollout.structured:
        return [action.text for action in turn.actions]
    render = get_format(mode).render_call
    acted = ["\n".join(render(*call) for call in action.calls) for action in turn.actions if action.calls]
    if turn.actions and not turn.actions[-1].calls:
        return [*acted, turn.actions[-1].text]
    asked = len(load_tasks()[rollout.task_id].users) if rollout.prefix == WHOLE else rollout.prefix
    cut = rollout.cut or len(rollout.turns) < asked
    return acted if cut and turn is rollout.turns[-1] else [*acted, ""]


def _compared(rollout: Rollout, record: TrajectoryRecord) -> Judged:
    """The record that the service made of a rollout; lost if its turns are others than the file's."""
    if record.infra is not None:
        return Judged(rollout, record)
    played = [turn["actions"] for turn in record.evidence if turn["actions"]]
    said = [len(_texts(turn, rollout, record.prompt_mode)) for turn in rollout.turns]
    for number, (actions, messages) in enumerate(zip(played, said, strict=False)):
        if len(actions) != messages and (number < len(played) - 1 or len(actions) > messages):
            why = f"turn {number} has {messages} messages in {rollout.place}, and ends after {len(actions)} here"
            lost = replace(record, score=0.0, labels=(), diagnosis=(), infra="misread", infra_message=why)
            return Judged(rollout, lost)
    if rollout.reward is not None and (rollout.reward >= PASS_SCORE) != record.passed:
        return Judged(rollout, record, f"the file's reward is {rollout.reward:g} and the replay's {record.score:g}")
    for number, (turn, actions) in enumerate(zip(rollout.turns, played, strict=False)):
        written = [result for action in turn.actions if action.calls for result in action.results]
        found = [call for action in actions for call in action["calls"]]
        for was, call in zip(written, found, strict=False):
            if was and not _same(was, str(call["result"])):
                return Judged(rollout, record, f"turn {number}: {call['name']} answers {call['result']!s:.80}")
    return Judged(rollout, record)


def _same(one: str, other: str) -> bool:
    try:
        return one == other or json.loads(one) == json.loads(other)
    except (ValueError, RecursionError):
        return False


# --- seen only -------------------------------------------------------------------------


def _seen(rollout: Rollout, names: dict[str, Any]) -> TrajectoryRecord:
    """A record with the labels that the dialogue shows; all other turns are `checker_error`, which counts nowhere."""
    passed = rollout.reward is not None and rollout.reward >= PASS_SCORE
    turns, pending = [], False
    for number, turn in enumerate(rollout.turns):
        actions = tuple(_action(action, rollout.tools) for action in turn.actions)
        calls = [call for action in actions for call in action.calls]
        turns.append(
            TurnEvidence(
                turn=number,
                expected_calls=len(calls),  # that calls were needed is the policy's word
                actions=actions,
                stop="answered" if actions else "open",
                state_match=True if passed and calls else None,
                feedback_before=pending,
            )
        )
        for action in actions:
            pending = action.failed or (pending and not any(not call.failed for call in action.calls))
    evaluation = assessment(turns, "paper", UNKNOWN, passed, True)
    diagnosis = [_repeated(turns[found.turn], found) for found in evaluation["diagnosis"]]
    evaluation |= {
        "labels": [found.label for found in diagnosis],
        "diagnosis": [asdict(found) for found in diagnosis],
        "evidence": [asdict(turn) for turn in turns],
    }
    category = f"{'unscored' if rollout.reward is None else 'foreign'}/{Path(rollout.place).stem}"
    return TrajectoryRecord.of(
        evaluation,
        **names,
        data_source=category,
        category=category,
        score=float(rollout.reward or 0.0),
        stop="completed",
        messages=tuple(_dialogue(rollout)),
    )


def _action(action: Action, tools: Sequence[Document] | None) -> ActionEvidence:
    """The evidence of one message; its calls may be in its text, as Qwen's template writes them."""
    documents = {tool["name"]: tool for tool in tools or ()}
    named = action.calls or read_blocks(action.text, ()).calls  # blocks of another form are nobody's fault
    calls, refusals = [], ()
    for (name, arguments), result in zip_longest(named, action.results[: len(named)], fillvalue=""):
        if not isinstance(arguments, dict):
            refusals += (f"the arguments of {name} are no JSON object.",)
            continue
        available = tools is None or name in documents
        schema = documents.get(name, {}).get("parameters")
        broken = violations(arguments, documents[name]) if isinstance(schema, dict) else ()
        error = "execution" if reports_failure(name, result) else None
        calls.append(CallEvidence(name, arguments, available, broken, error if available else "unavailable", result))
    return ActionEvidence(tuple(calls), refusals)


def _repeated(turn: TurnEvidence, found: Diagnosis) -> Diagnosis:
    """The diagnosis of a turn that says nothing else: a call that it repeats was not needed."""
    made = Counter((call.name, json.dumps(call.arguments, sort_keys=True), call.result) for call in turn.calls)
    (name, *_), times = made.most_common(1)[0] if made else (("",), 0)
    if found.rule != "unjudged" or times < REPEATS:
        return found
    reason = f"{name} was called {times} times with the same arguments and the same result"
    return replace(found, label=labels.SPURIOUS_TOOL_CALL, rule="repeated_call", reason=reason)


def _dialogue(rollout: Rollout) -> Iterator[dict[str, str]]:
    """The messages as a log holds them, with calls as text."""
    if rollout.system:
        yield {"role": "system", "content": rollout.system}
    for turn in rollout.turns:
        yield {"role": "user", "content": turn.user}
        for action in turn.actions:
            calls = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in action.calls)
            blocks = (f"<tool_call>\n{call}\n</tool_call>" for call in calls)
            yield {"role": "assistant", "content": "\n".join(filter(None, (action.text, *blocks)))}
            yield from ({"role": "tool", "content": result} for result in action.results)


# --- in words --------------------------------------------------------------------------


def sentences(every: Sequence[Judged]) -> Iterator[str]:
    """How the rollouts were judged, whose the faults are, and what could not be judged."""
    replayed = [judged for judged in every if judged.rollout.replays]
    lost = [judged for judged in replayed if judged.record.infra is not None]
    yield f"{len(replayed) - len(lost)} of {len(every)} rollouts were played again on the benchmark: labels are exact."
    blames = Counter(found.get("blame") for judged in replayed for found in judged.record.diagnosis)
    if replayed:
        yield f"Of their failed turns {blames['own']} are own faults and {blames['inherited']} inherited ones."
    if lost:
        yield f"{len(lost)} could not be played again: {lost[0].record.infra_message}."
    if differing := [judged for judged in replayed if judged.differs]:
        yield f"{len(differing)} differ from their file, first {differing[0].rollout.place}: {differing[0].differs}."
    if seen := [judged.record for judged in every if not judged.rollout.replays]:
        turns = Counter(label for record in seen for label in record.labels)
        yield (
            f"{len(seen)} were judged by schemas, errors and repetition; {turns[labels.CHECKER_ERROR]} of their "
            f"{turns.total()} turns show nothing by themselves and have no label."
        )
    if any(judged.record.category.startswith("unscored/") for judged in every):
        yield "The rows of unscored/ have no reward in their file: their rates mean nothing, their labels do."
