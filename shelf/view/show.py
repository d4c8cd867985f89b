"""Plays a logged trajectory again and prints it, for a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shelf.view.index import Index
from shelf.view.replay import Replayer
from shelf.view.runs import ViewedRun
from shelf.view.trajectory import trajectory

AGREES, DIFFERS = 0, 1


def show_replay(runs: Sequence[ViewedRun], key: str, console: Console | None = None) -> int:
    """Print each turn's messages, label and state; return 1 if a result differs from the log, else 0.

    ValueError if several runs are named, the key names nothing or the task cannot be played.
    """
    if len(runs) != 1:
        raise ValueError("--replay plays a trajectory of one run: name one.")
    index = Index(runs[0].folder)
    index.update()
    shown = index.ask(trajectory, runs[0].folder, key)
    record = shown["record"]
    replayer = Replayer()
    try:
        line = record | {"input": shown["messages"], "output": []}
        played = replayer.replay(line, shown["figures"]["step"], runs[0].folder.launches)
    finally:
        replayer.close()
    if "why" in played:
        raise ValueError(played["why"])
    console = console or Console(soft_wrap=True, highlight=False)
    turns = {turn["turn"]: turn for turn in played["turns"]}
    console.print(f"{record['task_id']} ({shown['figures']['source']}), reward {record['score']}", markup=False)
    last = None
    for message, plain in zip(shown["messages"], played["plain"], strict=True):
        turn = message["turn"]
        if turn != last:
            if last is not None:
                _print_state(console, turns.get(last))
            _print_turn(console, turn, record)
            last = turn
        console.print(_said(message, plain))
    _print_state(console, turns.get(last))
    differ = sum(len(turn["other_results"]) for turn in turns.values())
    if played["other_data"]:
        console.print("The run used other benchmark data than is installed here.", style="bold red")
    answer = f"{differ} results differ from the log." if differ else "Every result is the logged one."
    console.print(answer, style="bold red" if differ else "bold green")
    return DIFFERS if differ else AGREES


def _print_turn(console: Console, turn: int | None, record: dict[str, Any]) -> None:
    labels = record.get("labels") or ()
    title = f"Turn {turn + 1}" if turn is not None else "Messages"
    label = labels[turn] if turn is not None and turn < len(labels) else "no label"
    reasons = [made.get("reason", "") for made in record.get("diagnosis") or () if made.get("turn") == turn]
    console.print(Text(f"\n{title}: {label}", style="bold"), Text("; ".join(reasons), style="dim"))


def _said(message: dict[str, Any], plain: int | None) -> Text:
    content = message["content"]
    text = Text(f"{message['role']:>9}  ", style="cyan" if message["role"] == "assistant" else "dim")
    own, added = (content, "") if plain is None else (content[:plain], content[plain:])
    return text.append(own, style="default").append(added, style="black on yellow")


def _print_state(console: Console, turn: dict[str, Any] | None) -> None:
    if turn is None:
        return
    for call in turn["reference"]:
        console.print(Text(f"reference  {call}", style="green"))
    rows = turn["state"]["rows"]
    if not rows:
        console.print(Text("    state  as the reference", style="dim"))
        return
    table = Table("value", "before", "after", "reference after", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        cells = (Text(str(row.get(name, "absent"))) for name in ("before", "after", "expected"))
        table.add_row(Text(row["path"]), *cells, style="" if row["equal"] else "red")
    console.print(table)
