"""Runs with a teacher as a user starts them: resumed, asynchronous, and on two environments."""

import signal
from collections import Counter, defaultdict

import pytest

from seal.method.teacher import sees_omega
from seal.rollout.siblings import broken_tools
from seal.system import exits
from tests.support.struck_run import assert_same

pytestmark = pytest.mark.slow

STEPS, PROMPTS, SAMPLES = 4, 4, 4
SMALL = (
    "seal.interface={teacher: retry, share: 0.5}",
    f"data.train_batch_size={PROMPTS}",
    f"actor_rollout_ref.rollout.n={SAMPLES}",
    "seal.data.withdrawal=null",
    "trainer.save_freq=1",
    f"trainer.total_training_steps={STEPS}",
)
TASKS = "seal.data.train={task_file: data/test_bed/train_cued.json, mixture: [{tasks: data/test_bed/train.jsonl}]}"
"""Tasks each of which needs a document that the prompt withholds."""
VALIDATION = ("seal.data.val=[{split: eval, limit: 1}]", f"trainer.test_freq={STEPS}")
ROOM = ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1280", "actor_rollout_ref.rollout.max_model_len=2048")


def lessons(run) -> Counter:
    """The rollouts of a run by environment and kind; what holds in each of its prompts is asserted."""
    found: Counter = Counter()
    for step in range(1, STEPS + 1):
        prompts = defaultdict(list)
        for line in run.lines(f"seal_log/trajectories/{step}.jsonl"):
            assert line["infra"] is None, line["infra_message"]
            prompts[line["group"]].append(line)
        assert len(prompts) == PROMPTS and {len(rollouts) for rollouts in prompts.values()} == {SAMPLES}
        for rollouts in prompts.values():
            plain = [line for line in rollouts if not sees_omega(line["sample"], 0.5)]
            cued = [line for line in rollouts if line["cues"]]
            assert not cued or not any(line["score"] == 1 for line in plain), "cues are for what no plain one passes"
            for line in cued:
                assert line["sample"] == 1 and line["silent"] is not line["taught"]
                assert line["score"] == 1 or not line["taught"]
                if line["documents"]:
                    broken = frozenset.union(*(broken_tools(each["evidence"]) for each in plain))
                    assert line["documents"] == {"tools": sorted(broken), "others": 0}
            environment = plain[0]["category"].rpartition("/")[0] or "bfcl"
            found.update({(environment, "cued"): len(cued), (environment, "taught"): sum(x["taught"] for x in cued)})
    shown = Counter()
    for line in run.lines("seal_log/steps.jsonl"):
        shown.update(name.partition("/")[0] for name in line["teaching"])
    assert set(shown) == {environment for (environment, kind), count in found.items() if kind == "cued" and count}
    return found


def test_a_stopped_run_goes_on_bit_for_bit(make_run):
    runs = [make_run(*SMALL, *VALIDATION, *ROOM, TASKS, "actor_rollout_ref.actor.ppo_mini_batch_size=2") for _ in "12"]
    quiet, stopped = runs
    done = quiet.finish()
    assert done.returncode == exits.FINISHED, done.stdout
    launcher = stopped.start()
    stopped.wait_for(launcher, lambda: stopped.stage == ("train", 3), "a third step", 0.05)
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == exits.INTERRUPTED and stopped.saved == 2, output
    done = stopped.finish()
    assert done.returncode == exits.FINISHED, done.stdout
    assert_same(stopped, quiet, STEPS)
    assert lessons(quiet)["bfcl", "taught"] > 0


def test_an_asynchronous_run_teaches(make_run):
    run = make_run(
        *SMALL,
        *ROOM,
        TASKS,
        "seal.data.val=[{split: eval, limit: 1}]",
        "trainer.v1.trainer_mode=seal_async",
        "trainer.v1.sampler.max_off_policy_threshold=4",
        "trainer.v1.sampler.max_off_policy_strategy=wait",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        prefix=("env", "BFCL_DELAY_SECONDS=0.3"),
    )
    done = run.finish()
    assert done.returncode == exits.FINISHED, done.stdout
    assert lessons(run)["bfcl", "taught"] > 0
    assert any(step["staleness"]["max"] > 0 for step in run.lines("seal_log/steps.jsonl"))


def test_each_of_two_environments_is_taught_by_its_own_cues(make_run):
    pytest.importorskip("tau2")
    run = make_run(
        *SMALL,
        "seal.interface.entries=all",  # any prompt that nobody passes sees documents
        "seal.data.train={mixture: [{tasks: bfcl, prefix_turns: [1]}, {tasks: tau2_telecom}]}",
        "seal.data.val=[{split: eval, categories: [base], prefix_turns: [1], limit: 1}]",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        recipe="exp/environments/bfcl_and_tau2.yaml",
    )
    done = run.finish()
    assert done.returncode == exits.FINISHED, done.stdout
    found = lessons(run)
    assert ("bfcl", "cued") in found and found["tau2_telecom", "cued"], "the policy passes no task of telecom"
