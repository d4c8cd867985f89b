"""The result of a run records the code that made it."""

import subprocess
from dataclasses import replace

import pytest

from seal.system.errors import LaunchError
from shelf.lab.experiment.collect import changes_outside, collect_finished
from shelf.lab.experiment.matrix import Registration
from shelf.lab.experiment.runner import prepare


def test_only_a_session_drops_files(make_bench):
    bench = make_bench(arms=("vanilla",), seeds=(0,), keep="{trajectories: true, checkpoints: all}")
    bench.run()
    folder, design = bench.experiment.run(bench.experiment.cells[0]), bench.experiment.design
    folder.path.joinpath("result.json").unlink()
    keep = design.keep.model_copy(update={"trajectories": False, "checkpoints": "none"})
    bench.experiment = replace(bench.experiment, design=design.model_copy(update={"keep": keep}))
    collect_finished(bench.experiment)
    assert bench.finished == ["vanilla-0"] and folder.trajectories.exists() and folder.checkpoints.exists()
    collect_finished(bench.experiment, drops=True)
    assert not folder.trajectories.exists() and not folder.checkpoints.exists()


def test_a_run_whose_session_was_killed_gives_no_time_from_its_last_start_alone(make_bench):
    bench = make_bench(arms=("vanilla",), seeds=(0,), keep="{checkpoints: all}")
    bench.run()
    (cell,) = bench.experiment.cells
    result, launches = bench.experiment.result(cell), bench.experiment.run(cell).launches
    assert next(bench.experiment.finished())[1].minutes > 0
    launches.write_text(2 * launches.read_text())  # of the first start, the killed session has written no attempt
    result.unlink()
    collect_finished(bench.experiment)
    ((_cell, found),) = bench.experiment.finished()
    assert (found.launches, found.minutes) == (2, 0.0)


def test_a_run_that_others_started_and_finished_is_not_missing(make_bench):
    bench = make_bench(arms=("vanilla",), seeds=(0,), keep="{checkpoints: all}")
    bench.run()
    experiment = bench.experiment
    for path in (experiment.result(experiment.cells[0]), experiment.results, experiment.attempts):
        path.unlink()
    assert prepare(experiment, bench.arms) == [] and bench.finished == ["vanilla-0"]
    ((_cell, result),) = experiment.finished()
    assert (result.launches, result.commit) == (1, "0" * 40) and result.inputs


def test_a_registration_of_two_lines_is_one_sentence(tmp_path):
    (tmp_path / "registration.json").write_text('{"format": 2}\n{"format": 2}\n')
    with pytest.raises(LaunchError, match="restore it"):
        Registration.read(tmp_path)


def test_results_of_the_experiment_itself_are_no_change_of_the_code(tmp_path):
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    results, code = tmp_path / "benchmarks" / "tiny" / "results.csv", tmp_path / "code.py"
    results.parent.mkdir(parents=True)
    results.write_text("{}\n")
    code.write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "Start")
    assert not changes_outside(git("diff", "HEAD"), "benchmarks/tiny")
    results.write_text("{}\n{}\ndiff --git a/code.py b/code.py\n")
    assert not changes_outside(git("diff", "HEAD"), "benchmarks/tiny")
    assert changes_outside(git("diff", "HEAD"), "benchmarks/ti"), "a folder whose name only begins alike is another one"
    code.write_text("x = 2\n")
    assert changes_outside(git("diff", "HEAD"), "benchmarks/tiny")
