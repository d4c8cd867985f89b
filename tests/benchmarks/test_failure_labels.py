"""Labels taken from the certificates agree with the committed scores."""

from collections import Counter

from benchmarks.failure_labels import labelled_turns
from seal.system.paths import HOME
from shelf.lab.experiment.matrix import Experiment


def test_turns_labelled_pass_are_the_turns_that_the_committed_result_counts_as_met():
    experiment = Experiment.read(HOME / "exp" / "experiments" / "documents.yaml")
    cell, result = next(iter(experiment.finished()))
    source = experiment.design.primary.set
    turns = labelled_turns(experiment.certificate(cell), source)
    [validation] = [each for each in result.validations if each.source == source]
    assert {task: score.turns_met for task, score in validation.tasks.items()} == {
        task: count["pass"] for task, count in turns.items()
    }
    assert sum(turns.values(), Counter())["invalid_tool_call"] > 0
