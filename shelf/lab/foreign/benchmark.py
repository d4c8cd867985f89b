"""Rollouts of the benchmark's tasks, played again as the official evaluation does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from env_service.environments.bfcl.catalog import Task, load_tasks, tool_documents
from env_service.environments.bfcl.formats import BfclFormat, get_format
from env_service.environments.kit.stray import literal
from seal.method.diagnosis.evidence import ActionEvidence, TurnEvidence
from seal.method.diagnosis.rules import diagnose
from seal.records.source import WHOLE, data_source
from seal.records.trajectory import CUTS, PASS_SCORE, TrajectoryRecord
from shelf.lab.foreign.results import TEXT_MODES
from shelf.lab.foreign.rollout import STEP_LIMIT, Action, Heard, Rollout, Turn
from shelf.lab.foreign.seen import WITHIN, denies
from shelf.replay.player import Again

STRUCTURED = "bfcl_qwen_fc"
"""The prompt mode that expresses calls that the file keeps apart from the text."""
UNLIMITED = 1000
"""The highest number of messages with calls per turn that the service allows."""
MORE_TOOLS = "updated some more functions"
"""The official tool's words when it reveals tools to a model that gets them outside the dialogue."""
_TURNS = TypeAdapter(tuple[TurnEvidence, ...])


class _Move(NamedTuple):
    """A message of the policy. sent: the part that the service gets, None if nothing. acts: it asks for results.

    refusals: why texts in it are not calls. written, answers: these texts, and what its harness answered.
    cut: a limit on its length ended it.
    """

    sent: str | None
    acts: bool
    refusals: tuple[str, ...] = ()
    written: str = ""
    answers: tuple[str, ...] = ()
    cut: bool = False


class _Shown(NamedTuple):
    """A policy message as in a record. refused: its harness refused a call. messages: the message and its answers."""

    action: ActionEvidence
    refused: bool
    messages: list[Mapping[str, Any]]


def align(rollout: Rollout) -> Rollout:
    """The rollout, with user messages that only its harness wrote moved into the turn that they answer.

    The harness answers empty messages and unreadable calls with them. Failed if the policy did not write turn 0.
    """
    task, turns = load_tasks().get(rollout.task_id), rollout.turns
    first = (task.users[0] or "").strip() if task else ""
    if first and first in rollout.system:
        return replace(rollout, failure="the policy did not write the first turns of this task")
    if not (task and turns) or len(turns) == _asked(rollout) or turns[0].user.strip() != first:
        return rollout
    kept: list[Turn] = []
    for turn in turns:
        if _opens(task, len(kept), turn.user):
            kept.append(Turn(turn.user, list(turn.actions)))
        else:
            actions = kept[-1].actions
            actions[-1] = replace(actions[-1], nudge=turn.user)
            actions += turn.actions
    return replace(rollout, turns=kept)


def _asked(rollout: Rollout) -> int:
    task = load_tasks().get(rollout.task_id)
    return rollout.prefix if rollout.prefix != WHOLE else len(task.users) if task else len(rollout.turns)


def _opens(task: Task, number: int, text: str) -> bool:
    """True if a user message opens a turn of the task; a turn without its own text reveals tools."""
    said = task.users[number] if number < len(task.users) else None
    if said is not None:
        return said.strip() == text.strip()
    return any(name in text for name in (*task.withheld.get(number, ()), MORE_TOOLS))


def replay_of(rollout: Rollout, names: dict[str, Any]) -> Again:
    """The replay of a rollout under the official evaluation; a file with fewer turns than its task was cut.

    The runner limits messages and the evaluation does not, so the limit applies only if it ended the rollout.
    """
    mode, category = _mode(rollout), str(rollout.category)
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
    """The prompt mode to play in: if calls are not apart from the text, the mode that reads calls in the most texts."""
    if rollout.structured or rollout.mode:
        return rollout.mode or STRUCTURED
    texts = [action.text for turn in rollout.turns for action in turn.actions]
    return max(TEXT_MODES, key=lambda mode: sum(bool(get_format(mode).parse(text).calls) for text in texts))


def _moves(turn: Turn, rollout: Rollout, mode: str) -> list[_Move]:
    """The messages of a turn, with the answer that ends it."""
    moves = [_move(action, action is turn.actions[-1], rollout, mode) for action in turn.actions]
    last = turn is rollout.turns[-1]
    whole = rollout.structured or rollout.steps
    cut = last and (rollout.cut or len(rollout.turns) < _asked(rollout) or not whole)
    return moves if cut or (moves and not moves[-1].acts) else [*moves, _Move("", False)]


def _move(action: Action, last: bool, rollout: Rollout, mode: str) -> _Move:
    """A message as the service gets it. last: it is the last of its turn.

    Texts between messages with calls are left out, and so are calls that the harness could not read: the world
    stays as it is. A text that the harness answered, and in which no mode finds a call, is sent and ends the turn.
    """
    form = get_format(mode)
    heard, parsed = action.heard(tool_documents()), form.parse(action.text)
    if heard:
        calls = [form.render_call(_name(call, action), call.arguments) for call in heard if not call.refused]
        none = [call for call in heard if call.refused]
        reasons, answers = tuple(call.refused for call in none), tuple(call.result or "" for call in none)
        written = "\n".join(call.written for call in none)
        return _Move("\n".join(calls) or None, True, reasons, written, answers, action.cut)
    acts = bool(parsed.calls and not rollout.structured)
    answers = tuple(filter(None, (*action.results, action.nudge)))
    obscure = not (rollout.structured or rollout.mode) and action.text.strip() and not parsed.refusals
    if acts or last or (obscure and (answers or rollout.steps)):
        return _Move(action.text, acts)
    return _Move(None, acts, parsed.refusals, action.text, answers, action.cut)


