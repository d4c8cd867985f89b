"""Rollouts of other programs as records: played again where the service can, else judged by what they show."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from env_service.environments.bfcl.catalog import load_tasks, tool_documents
from env_service.environments.bfcl.formats import get_format
from env_service.environments.kit.calls import read_blocks
from env_service.environments.kit.report import assessment
from seal.method import labels
from seal.method.diagnosis.categories import parse_task_id
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.method.diagnosis.results import reports_failure
from seal.method.diagnosis.rules import Diagnosis, diagnose, taxonomy_of
from seal.method.diagnosis.schema import violations
from seal.records.source import WHOLE, data_source
from seal.records.trajectory import CUTS, PASS_SCORE, TrajectoryRecord
from shelf.lab.foreign.rollout import STEP_LIMIT, Action, Document, Rollout, Turn
from shelf.view.again import Again, played_again

STRUCTURED = "bfcl_qwen_fc"
"""The prompt mode that expresses calls which the file has apart from the text."""
TEXT_MODES = (STRUCTURED, "toolace_official_prompt", "llama31_official_fc")
"""Prompt modes to try when parsing calls from text."""
SHOWN = (labels.PASS, labels.INVALID_TOOL_CALL, labels.ARGUMENT_MISMATCH, labels.RECOVERY_FAILURE)
"""The labels that a dialogue shows by itself, by reward, schemas and errors; all others need the environment."""
UNKNOWN = frozenset(rule.label for rule in taxonomy_of("paper").rules) - {*SHOWN, *labels.BROKEN}
UNLIMITED = 1000
"""The most messages with calls per turn that the service allows."""
REPEATS = 3
"""A call made so often in a turn, with the same arguments and result, was not needed."""
MORE_TOOLS = "updated some more functions"
"""Words of the official tool when it reveals tools to a model that gets them beside the dialogue."""
_TURNS = TypeAdapter(tuple[TurnEvidence, ...])


class Judged(NamedTuple):
    """A rollout and its record; differs: what the replay contradicts, as a sentence, "" if nothing."""

    rollout: Rollout
    record: TrajectoryRecord
    differs: str = ""


def judged(rollouts: Sequence[Rollout], url: str) -> Iterator[Judged]:
    """Every rollout judged, in order, those of the benchmark's tasks by the service at `url`."""
    rollouts = [_aligned(rollout) if rollout.replays else rollout for rollout in rollouts]
    samples: Counter[tuple[str, int]] = Counter()
    known = []
    for rollout in rollouts:
        task = rollout.task_id, rollout.prefix
        known.append({"task_id": rollout.task_id, "split": "eval", "step": 0, "sample": samples[task]})
        samples[task] += 1
    pairs = list(zip(rollouts, known, strict=True))
    played = played_again((_again(rollout, names) for rollout, names in pairs if rollout.replays), url)
    for rollout, names in pairs:
        if rollout.failure:
            category, _ = parse_task_id(rollout.task_id)
            lost = {"infra": "inference", "infra_message": rollout.failure, "score": 0.0}
            yield Judged(rollout, TrajectoryRecord(**names, **lost, data_source=category, category=category))
        else:
            yield _compared(rollout, next(played)) if rollout.replays else Judged(rollout, _seen(rollout, names))


# --- played again ----------------------------------------------------------------------


class _Move(NamedTuple):
    """A message of the policy. sent: what the service gets of it, None if nothing.

    refusals: why calls in it are none; written, answers: they, and what its harness answered.
    """

    sent: str | None
    refusals: tuple[str, ...] = ()
    written: str = ""
    answers: tuple[str, ...] = ()


def _asked(rollout: Rollout) -> int:
    task = load_tasks().get(rollout.task_id)
    return rollout.prefix if rollout.prefix != WHOLE else len(task.users) if task else len(rollout.turns)


def _aligned(rollout: Rollout) -> Rollout:
    """The rollout with what only its harness said as a user (an empty message, an unreadable call) in its turn."""
    task, turns = load_tasks().get(rollout.task_id), rollout.turns
    if not task or len(turns) == _asked(rollout) or turns[0].user.strip() != (task.users[0] or "").strip():
        return rollout
    kept: list[Turn] = []
    for turn in turns:
        at = len(kept)
        if at < len(task.users) and (said := task.users[at]) is not None:
            own = said.strip() == turn.user.strip()
        else:
            own = any(name in turn.user for name in (*task.withheld.get(at, ()), MORE_TOOLS))
        if own:
            kept.append(Turn(turn.user, list(turn.actions)))
        else:
            kept[-1].actions[-1] = replace(kept[-1].actions[-1], nudge=turn.user)
            kept[-1].actions += turn.actions
    return replace(rollout, turns=kept)


