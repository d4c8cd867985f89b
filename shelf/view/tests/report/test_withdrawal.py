"""Lifts of cues from trajectories whose outcomes are given."""

from dataclasses import replace

import pytest

from seal.records.trajectory import EVERY_CUE, TrajectoryRecord
from shelf.view.lifts import lifts

RECORD = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 0.0)


def outcomes(step, withdrawn, passed):
    for task, score in enumerate(passed):
        name = f"multi_turn_base_{task}"
        yield replace(RECORD, task_id=name, step=step, withdrawn=withdrawn, score=float(score))


def test_a_lift_pairs_each_task_with_itself_at_the_same_step():
    records = [
        *outcomes(0, "", (1, 1, 1, 0)),
        *outcomes(0, "caution", (0, 0)),  # the other two tasks went without another cue
        *outcomes(8, "", (1, 1, 1, 1)),
        *outcomes(8, "caution", (1, 1)),
        *outcomes(8, EVERY_CUE, (1, 1, 0, 0)),
    ]
    whole, caution = lifts(records)
    assert (whole.cue, caution.cue) == (EVERY_CUE, "caution")
    assert (list(whole.at), whole.overall.pairs) == ([8], 4)
    assert whole.overall.difference == pytest.approx(0.5)
    assert (caution.overall.pairs, list(caution.at)) == (4, [0, 8])
    assert caution.overall.difference == pytest.approx(0.5)
    assert caution.at[0].difference == pytest.approx(1.0) and caution.at[8].difference == pytest.approx(0.0)


def test_a_pair_that_infrastructure_broke_does_not_count():
    records = [*outcomes(0, "", (1, 1)), *outcomes(0, "caution", (0, 0))]
    records[0] = replace(records[0], infra="engine_timeout")
    (caution,) = lifts(records)
    assert caution.overall.pairs == 1
    assert lifts(records[:2]) == () == lifts([replace(record, withdrawn=None) for record in records])
