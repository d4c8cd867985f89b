"""Where to look first: a group with signal, and a task that a run learnt."""

import sqlite3
from itertools import zip_longest
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from env_service.environments.bfcl.python_calls import write_call
from seal.records.source import WHOLE
from seal.records.trajectory import TrajectoryRecord
from seal.system.text import clipped, one_line
from shelf.statistics.log import MET, Log
from shelf.statistics.tables import table
from shelf.view.query import Filters, groups
from shelf.view.report.run import by_task
from shelf.view.trajectory import place_messages

CLEAREST = "infra > 0, abs(2.0 * passed / counted - 1), turns BETWEEN 2 AND 4 DESC, kinds, step DESC, task"
"""The order of groups: nothing lost, half passed, 2 to 4 turns, failures that agree; among equals, the newest first."""
_LONGEST_MESSAGE = 160
_MOST_MESSAGES = 12


class Learnt(NamedTuple):
    """A task before and after: one rollout each, and the first turn, from 0, that `before` failed."""

    before: TrajectoryRecord
    after: TrajectoryRecord
    turn: int


def first_group(db: sqlite3.Connection) -> dict[str, Any] | None:
    """The training group that best shows what is learnt from a group; None if no group has signal."""
    return next(iter(groups(db, Filters(), 0, 1, True, CLEAREST)["rows"]), None)


def learnt(log: Log) -> Learnt | None:
    """A task that failed in every sample of the first validation and passed in every one of the last; None without one.

    Tasks with several turns come first, then whole tasks before prefixes, then tasks with few sampled tokens.
    """
    if len(log.steps) < 2:
        return None
    first, last = (by_task(log.at(step)) for step in (log.steps[0], log.steps[-1]))
    found = []
    for task, failed in first.items():
        if task in last and not any(line.passed for line in failed) and all(line.passed for line in last[task]):
            before, after = (min(lines, key=lambda line: line.tokens) for lines in (failed, last[task]))
            missed = (turn for turn, label in enumerate(before.labels) if label not in MET)
            found += [Learnt(before, after, turn) for turn in list(missed)[:1]]
    return min(found, key=_preference, default=None)


def _preference(found: Learnt) -> tuple[Any, ...]:
    before, after, _ = found
    return before.turns < 2, before.prefix != WHOLE, before.tokens + after.tokens, before.task_id


def learnt_example(log: Log) -> Table | None:
    """A learnt task as a table with the failed turn before and after, side by side; None if no task was learnt."""
    if not (found := learnt(log)):
        return None
    before, after, turn = found
    title = f"{before.task_id}, turn {turn + 1}, before and after"
    made = table(title, [f"step {before.step}: {before.labels[turn]}", f"step {after.step}: passed"])
    for column in made.columns:
        column.justify, column.no_wrap, column.overflow, column.ratio = "left", False, "fold", 1
    made.expand = True
    for left, right in zip_longest(_said(before, turn), _said(after, turn), fillvalue=Text()):
        made.add_row(left, right)
    return made


def _said(line: TrajectoryRecord, turn: int) -> list[Text]:
    """The messages of a turn, without the system message; a model's text is neither markup nor a terminal's command."""
    spoken = [
        message
        for message in place_messages(line.messages, line.evidence)
        if message["turn"] in (turn, None) and message["speaker"] not in ("system", "environment")
    ]
    texts = []
    for message in spoken[:_MOST_MESSAGES]:
        actions = line.evidence[turn]["actions"] if message["action"] is not None else ()
        calls = actions[message["action"]]["calls"] if actions else ()
        content = "\n".join(write_call(call["name"], call["arguments"]) for call in calls) or str(message["content"])
        content = clipped("\n".join(map(one_line, content.split("\n"))), _LONGEST_MESSAGE)
        style = "bold" if message["speaker"] == "policy" else ""
        texts.append(Text.assemble((f"{message['speaker']}: ", "dim"), (content, style)))
    return [*texts, *([Text(f"... {len(spoken) - len(texts)} more")] if len(spoken) > len(texts) else [])]