def _name(call: Heard, action: Action) -> str:
    """The tool's name without a server's or a module's, if another harness than the official one ran it under both."""
    bare, ran = WITHIN.sub("", call.name), call.result and not (action.whole or denies(call.result, call.name))
    return bare if ran and bare in tool_documents() else call.name


def compare(rollout: Rollout, record: TrajectoryRecord) -> tuple[TrajectoryRecord, str]:
    """The record that the service made of a rollout, and what in it contradicts the file; lost if the turns differ."""
    if record.infra is not None:
        return record, ""
    played = [turn["actions"] for turn in record.evidence if turn["actions"]]
    turns = [_moves(turn, rollout, record.prompt_mode) for turn in rollout.turns]
    if why := _misread(played, turns, _asked(rollout), record.stop == "completed"):
        return replace(record, score=0.0, labels=(), diagnosis=(), infra="misread", infra_message=why), ""
    if any(move.refusals for moves in turns for move in moves):
        record = _with_refusals(record, turns)
    if rollout.reward is not None and (rollout.reward >= PASS_SCORE) != record.passed:
        return record, f"the file's reward is {rollout.reward:g} and the replay's {record.score:g}"
    return record, _other_result(rollout, played)


def _misread(played: Sequence[Sequence[Any]], turns: Sequence[Sequence[_Move]], asked: int, ended: bool) -> str:
    """A sentence on a turn that does not end where it ends in the file; "" if all do. ended: no budget cut it."""
    if len(turns) > asked:
        return f"it has {len(turns)} turns and its task {asked}"
    for number, (actions, moves) in enumerate(zip(played, turns, strict=False)):
        sent = [at for at, move in enumerate(moves) if move.sent is not None]
        if len(actions) > len(sent) or (len(actions) < len(sent) and (ended or number < len(played) - 1)):
            at = sent[min(len(actions), len(sent)) - 1]
            where = "here and not in its file" if len(actions) < len(sent) else "in its file and not here"
            return f"message {at} of turn {number}, {moves[at].sent[:60]!r}, ends the turn {where}"
    return ""


def _other_result(rollout: Rollout, played: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """A sentence on the first result that differs from the file's; "" if none does."""
    for number, (turn, actions) in enumerate(zip(rollout.turns, played, strict=False)):
        heard = [call for action in turn.actions for call in action.heard(tool_documents()) if not call.refused]
        found = [call for action in actions for call in action["calls"]]
        for was, call in zip(heard, found, strict=False):
            one, other = was.result or "", str(call["result"])
            if one and one != other and (literal(one) is None or literal(one) != literal(other)):
                return f"turn {number}: {call['name']} answers {call['result']!s:.80}"
    return ""


def _with_refusals(record: TrajectoryRecord, turns: Sequence[Sequence[_Move]]) -> TrajectoryRecord:
    """The record with the refused calls and their answers added at their place in the file."""
    starts = [at for at, message in enumerate(record.messages) if message["role"] == "assistant"]
    pairs = zip(starts, [*starts[1:], len(record.messages)], strict=False)  # empty if nothing of it was sent
    said = iter([record.messages[start:end] for start, end in pairs])
    messages = list(record.messages[: starts[0] if starts else None])
    evidence, pending, own = [], False, _TURNS.validate_python(record.evidence)
    for turn, moves in zip(own, turns, strict=False):
        if turn.stop == "not_reached":
            break
        shown = list(_shown(turn, moves, said, get_format(record.prompt_mode)))
        actions = tuple(each.action for each in shown)
        evidence.append(replace(turn, actions=actions, feedback_before=turn.feedback_before or pending))
        messages += [message for each in shown for message in each.messages]
        for each in shown:
            pending = each.refused or (pending and all(call.error for call in each.action.calls))
    evidence += own[len(evidence) :]
    diagnosis = diagnose(evidence)
    return replace(
        record,
        evidence=tuple(asdict(turn) for turn in evidence),
        labels=tuple(found.label for found in diagnosis),
        diagnosis=tuple(asdict(found) for found in diagnosis),
        messages=tuple(messages),
        times=(),
    )


def _shown(
    turn: TurnEvidence, moves: Sequence[_Move], said: Iterator[Sequence[Mapping[str, Any]]], form: BfclFormat
) -> Iterator[_Shown]:
    """The messages of a turn, up to the one at which a budget ended it. said: the sent messages with their answers."""
    own = iter(turn.actions)
    for move in moves:
        if move.sent is None and not move.refusals:
            continue
        action, (asked, *answer) = ActionEvidence(), [{"role": "assistant", "content": ""}]
        if move.sent is not None:
            if (action := next(own, None)) is None:
                return
            asked, *answer = next(said)
        if move.refusals:
            asked = asked | {"content": "\n".join(filter(None, (str(asked["content"]), move.written)))}
            texts = [*(call.result for call in action.calls), *move.answers]
            answer = [*form.results(texts), *answer[bool(action.calls) :]]
            refusals = (*action.refusals, *move.refusals)
            action = replace(action, refusals=refusals, truncated=action.truncated or move.cut)
        yield _Shown(action, bool(move.refusals), [asked, *answer])
