"""Labels of the committed rollouts agree with the committed scores."""

import pytest

from benchmarks.failure_labels import labelled_turns
from seal.system.paths import HOME
from shelf.lab.experiment.matrix import Experiment


@pytest.mark.parametrize("name", ["cues", "documents", "evidence"])
def test_turns_labelled_pass_are_the_turns_that_the_committed_result_counts_as_met(name):
    experiment = Experiment.read(HOME / "benchmarks" / name)
    source = experiment.design.primary.set
    turns = labelled_turns(experiment.folder, source)
    assert set(turns) == set(experiment.digests)
    for cell, result in experiment.finished():
        if str(cell) in turns:
            last = max(each.step for each in result.validations)
            [scores] = [each.tasks for each in result.validations if (each.step, each.source) == (last, source)]
            met = {task: count["pass"] for task, count in turns[str(cell)].items()}
            assert met == {task: score.turns_met for task, score in scores.items()}
