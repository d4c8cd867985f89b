"""The closed loop as a user runs it: train, validate, save, interrupt, resume."""

import json
import re
import signal
from ipaddress import ip_address

import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.launches import HOME

SMALL = (
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "seal.data.val=[{split: eval, limit: 1}]",
    "trainer.save_freq=1",
)


WITHDRAWAL = "seal.data.withdrawal={categories: [base], prefix_turns: [1], limit: 2}"


def test_it_trains_validates_and_saves(make_run):
    run = make_run(*SMALL, "trainer.total_training_steps=2", "trainer.test_freq=2", WITHDRAWAL, loggers=None)
    process = run.start()
    run.wait_for(process, lambda: run.stage == ("update", 1), "the first update")
    listening = addresses(process)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert len(listening) > 20 and all(ip_address(each).is_loopback for each in listening)
    assert run.leftovers() == [] and run.saved == 2
    check_steps(run, 2)
    check_complete(run, 2, output)


def addresses(process):
    """Where a process and all that it started listen; an IPv4 address that IPv6 maps is given as IPv4."""
    parent = psutil.Process(process.pid)
    connections = [c for each in (parent, *parent.children(recursive=True)) for c in each.net_connections("inet")]
    return [c.laddr.ip.removeprefix("::ffff:") for c in connections if c.status == psutil.CONN_LISTEN]


@pytest.mark.slow
def test_it_trains_validates_saves_and_resumes_where_it_was_interrupted(make_run):
    settings = ("trainer.total_training_steps=3", "trainer.test_freq=3", "trainer.save_freq=9")
    run = make_run(*SMALL, *settings, WITHDRAWAL, loggers=None)
    process = run.start()
    run.wait_for(process, lambda: run.stage == ("train", 2), "a second step")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "stopping: the trainer saves a checkpoint" in output and "the same command resumes" in output
    assert run.leftovers() == []
    saved = run.saved
    assert saved == run.logged[-1] >= 1, "the steps that were done are saved, though save_freq is 9"
    assert omega_saved(run, saved)["version"] >= 0

    done = run.finish()
    assert done.returncode == 0, done.stdout
    assert run.leftovers() == []
    log = (run.folder / "train.log").read_text()
    assert re.search(rf"Resuming from \S*{run.name}/checkpoints/global_step_{saved}", log)
    check_steps(run, 3)
    check_complete(run, 3, done.stdout)
    again = run.finish()
    assert again.returncode == 0 and "complete" in again.stdout
    assert run.logged == [1, 2, 3]


def omega_saved(run, step):
    state = json.loads((run.checkpoints / f"global_step_{step}" / "seal_state.json").read_text())
    return json.loads(state["state"])["loop"]["omega"]


def check_steps(run, last):
    steps = run.lines("seal_log/steps.jsonl")
    assert [step["step"] for step in steps] == list(range(1, last + 1))
    for step in steps:
        trajectories = run.lines(f"seal_log/trajectories/{step['step']}.jsonl")
        assert [t["infra_message"] for t in trajectories if t["infra"]] == []
        assert step["trajectories"] == 16 and not step["infra"] and step["logp_diff_mean"] < 1e-4
        assert sum(step["label_counts"].values()) <= 16  # first turns: one label each, and a cut one does not count
        assert 0.5 <= step["w"]["min"] <= step["w"]["max"] <= 2.0
        assert {t["omega_version"] for t in trajectories} == {step["omega"]["version"]}
        assert all(t["split"] == "train" and t["score"] in (0.0, 1.0) for t in trajectories)


def check_complete(run, last, said):
    """Check the validations before and after training, and the best checkpoint."""
    for step in (0, last):
        validated = run.lines(f"validation_log/{step}.jsonl")
        assert len(validated) == 4
        assert {line["data_source"] for line in validated} == {"base", "miss_func", "miss_param", "long_context"}
        assert all(line["omega_version"] is None and line["split"] == "eval" for line in validated)
        # Turns that an episode never reached have no label.
        assert all(0 < len(line["labels"]) <= line["turns"] for line in validated)
        withdrawn = run.lines(f"seal_log/withdrawal/{step}.jsonl")
        assert not any(line["infra"] for line in withdrawn)
        ways = sorted((line["withdrawal"], line["omega_version"] is None, line["drawn"]) for line in withdrawn)
        assert ways == [("hidden", True, None)] * 2 + [("shown", False, step)] * 2
    assert "`seal report" in said

    best = json.loads((run.checkpoints / "best.json").read_text())
    assert best["step"] == last and (run.checkpoints / best["folder"]).is_dir()
    assert omega_saved(run, last)["version"] >= 0

    assert run.logged == list(range(1, last + 1))
    assert [step for step, _ in weights_drawn(run)] == run.logged


def weights_drawn(run, hide_superseded=True):
    """Step and value of each point of a curve of ours, as TensorBoard shows it."""
    events = EventAccumulator(str(run.folder / "tensorboard"), purge_orphaned_data=hide_superseded).Reload()
    return [(point.step, point.value) for point in events.Scalars("seal/w/mean")]


def deterministic(steps):
    measured = ("seconds", "seal_seconds", "logp_diff_max", "logp_diff_mean")
    return [{key: value for key, value in step.items() if key not in measured} for step in steps]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_named_checkpoint_and_a_record_run_the_same_again(make_run, processes):
    settings = ("trainer.total_training_steps=2", "trainer.val_before_train=false", "trainer.test_freq=-1")
    several = (f"trainer.n_gpus_per_node={processes}", f"seal.logprob_check_every={processes}")
    run = make_run(*SMALL, *settings, *several, loggers=None)
    done = run.finish()
    assert done.returncode == 0, done.stdout
    steps, drawn = deterministic(run.lines("seal_log/steps.jsonl")), weights_drawn(run)
    (record,) = (HOME / "launcher_record" / run.name).iterdir()

    back = run.finish(options=("--resume", str(run.checkpoints / "global_step_1")))
    assert back.returncode == 0, back.stdout
    assert deterministic(run.lines("seal_log/steps.jsonl")) == steps
    # The second step was drawn twice; TensorBoard shows the second time alone.
    assert weights_drawn(run) == drawn
    assert [step for step, _ in weights_drawn(run, hide_superseded=False)] == [1, 2, 2]

    again = make_run(*SMALL, *settings, *several, loggers=None, recipe=str(record / "recipe.yaml"))
    done = again.finish()
    assert done.returncode == 0, done.stdout
    assert deterministic(again.lines("seal_log/steps.jsonl")) == steps
    assert len(again.lines("seal_log/trajectories/2.jsonl")) == 16
