"""A matrix is run to its end, whatever interrupts it, and each run once."""

import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.lock import lock
from shelf.lab.experiment.arms import ComposedArm
from shelf.lab.experiment.collect import read_attempts
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.plan import status_parts
from shelf.lab.experiment.records import read_results
from shelf.lab.experiment.report import analyse, sections
from shelf.lab.experiment.runner import SessionOptions, require_devices
from tests.support.processes import runs

DEADLINE_S = 180


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {DEADLINE_S} s"
        time.sleep(0.02)


def test_every_run_is_launched_once_seed_by_seed_and_its_results_are_kept(make_bench):
    bench = make_bench()
    session = bench.run()
    assert session.code == exits.FINISHED
    assert [start["run"] for start in bench.starts] == ["vanilla-0", "seal-0", "vanilla-1", "seal-1"]
    first = bench.starts[0]["settings"]
    assert first["seal.seed"] == "0" and first["trainer.experiment_name"] == "simulated-vanilla-0"
    assert len({start["settings"]["env_service.env_url"] for start in bench.starts}) == 4
    results, bad = read_results(bench.experiment.results)
    assert not bad and [(each.arm, each.seed) for each in results] == [
        ("vanilla", 0), ("seal", 0), ("vanilla", 1), ("seal", 1)
    ]  # fmt: skip
    for result in results:
        assert [step.step for step in result.steps] == [1, 2, 3, 4]
        assert [each.step for each in result.validations] == [0, 2, 4]
        assert len(result.validations[0].tasks) == 20
        assert result.launches == 1 and result.checkpoint_bytes == 1000
    again = bench.run()
    assert again.code == exits.FINISHED and len(bench.starts) == 4


def test_a_clone_with_the_results_alone_runs_what_is_missing(make_bench):
    bench = make_bench(seeds=(0, 1))
    bench.run(only=("vanilla",))
    before, _bad = read_results(bench.experiment.results)
    shutil.rmtree(bench.experiment.folder / "runs")
    assert bench.finished == ["vanilla-0", "vanilla-1"]
    assert bench.run().code == exits.FINISHED
    assert [start["run"] for start in bench.starts[2:]] == ["seal-0", "seal-1"]
    shutil.rmtree(bench.experiment.folder / "runs")
    results, _bad = read_results(bench.experiment.results)
    assert len(results) == 4 and results[::2] == before
    assert bench.run().code == exits.FINISHED and len(bench.starts) == 4


def test_results_of_an_arm_that_the_file_no_longer_has_stay(make_bench):
    bench = make_bench(seeds=(0,))
    bench.run(only=("vanilla",))
    shutil.rmtree(bench.experiment.folder / "runs")
    changed = make_bench(arms=("seal",), seeds=(0,))
    assert changed.run().code == exits.FINISHED and changed.finished == ["seal-0"]
    results, _bad = read_results(changed.experiment.results)
    assert [each.arm for each in results] == ["seal", "vanilla"]


def test_an_experiment_that_is_named_by_its_folder_runs_there_from_any_folder(make_bench, monkeypatch):
    bench = make_bench(seeds=(0,))
    bench.run(only=("vanilla",))
    folder = bench.experiment.folder
    monkeypatch.chdir(folder.parent)
    bench.experiment = Experiment.read(Path(folder.name))
    assert bench.run().code == exits.FINISHED and bench.finished == ["vanilla-0", "seal-0"]
    assert bench.starts[1]["settings"]["seal.run_dir"] == str(folder / "runs" / "seal-0")


def test_only_what_is_kept_remains_of_a_finished_run(make_bench):
    bench = make_bench(seeds=(0,), keep="{checkpoints: last, validations: false}")
    bench.run()
    folder = bench.experiment.run(bench.experiment.cells[0])
    assert [path.name for path in folder.checkpoints.glob("global_step_*")] == ["global_step_4"]
    assert folder.steps.exists() and not folder.trajectories.exists() and not folder.validations.exists()


def test_several_runs_go_on_at_once_on_gpus_of_their_own(make_bench, quickstart):
    bench = make_bench()
    cuda = quickstart.copy()
    cuda.trainer.device = "cuda"
    bench.arms = {name: ComposedArm(name, cuda, 4) for name in bench.arms}
    assert bench.run(jobs=2, devices=("4", "6")).code == exits.FINISHED
    assert {start["devices"] for start in bench.starts} == {"4", "6"}
    with pytest.raises(LaunchError, match="needs 3 GPUs, and --devices names 2"):
        bench.run(jobs=3, devices=("0", "1"))
    on_cpu = bench.arms | {"seal": ComposedArm("seal", quickstart, 4)}
    require_devices(on_cpu, SessionOptions(jobs=3, only=("seal",)))  # the chosen arm needs none


@pytest.mark.parametrize("event", [{"do": exits.INFRASTRUCTURE}, {"do": "kill"}, {"do": exits.FAILED}])
def test_a_run_that_dies_is_started_again_and_resumes(make_bench, event):
    bench = make_bench(arms=("vanilla",), seeds=(0,))
    bench.happening(**{"vanilla__0": {"at": 3, **event}})
    assert bench.run().code == exits.FINISHED
    ((_cell, result),) = bench.experiment.finished()
    assert [step.step for step in result.steps] == [1, 2, 3, 4] and result.launches == 2
    notes = " ".join(note for section in sections(analyse(bench.experiment)) for note in section.notes)
    assert "2 commits of the code: 000000000000, 222222222222." in notes and "resumed: vanilla-0." in notes
    codes = [attempt.code for attempt in read_attempts(bench.experiment)]
    assert codes == [-signal.SIGKILL if event["do"] == "kill" else event["do"], 0]


