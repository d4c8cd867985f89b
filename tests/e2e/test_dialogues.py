"""A harness whose rollouts have several dialogues trains each sampled token once, in each way of training."""

import pytest

from seal.system import exits
from tests.e2e.test_native_format import SIZES, small_policy

pytestmark = pytest.mark.slow

STEPS, PROMPTS, SAMPLES = 2, 2, 4
SMALL = (
    "seal.rollout.harness=tests.support.harnesses:as_text",
    f"data.train_batch_size={PROMPTS}",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
    f"actor_rollout_ref.rollout.n={SAMPLES}",
    f"trainer.total_training_steps={STEPS}",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
)
ASYNCHRONOUS = (
    "trainer.v1.trainer_mode=seal_async",
    "trainer.v1.sampler.max_off_policy_threshold=4",
    "trainer.v1.sampler.max_off_policy_strategy=wait",
)


@pytest.mark.parametrize("way", ["alone", "asynchronous", "two processes", "native"])
def test_each_sampled_token_is_trained_once(make_run, tmp_path, way):
    own = {
        "alone": (),
        "asynchronous": ASYNCHRONOUS,
        "two processes": ("trainer.n_gpus_per_node=2", "seal.logprob_check_every=2"),
        "native": (*SIZES, "env_service.prompt_mode=native", f"actor_rollout_ref.model.path={tmp_path}/policy"),
    }
    if way == "native":
        small_policy(tmp_path / "policy", "hermes")
    run = make_run(*SMALL, *own[way])
    done = run.finish(deadline_s=900)
    assert done.returncode == exits.FINISHED, done.stdout
    steps = run.lines("seal_log/steps.jsonl")
    assert len(steps) >= 1 and all(step["trained_share"] == 1.0 and not step["infra"] for step in steps)
    records = [each for step in steps for each in run.lines(f"seal_log/trajectories/{step['step']}.jsonl")]
    print([(r["rewritten"], r["tokens"], r["trained_share"], r["stop"], r["score"]) for r in records])
    print([{k: v for k, v in s.items() if "logp" in k or k in ("staleness", "seconds")} for s in steps])
    assert sum(record["rewritten"] for record in records) > 0