def _again(rollout: Rollout, names: dict[str, Any]) -> Again:
    """Return the replay of a rollout under the official evaluation; a file with fewer turns than the task was cut.

    The runner has a limit of messages and the evaluation none, so only a rollout that such a limit ended has it here.
    """
    mode, (category, _) = _mode(rollout), parse_task_id(rollout.task_id)
    moves = [move for turn in rollout.turns for move in _moves(turn, rollout, mode)]
    sent = [(number, move.sent) for number, move in enumerate(moves) if move.sent is not None]
    record = TrajectoryRecord(
        **names,
        data_source=data_source(category, rollout.prefix),
        category=category,
        score=0.0,
        stop=rollout.cut if rollout.cut in CUTS else "max_steps",
        truncated=tuple(at for at, (number, _) in enumerate(sent) if number in rollout.truncated),
        prompt_mode=mode,
        messages=tuple({"role": "assistant", "content": text} for _, text in sent),
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


def _moves(turn: Turn, rollout: Rollout, mode: str) -> list[_Move]:
    """The messages of a turn: those with calls, and the answer that ends it.

    What is said between them is left out, and so is a call that its harness could not read: the world stays as it is.
    A text that its harness answered, and in which no mode finds a call, is sent and ends the turn.
    """
    form, moves, acts = get_format(mode), [], False
    for action in turn.actions:
        heard, parsed = action.heard(tool_documents()), form.parse(action.text)
        acts = bool(heard or (parsed.calls and not rollout.structured))
        answers = tuple(filter(None, (*action.results, action.nudge)))
        obscure = not rollout.structured and action.text.strip() and not parsed.refusals
        if heard:
            calls = [form.render_call(call.name, call.arguments) for call in heard if not call.refused]
            none = [call for call in heard if call.refused]
            reasons, answers = tuple(call.refused for call in none), tuple(call.result for call in none)
            moves.append(_Move("\n".join(calls) or None, reasons, "\n".join(call.written for call in none), answers))
        elif acts or action is turn.actions[-1] or (obscure and (answers or rollout.steps)):
            moves.append(_Move(action.text))
        else:
            moves.append(_Move(None, parsed.refusals, action.text, answers))
    last = turn is rollout.turns[-1]
    cut = last and (rollout.cut or len(rollout.turns) < _asked(rollout) or not rollout.structured)
    return moves if cut or (moves and not acts) else [*moves, _Move("")]


def _compared(rollout: Rollout, record: TrajectoryRecord) -> Judged:
    """The record that the service made of a rollout; lost if its turns are others than the file's."""
    if record.infra is not None:
        return Judged(rollout, record)
    played = [turn["actions"] for turn in record.evidence if turn["actions"]]
    turns = [_moves(turn, rollout, record.prompt_mode) for turn in rollout.turns]
    for number, (actions, moves) in enumerate(zip(played, turns, strict=False)):
        sent = [at for at, move in enumerate(moves) if move.sent is not None]
        if len(actions) != len(sent) and (number < len(played) - 1 or len(actions) > len(sent)):
            at = sent[min(len(actions), len(sent)) - 1]
            where = "here and not in its file" if len(actions) < len(sent) else "in its file and not here"
            why = f"message {at} of turn {number}, {moves[at].sent[:60]!r}, ends the turn {where}"
            lost = replace(record, score=0.0, labels=(), diagnosis=(), infra="misread", infra_message=why)
            return Judged(rollout, lost)
    if any(move.refusals for moves in turns for move in moves):
        record = _with_refusals(record, turns)
    if rollout.reward is not None and (rollout.reward >= PASS_SCORE) != record.passed:
        return Judged(rollout, record, f"the file's reward is {rollout.reward:g} and the replay's {record.score:g}")
    for number, (turn, actions) in enumerate(zip(rollout.turns, played, strict=False)):
        heard = [call for action in turn.actions for call in action.heard(tool_documents()) if not call.refused]
        found = [call for action in actions for call in action["calls"]]
        for was, call in zip(heard, found, strict=False):
            if was.result and not _same(was.result, str(call["result"])):
                return Judged(rollout, record, f"turn {number}: {call['name']} answers {call['result']!s:.80}")
    return Judged(rollout, record)


def _with_refusals(record: TrajectoryRecord, turns: Sequence[Sequence[_Move]]) -> TrajectoryRecord:
    """The record with the actions whose calls are none, and what answered them, where its file has them."""
    form, evidence, pending = get_format(record.prompt_mode), [], False
    starts = [at for at, message in enumerate(record.messages) if message["role"] == "assistant"]
    pairs = zip(starts, [*starts[1:], len(record.messages)], strict=True)
    said = iter([record.messages[start:end] for start, end in pairs])
    messages = list(record.messages[: starts[0] if starts else None])
    for turn, moves in zip(_TURNS.validate_python(record.evidence), turns, strict=False):
        if turn.stop == "not_reached":
            break
        own, actions, before = iter(turn.actions), [], pending
        for move in moves:
            if (action := next(own, None) if move.sent is not None else ActionEvidence()) is None:
                break  # a budget ended the episode
            asked, *answer = next(said) if move.sent is not None else [{"role": "assistant", "content": ""}]
            if move.refusals:
                action = replace(action, refusals=(*action.refusals, *move.refusals))
                asked = asked | {"content": "\n".join(filter(None, (str(asked["content"]), move.written)))}
                texts = [*(call.result for call in action.calls), *move.answers]
                answer = [*form.results(texts), *answer[bool(action.calls) :]]
            if move.sent is not None or move.refusals:
                actions.append(action)
                messages += [asked, *answer]
            pending = bool(move.refusals) or (pending and not any(call.error is None for call in action.calls))
        evidence.append(replace(turn, actions=tuple(actions), feedback_before=turn.feedback_before or before))
    evidence += _TURNS.validate_python(record.evidence[len(evidence) :])
    diagnosis = diagnose(evidence)
    return replace(
        record,
        evidence=tuple(asdict(turn) for turn in evidence),
        labels=tuple(found.label for found in diagnosis),
        diagnosis=tuple(asdict(found) for found in diagnosis),
        messages=tuple(messages),
        times=(),
    )


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
    if not action.calls:  # blocks of another form are nobody's fault
        action = replace(action, calls=read_blocks(action.text, ()).calls)
    heard, calls = action.heard(documents), []
    for name, arguments, result, _ in (call for call in heard if not call.refused):
        available = tools is None or name in documents
        schema = documents.get(name, {}).get("parameters")
        broken = violations(arguments, documents[name]) if isinstance(schema, dict) else ()
        error = "execution" if reports_failure(name, result) else None
        calls.append(CallEvidence(name, arguments, available, broken, error if available else "unavailable", result))
    return ActionEvidence(tuple(calls), tuple(call.refused for call in heard if call.refused))


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
            calls = (call.written for call in action.heard({}))
            yield {"role": "assistant", "content": "\n".join(filter(None, (action.text, *calls)))}
            yield from ({"role": "tool", "content": result} for result in action.results)


# --- in words --------------------------------------------------------------------------


def sentences(every: Sequence[Judged]) -> Iterator[str]:
    """Sentences on how the rollouts were judged, whose the faults are, and which rollouts could not be judged."""
    replayed = [judged for judged in every if judged.rollout.replays]
    lost = [judged for judged in replayed if judged.record.infra is not None]
    yield f"{len(replayed) - len(lost)} of {len(every)} rollouts were played again on the benchmark: labels are exact."
    blames = Counter(found.get("blame") for judged in replayed for found in judged.record.diagnosis)
    if replayed:
        yield f"Of their failed turns {blames['own']} are own faults and {blames['inherited']} inherited ones."
    for each in lost:
        yield f"{each.rollout.place} could not be played again: {each.record.infra_message}."
    for text, count in Counter(judged.rollout.failure for judged in every if judged.rollout.failure).most_common():
        yield f"{count} were not run, says their file: {text}"
    if subagents := [judged.rollout for judged in every if judged.rollout.subagents]:
        number = sum(rollout.subagents for rollout in subagents)
        yield f"{number} trajectories of sub-agents have no labels, first those of {subagents[0].place}."
    if differing := [judged for judged in replayed if judged.differs]:
        yield f"{len(differing)} differ from their file, first {differing[0].rollout.place}: {differing[0].differs}."
    if seen := [judged.record for judged in every if not (judged.rollout.replays or judged.rollout.failure)]:
        turns = Counter(label for record in seen for label in record.labels)
        yield (
            f"{len(seen)} were judged by schemas, errors and repetition; {turns[labels.CHECKER_ERROR]} of their "
            f"{turns.total()} turns show nothing by themselves and have no label."
        )
    if any(judged.record.category.startswith("unscored/") for judged in every):
        yield "The rows of unscored/ have no reward in their file: their rates mean nothing, their labels do."
