"""One task that failed at the first validation and passes at the last: the turn that failed, side by side."""

from itertools import zip_longest

from rich.table import Table
from rich.text import Text

from env_service.environments.bfcl.python_calls import write_call
from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.log import Log
from shelf.statistics.tables import table
from shelf.view.examples import learnt
from shelf.view.trajectory import placed

_LONGEST_MESSAGE = 160
_MOST_MESSAGES = 12


def learnt_example(log: Log) -> Table | None:
    """The example as a table, None if no task went from failed to passed in all of its samples."""
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
    """The messages of a turn, without the system message; a model's text is never markup."""
    spoken = [
        message
        for message in placed(line.messages, line.evidence)
        if message["turn"] in (turn, None) and message["speaker"] not in ("system", "environment")
    ]
    texts = []
    for message in spoken[:_MOST_MESSAGES]:
        actions = line.evidence[turn]["actions"] if message["action"] is not None else ()
        calls = actions[message["action"]]["calls"] if actions else ()
        content = "\n".join(write_call(call["name"], call["arguments"]) for call in calls) or str(message["content"])
        content = content if len(content) <= _LONGEST_MESSAGE else content[:_LONGEST_MESSAGE] + " ..."
        style = "bold" if message["speaker"] == "policy" else ""
        texts.append(Text.assemble((f"{message['speaker']}: ", "dim"), (content, style)))
    return [*texts, *([Text(f"... {len(spoken) - len(texts)} more")] if len(spoken) > len(texts) else [])]
