"""The first line of report, picture and viewer says what the logs say."""

import json

import pytest

from env_service.environments.bfcl.splits import task_ids
from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from shelf.view.headline import headline

TASKS = task_ids()["eval"]


def validated(step, passes, count=200, source="", **more):
    for number, task in enumerate(TASKS[:count]):
        category = "_".join(task.split("_")[2:-1])
        score = float(passes(number))
        labels = ("pass",) if score else ("missing_tool_call" if number % 2 else "state_mismatch",)
        identity = (task, f"{category}{source}", category, "eval", 0)
        yield TrajectoryRecord(*identity, score, labels, step=step, **more)


def said(tmp_path, *lines, step=9, of=24):
    folder = RunFolder(tmp_path / "quickstart")
    folder.steps.parent.mkdir(parents=True)
    stages = [{"stage": "train", "step": step, "of": of}, {"stage": "validate", "step": step, "of": 213}]
    folder.stages.write_text("".join(json.dumps(stage) + "\n" for stage in stages) + '{"stage"')
    return headline(folder, [StepRecord(step)], [line for part in lines for line in part])


def test_the_change_is_paired_by_task_and_the_label_that_moved_most_is_named(tmp_path):
    before, after = validated(0, lambda n: n % 10 == 0), validated(24, lambda n: n % 2 == 1 or n % 10 == 0)
    text = said(tmp_path, before, validated(12, lambda n: True), after, step=24)
    assert text.startswith("quickstart, 24 of 24 steps: validated tasks passed 10.0 % -> 60.0 % (+50.0, 95 % +4")
    assert text.endswith("); of their turns missing_tool_call 50 % -> 0 %")


def test_tasks_that_only_one_side_has_do_not_count(tmp_path):
    text = said(tmp_path, validated(0, lambda n: n % 2, 100), validated(9, lambda n: n % 2, 200))
    assert "50.0 % -> 50.0 % (+0.0," in text and "missing" not in text


def test_the_labels_are_those_of_the_tasks_that_both_validations_have(tmp_path):
    before = validated(0, lambda n: n % 2 and n < 100, 200)
    assert "of their turns" not in said(tmp_path, before, validated(9, lambda n: n % 2, 100))


def test_the_tasks_of_two_environments_are_not_paired_by_their_names(tmp_path):
    places = ((0, "shop/x"), (9, "bank/x"))
    sides = ([TrajectoryRecord("t", name, name, "eval", 0, 1.0, ("pass",), step=step)] for step, name in places)
    assert said(tmp_path, *sides).endswith("at step 9")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), "quickstart, 9 of 24 steps: no validation yet"),
        ((validated(0, bool, infra="engine_timeout"),), "9 of 24 steps: infrastructure lost every rollout"),
        ((validated(0, lambda n: n < 50),), "validated tasks passed 25.0 % (95 % 19.5 to 31.4) at step 0"),
        ((validated(0, bool, 0), validated(0, lambda n: n % 2, source="@1")), "validated first turns passed 50.0 %"),
    ],
)
def test_a_run_without_two_validations_says_what_it_has(tmp_path, lines, expected):
    assert expected in said(tmp_path, *lines)
