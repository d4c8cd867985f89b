"""Result files of the official BFCL tool get the official evaluator's verdicts."""

import json
import random

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
from bfcl_eval.model_handler.utils import convert_to_function_call, default_decode_execute_prompting

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.tools import parse_reference
from seal.cli.main import execute, load
from seal.records.trajectory import TrajectoryRecord
from shelf.authoring.tests.bfcl_official import check

UNREADABLE = ('{"folder": ', "[]", "3", "null", "", '"{}"', None, 3, ["a"], [])


def official(task, result, structured) -> bool:
    """The verdict of the official evaluator: a message that it cannot decode is dropped whole."""
    if len(result) != len(task.reference):
        return False
    decode, turns = convert_to_function_call if structured else default_decode_execute_prompting, []
    for turn in result:
        turns.append([])
        for step in turn:
            try:
                calls = decode(step)
            except Exception:  # as the evaluator does
                continue
            if not is_empty_execute_response(calls):
                turns[-1].append(calls)
    return check(task, turns).valid


def spoilt(task, draw: random.Random, structured: bool) -> list[list]:
    """The reference as a result, its calls shared out among messages, with faults that harnesses have written."""
    result = []
    for calls in task.reference:
        steps, left = [], list(calls)
        while left:
            size = draw.choice((1, 1, 2, 3))
            steps.append(left[:size])
            left = left[size:]
        result.append([_step(step, structured) for step in steps] + ["Done."])
    for _ in range(draw.choice((0, 1, 1, 2))):
        _spoil(result, draw, structured)
    return result


def _step(calls, structured):
    if not structured:
        return f"[{', '.join(calls)}]"
    return [{name: json.dumps(arguments)} for name, arguments in map(parse_reference, calls)]


def _spoil(result, draw, structured):
    turn = draw.choice(result)
    at = draw.randrange(len(turn))
    step = turn[at]
    kind = draw.choice(("drop", "repeat", "empty", "text", "more", "fewer", *("call",) * 6))
    if kind == "drop":
        del turn[at]
    elif kind == "repeat":
        turn.insert(at, step)
    elif kind in ("empty", "text"):
        turn.insert(at, [] if kind == "empty" and structured else "I will look." if kind == "text" else "")
    elif kind == "more":
        result.append(turn)
    elif kind == "fewer":
        result.pop()
    elif structured and isinstance(step, list) and step:
        faulty = draw.choice(({"pwd": draw.choice(UNREADABLE)}, {"fly": "{}"}, "pwd()", {"pwd": {}}))
        step.insert(draw.randrange(len(step) + 1), faulty)
    elif not structured:
        forms = (f"```{step}```", step.strip("[]"), step[:-2], f"{step} now", step.replace("=", ":"), f"\n{step}\n")
        turn[at] = draw.choice(forms)


@pytest.mark.slow
@pytest.mark.parametrize("structured", [True, False])
def test_spoilt_results_get_the_official_verdicts(tmp_path, structured):
    draw = random.Random(7)
    tasks = draw.sample(sorted(load_tasks()), 300)
    rows = [(load_tasks()[name], spoilt(load_tasks()[name], draw, structured)) for name in tasks]
    file = tmp_path / "result.json"
    file.write_text("".join(json.dumps({"id": task.id, "result": result}) + "\n" for task, result in rows))
    out = tmp_path / "out"
    execute(load("diagnose"), ["rollouts", str(file), "--out", str(out)], "seal diagnose")
    lines = (out / "validation_log" / "0.jsonl").read_text().split("\n")[:-1]
    records = {record.task_id: record for record in map(TrajectoryRecord.from_json, lines)}
    judged = [(task, result, records[task.id]) for task, result in rows if task.id in records]
    judged = [each for each in judged if each[2].infra is None]
    assert len(judged) > 0.8 * len(rows)
    other = [(task.id, result) for task, result, ours in judged if ours.passed != official(task, result, structured)]
    assert other == [] and 0 < sum(ours.passed for *_, ours in judged) < len(judged)
