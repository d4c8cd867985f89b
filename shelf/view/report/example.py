"""One task that failed at the first validation and passed at the last: both dialogues side by side."""

from itertools import zip_longest

from rich.table import Table
from rich.text import Text

from seal.records.source import WHOLE
from seal.records.trajectory import MET, TrajectoryRecord
from seal.records.validation import Log
from seal.statistics.tables import table
from shelf.view.report.run import by_task

_LONGEST_MESSAGE = 160
_MOST_MESSAGES = 16
_SPEAKERS = {"user": "", "assistant": "> "}


def learnt_example(log: Log) -> Table | None:
    """The example as a table, None if no task went from failed to passed in all of its samples."""
    pair = _pair(log)
    if pair is None:
        return None
    before, after = pair
    turn, label = next((i, label) for i, label in enumerate(before.labels) if label not in MET)
    title = f"{before.task_id}, before and after"
    made = table(title, [f"step {before.step}: {label} in turn {turn + 1}", f"step {after.step}: passed"])
    for column in made.columns:
        column.justify, column.no_wrap, column.overflow, column.ratio = "left", False, "fold", 1
    made.expand = True
    for left, right in zip_longest(_said(before), _said(after), fillvalue=Text()):
        made.add_row(left, right)
    return made


def _pair(log: Log) -> tuple[TrajectoryRecord, TrajectoryRecord] | None:
    """A failed rollout of the first validation and a passed one of the last, of the task with the shortest dialogue.

    Tasks of several turns come before others, and whole ones before prefixes.
    """
    first, last = (by_task(log.at(step)) for step in (log.steps[0], log.steps[-1]))
    learnt = [
        (min(failed, key=_length), min(last[task], key=_length))
        for task, failed in first.items()
        if task in last and not any(line.passed for line in failed) and all(line.passed for line in last[task])
    ]
    shown = [pair for pair in learnt if all(line.messages and line.labels for line in pair)]
    if len(log.steps) < 2 or not shown:
        return None
    return min(shown, key=lambda pair: (pair[0].turns < 2, pair[0].prefix != WHOLE, *map(_length, reversed(pair))))


def _length(line: TrajectoryRecord) -> int:
    return sum(len(str(message["content"])) for message in line.messages if message["role"] != "system")


def _said(line: TrajectoryRecord) -> list[Text]:
    """What was said, without the system message; the policy's lines start with >, and text stays text."""
    spoken = [message for message in line.messages if message["role"] in _SPEAKERS]
    texts = []
    for message in spoken[:_MOST_MESSAGES]:
        content = str(message["content"])
        content = content if len(content) <= _LONGEST_MESSAGE else content[:_LONGEST_MESSAGE] + " ..."
        texts.append(Text(_SPEAKERS[message["role"]] + content, style="bold" if message["role"] == "assistant" else ""))
    return [*texts, *([Text(f"... {len(spoken) - len(texts)} more")] if len(spoken) > len(texts) else [])]
