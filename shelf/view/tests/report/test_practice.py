"""The change of reward, paired by task."""

import json
import math

import pytest

from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from shelf.view.report.run import Run, practice


def write_steps(folder, *steps):
    """Trajectories of steps 1, 2, ...: (task, score, infra) each."""
    trajectories = RunFolder(folder).trajectories
    trajectories.mkdir(parents=True)
    for number, played in enumerate(steps, 1):
        lines = [
            TrajectoryRecord(f"multi_turn_base_{task}", "base", "base", "train", sample, score, infra=infra).line()
            for sample, (task, score, infra) in enumerate(played)
        ]
        (trajectories / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder(folder)


def rollouts(folder):
    return Run(folder, (), None, ()).rollouts


def test_tasks_are_compared_with_themselves_and_what_came_once_or_was_lost_does_not_count(tmp_path):
    easy, hard, once = 0, 1, 2
    folder = write_steps(
        tmp_path,
        [(easy, 1.0, None), (easy, 0.0, None), (once, 0.0, None)],
        [(hard, 0.0, None), (hard, 0.0, None)],
        [(easy, 1.0, None), (easy, 0.0, "engine"), (hard, 1.0, None), (hard, 0.0, None), (hard, 1.0, None)],
    )
    tasks, change = practice(rollouts(folder))
    assert tasks == 2
    assert (change.before, change.after) == (0.25, pytest.approx((1 + 2 / 3) / 2))
    assert change.standard_error == pytest.approx((2 / 3 - 0.5) / math.sqrt(2) / math.sqrt(2))


def test_rollouts_that_the_recipe_excludes_do_not_count(tmp_path):
    folder = write_steps(tmp_path, *[[(task, 1.0, None) for task in (0, 0, 1)]] * 2)
    path = folder.trajectories / "2.jsonl"
    cut, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(cut) | {"score": 0.0, "excluded": True}), *rest, ""]))
    assert practice(rollouts(folder))[1].after == 1.0


def test_without_a_task_that_comes_back_there_is_nothing_to_compare(tmp_path):
    assert practice(rollouts(write_steps(tmp_path, [(0, 1.0, None)], [(1, 1.0, None)]))) is None
