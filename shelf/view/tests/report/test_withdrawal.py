"""The lift of the interface from trajectories whose outcomes are given."""

from dataclasses import replace

import pytest

from seal.records.trajectory import TrajectoryRecord
from shelf.view.lifts import lift

RECORD = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 0.0)


def outcomes(step, side, passed):
    for task, score in enumerate(passed):
        name = f"multi_turn_base_{task}"
        yield replace(RECORD, task_id=name, step=step, withdrawal=side, score=float(score))


def test_a_lift_pairs_each_task_with_itself_at_the_same_step():
    records = [
        *outcomes(0, "shown", (1, 1, 1, 0)),
        *outcomes(0, "hidden", (0, 0)),  # the other two tasks lack a side
        *outcomes(8, "shown", (1, 1, 1, 1)),
        *outcomes(8, "hidden", (1, 1, 0, 0)),
    ]
    found = lift(records)
    assert (list(found.at), found.overall.pairs) == ([0, 8], 6)
    assert found.overall.difference == pytest.approx(4 / 6)
    assert found.at[0].difference == pytest.approx(1.0) and found.at[8].difference == pytest.approx(0.5)


def test_a_pair_that_infrastructure_broke_does_not_count():
    records = [*outcomes(0, "shown", (1, 1)), *outcomes(0, "hidden", (0, 0))]
    records[0] = replace(records[0], infra="engine_timeout")
    assert lift(records).overall.pairs == 1
    assert lift(records[:2]) is None is lift([replace(record, withdrawal=None) for record in records])