def test_a_run_that_cannot_start_is_named_and_the_others_run(make_bench):
    bench = make_bench(seeds=(0, 1))
    bench.happening(**{"seal__0": {"at": 1, "do": exits.REFUSED, "times": 9}})
    session = bench.run()
    assert session.code == exits.FAILED
    assert {str(cell): reason for cell, reason in session.failed.items()} == {"seal-0": "it ended as planned, with 1"}
    assert bench.finished == ["vanilla-0", "vanilla-1", "seal-1"]
    assert Counter(start["run"] for start in bench.starts)["seal-0"] == 1
    assert any(
        "seal-0 ended with code 1: it ended as planned, with 1" in str(part) for part in status_parts(bench.experiment)
    )
    bench.happening()
    assert bench.run().code == exits.FINISHED and len(bench.finished) == 4


def test_the_reason_is_that_of_the_last_start(make_bench):
    bench = make_bench(arms=("vanilla",), seeds=(0,))
    bench.happening(**{"vanilla__0": {"at": 2, "do": exits.REFUSED}})
    bench.run()
    bench.plan.with_name("vanilla-0.count").unlink()
    bench.happening(**{"vanilla__0": {"at": 2, "do": exits.CHECKPOINT}})
    bench.run()
    assert [each.reason for each in read_attempts(bench.experiment)] == [
        "it ended as planned, with 1",
        "it ended as planned, with 5",
    ]


def test_after_three_failures_in_a_row_no_run_is_started(make_bench):
    bench = make_bench(seeds=(0, 1, 2))
    bench.happening(**{f"{arm}__{seed}": {"at": 1, "do": 1, "times": 9} for arm in bench.arms for seed in range(3)})
    session = bench.run()
    assert session.code == exits.FAILED and len(bench.starts) == 3 and session.missing == 3


def test_a_run_that_ends_well_without_its_steps_has_failed(make_bench):
    bench = make_bench(seeds=(0,))
    bench.happening(**{"seal__0": {"at": 2, "do": 0, "times": 9}})
    session = bench.run()
    assert list(session.failed.values()) == ["its logs cannot be used: its logs end before step 4"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_session_saves_its_runs_and_goes_on(make_bench, number):
    bench = make_bench(arms=("vanilla",))
    process = bench.session(step_s=0.5)
    wait_for(lambda: len(bench.starts) == 1, "start")
    time.sleep(0.7)
    process.send_signal(number)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + number, said
    assert "the same command resumes it" in said and bench.finished == []
    assert bench.run().code == exits.FINISHED
    assert bench.finished == ["vanilla-0", "vanilla-1"]


def test_a_second_ctrl_c_ends_a_run_that_hangs(make_bench):
    bench = make_bench(arms=("vanilla",), seeds=(0,))
    bench.happening(**{"vanilla__0": {"at": 2, "do": "hang"}})
    process = bench.session(step_s=5)
    wait_for(lambda: len(bench.starts) == 1, "start")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == exits.INTERRUPTED
    assert not runs(bench.starts[0]["pid"])


def test_a_killed_session_leaves_no_process_and_the_next_one_resumes(make_bench):
    bench = make_bench()
    process = bench.session(jobs=2, step_s=0.4)
    wait_for(lambda: len(bench.starts) == 2, "two starts")
    time.sleep(0.6)
    process.kill()
    process.communicate()
    # Its runs are told to save; the new session waits for them.
    assert bench.run(jobs=2).code == exits.FINISHED
    assert not any(runs(start["pid"]) for start in bench.starts)
    assert sorted(bench.finished) == ["seal-0", "seal-1", "vanilla-0", "vanilla-1"]
    for _cell, result in bench.experiment.finished():
        assert [step.step for step in result.steps] == [1, 2, 3, 4]


def test_two_sessions_do_not_share_a_folder(make_bench):
    bench = make_bench()
    with lock(bench.experiment.lock), pytest.raises(LaunchError, match="is in use by process"):
        bench.run()
    assert bench.starts == []


def test_an_arm_that_changes_after_its_first_run_is_refused(make_bench, quickstart):
    bench = make_bench(seeds=(0,))
    bench.run()
    changed = quickstart.copy()
    changed.trainer.total_training_steps = 5
    changed.seal.seed = 3
    bench.arms["seal"] = ComposedArm("seal", changed, 5)
    named = r"arm seal .*trainer.total_training_steps was 4 and is 5\)"
    with pytest.raises(LaunchError, match=named):
        bench.run()


def test_a_new_arm_and_more_seeds_are_run_and_reported_as_changes(make_bench, quickstart):
    bench = make_bench(seeds=(0,))
    bench.run()
    more = make_bench(arms=("vanilla", "seal", "random_labels"), seeds=(0, 1))
    more.run()
    assert len(more.finished) == 6 and len(more.starts) == 6
    assert any("changed since its registration: seeds, arms" in each for each in more.said)
