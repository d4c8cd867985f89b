"""The example of a report: a task that failed before and passes after, shown as it was said."""

import io
from dataclasses import replace

from rich.console import Console

from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.log import Log
from shelf.view.examples import learnt_example

ASKED = ({"role": "system", "content": "ls cd"}, {"role": "user", "content": "List [bold]files[/bold]."})
WRONG = (*ASKED, {"role": "assistant", "content": "I \x1b]0;cannot\x07do\x1b[2J that."})
RIGHT = (*ASKED, {"role": "assistant", "content": '<tool_call>{"name":"ls","arguments":{}}</tool_call>'})


def record(task, step, score, messages, sample=0, turns=1):
    labels = ("pass",) * turns if score else (*("pass",) * (turns - 1), "missing_tool_call")
    source = {"task_id": task, "data_source": "base", "category": "base", "split": "eval"}
    return TrajectoryRecord(
        **source, sample=sample, score=score, labels=labels, turns=turns, messages=messages, step=step, tokens=9
    )


def shown(*lines):
    example = learnt_example(Log(tuple(lines)))
    if example is None:
        return None
    console = Console(width=120, file=io.StringIO())
    console.print(example)
    return console.file.getvalue()


def test_the_example_failed_in_every_sample_before_and_passes_in_every_one_after():
    one, two = "multi_turn_base_1", "multi_turn_base_2"
    lines = [record(one, 0, 0.0, WRONG), record(one, 8, 1.0, RIGHT), record(two, 0, 0.0, WRONG, turns=2)]
    text = shown(*lines, record(two, 8, 1.0, RIGHT, turns=2))
    assert f"{two}, turn 2, before and after" in text  # a task of several turns comes first
    assert "step 0: missing_tool_call" in text and "step 8: passed" in text
    assert "policy: I do that." in text and "\x1b" not in text  # no word of a model commands a terminal
    assert '<tool_call>{"name":"ls"' in text and "ls cd" not in text
    assert "user: List [bold]files[/bold]." in text  # what a model or a user says is never markup
    text = shown(*lines, record(two, 8, 1.0, RIGHT, turns=2), record(two, 8, 0.0, WRONG, sample=1, turns=2))
    assert f"{one}, turn 1, before and after" in text


def test_without_such_a_task_there_is_no_example():
    one = "multi_turn_base_1"
    assert shown(record(one, 0, 0.0, WRONG)) is None
    assert shown(record(one, 0, 1.0, RIGHT), record(one, 8, 1.0, RIGHT)) is None
    lost = replace(record(one, 8, 1.0, RIGHT), infra="deadline")
    assert shown(record(one, 0, 0.0, WRONG), lost) is None


def test_long_dialogues_and_messages_are_cut():
    long = (*ASKED, *({"role": "assistant", "content": "x" * 400} for _ in range(30)))
    text = shown(record("multi_turn_base_1", 0, 0.0, long), record("multi_turn_base_1", 8, 1.0, RIGHT))
    assert "... 19 more" in text and "x" * 200 not in text.replace("\n", "")
