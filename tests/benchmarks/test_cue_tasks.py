"""The look behind the primary outcome takes it apart without a rest."""

import pytest

from benchmarks.cue_tasks import needing_cues, restricted
from seal.system.paths import HOME
from shelf.lab.experiment.effects import by_arm
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.scores import panel


@pytest.mark.parametrize(
    ("name", "needing", "others"), [("evidence", 36, 124), ("documents", 36, 124), ("cues", 40, 120)]
)
def test_tasks_that_need_a_cue_and_the_others_make_up_the_primary_outcome(name, needing, others):
    experiment = Experiment.read(HOME / "benchmarks" / name)
    runs = by_arm(experiment.design, (result for _cell, result in experiment.finished()))
    tasks, outcome = needing_cues(), experiment.design.primary
    halves = restricted(runs, tasks, True), restricted(runs, tasks, False)
    for arm, found in runs.items():
        for seed, result in found.items():
            whole = panel([result], outcome)
            parts = [panel([each[arm][seed]], outcome) for each in halves]
            assert [part.values.shape[1] for part in parts] == [needing, others]
            assert sum(part.values.sum() for part in parts) == pytest.approx(whole.values.sum())
