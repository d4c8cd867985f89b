"""The validation average is over categories, and infrastructure's failures are no failures of the policy."""

from seal.records.trajectory import TrajectoryRecord
from seal.records.validation import validation_averages


def record(source, score, infra=None):
    return TrajectoryRecord("multi_turn_base_0", source, source.partition("@")[0], "eval", 0, score, infra=infra)


def test_categories_weigh_the_same_and_prefixes_count_apart():
    records = [record("base", score) for score in (1.0, 1.0, 0.0, 0.5)]
    records += [record("miss_func", 0.0), record("base@1", 1.0)]
    assert validation_averages(records) == (0.25, 1.0)


def test_what_infrastructure_failed_is_left_out():
    assert validation_averages([record("base", 1.0), record("base", 0.0, infra="engine")]) == (1.0, None)
    assert validation_averages([record("base", 0.0, infra="engine")]) is None


def test_synthesised_tasks_do_not_move_the_benchmarks_average():
    benchmark = [record("base", 1.0), record("miss_func", 0.0), record("base@1", 1.0)]
    made = [record("synth_phrases_base", 0.0), record("synth_values_base", 1.0), record("synth_values_base@1", 0.0)]
    assert validation_averages(benchmark + made) == validation_averages(benchmark) == (0.5, 1.0)
    assert validation_averages(made) == (0.5, 0.0)
    assert validation_averages(made[2:]) == (None, 0.0)
