"""A step's advantages through verl's GRPO and a real TransferQueue: what is weighed, and what stands apart."""

import json
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu

import seal.backends.cpu_platform  # noqa: F401  registers the platform that the recipe names
from seal.launch.recipe import read_recipe
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from seal.system.paths import HOME
from seal.training.batch import StepBatch
from seal.training.trainer import SEALTrainer
from shelf.lab.advantages import group_advantages
from tests.support.rollout_play import tokenizer

RHO = [
    "seal.reweighting.dynamic=false",
    *(
        f"+seal.reweighting.rho.{label}={utility}"
        for label, utility in (("pass", 0.8), ("state_mismatch", 1.5), ("invalid_tool_call", 1.9))
    ),
]
GOOD, BAD, WORSE = ("pass", "pass"), ("pass", "state_mismatch"), ("invalid_tool_call", "invalid_tool_call")
MASKS = {"a": ([1, 1, 0, 1], [1, 0, 1], [1, 1, 0, 1, 1], [1, 1]), "b": ([1], [1, 0, 1, 1], [1, 1], [1, 1, 1])}
"""Which tokens of each sample are the policy's; the others are a tool's results."""
SCORES = {"a": (1.0, 0.0, 1.0, 1.0), "b": (1.0, 0.0, 0.0, 0.0)}
LABELS = {"a": (GOOD, BAD, GOOD, GOOD), "b": (GOOD, BAD, BAD, WORSE)}
W = {"a": (0.8, 1.15, 0.8, 0.8), "b": (0.8, 1.15, 1.15, 1.9)}
"""The mean utility of each sample's labels."""


@pytest.fixture(scope="module")
def queue():
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    yield
    tq.close()
    ray.shutdown()


class Step:
    """A trainer and the finished rollouts of its step, as agent-loop workers put them into the queue."""

    def __init__(self, folder, *overrides, changes=(), noise=(), several=(), mini=2):
        """several: the masks of the dialogues of a rollout, by its key without their number."""
        own = [f"seal.run_dir={folder}", "data.train_batch_size=2", "actor_rollout_ref.rollout.n=4"]
        own += [f"actor_rollout_ref.actor.ppo_mini_batch_size={mini}", *RHO, *overrides]
        self.trainer = SEALTrainer(read_recipe(HOME / "exp" / "quickstart.yaml", own).config)
        self.trainer.global_steps = 1
        rows = {}
        for uid, masks in MASKS.items():
            for sample, mask in enumerate(masks):
                for number, each in enumerate(dict(several).get(f"{uid}_{sample}", (mask,))):
                    key = f"{uid}_{sample}_{number}"
                    rows[key] = _row(uid, sample, each, dict(changes).get(key, {}), dict(noise).get(key))
        self.partition, self.keys = uuid4().hex, list(rows)
        tags = [{"is_padding": False, "seq_len": 9 + len(row["responses"])} for row in rows.values()]
        tq.kv_batch_put(self.keys, self.partition, tu.list_of_dict_to_tensordict(list(rows.values())), tags)
        self.batch = KVBatchMeta(partition_id=self.partition, keys=self.keys, tags=tags)

    def field(self, name):
        """A field of every trajectory as it is in the queue now, by key."""
        values = tq.kv_batch_get(self.keys, self.partition, select_fields=[name])[name]
        rows = values.unbind() if isinstance(values, torch.Tensor) else values
        return dict(zip(self.keys, rows, strict=True))


def _row(uid, sample, mask, changes, noise):
    length, score = len(mask), SCORES[uid][sample]
    base = {"labels": LABELS[uid][sample], **changes}
    record = TrajectoryRecord(f"multi_turn_base_{uid}", "base@2", "base", "train", sample, score, **base)
    logprobs = -torch.arange(1.0, length + 1)
    return {
        "uid": uid,
        "extra_fields": {"reward_extra_info": {"seal": record.to_json()}},
        "responses": torch.tensor(mask),
        "response_mask": torch.tensor(mask),
        "loss_mask": torch.tensor(mask),
        "rm_scores": torch.tensor([0.0] * (length - 1) + [score]),
        "old_log_probs": logprobs,
        "rollout_log_probs": logprobs + (torch.tensor(noise) if noise else 0.0),
    }


UPDATED = {"metrics": {"mfu": [0.0]}}
"""What an update of the actor answers."""
SEVERAL = {"a_2": ([1, 0, 1], [0, 1, 1]), "a_1": ([1, 0], [1]), "b_3": ([1], [0, 1], [1])}
"""Some rollouts in several dialogues, with as many tokens of the policy as in one."""


@pytest.fixture
def step(queue, tmp_path, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    return lambda *overrides, **settings: Step(tmp_path, *overrides, **settings)


def group_relative(scores, by_deviation=True):
    """A_j of GRPO, written out."""
    scores = torch.tensor(scores)
    return ((scores - scores.mean()) / (scores.std() + 1e-6 if by_deviation else 1.0)).tolist()


def check(found, expected):
    """expected: by key, a factor of all the policy's tokens or one factor a token."""
    for key, values in expected.items():
        uid, sample, _ = key.split("_")
        mask = torch.tensor(MASKS[uid][int(sample)], dtype=torch.float32)
        torch.testing.assert_close(found[key], torch.tensor(values) * mask, msg=lambda text, key=key: f"{key}: {text}")


def test_every_token_of_the_policy_has_its_advantage_times_the_weight(step):
    played, metrics = step(), {}
    played.trainer._compute_advantage(played.batch, metrics)
    expected = {
        f"{uid}_{sample}_0": W[uid][sample] * advantage
        for uid, scores in SCORES.items()
        for sample, advantage in enumerate(group_relative(scores))
    }
    check(played.field("advantages"), expected)
    assert metrics["seal/w/max"] == 1.9 and metrics["seal/groups_with_spread"] == 2


def test_a_rollout_weighs_as_one_however_many_dialogues_it_has(step):
    """The same advantages, weights, figures and records, and each token of the policy the same share of the mean."""
    found = []
    for several in ({}, SEVERAL):
        played, metrics = step(several=several, changes={"b_1_0": {"excluded": True}}), {}
        played.trainer._compute_advantage(played.batch, metrics)
        pull: dict[str, float] = {}
        masks = played.field("loss_mask")
        for key, advantages in played.field("advantages").items():
            logprobs = torch.zeros_like(advantages).requires_grad_()
            loss = agg_loss(
                -advantages * logprobs.exp(),
                masks[key],
                "token-mean",
                batch_num_tokens=int(sum(map(sum, masks.values()))),
            )
            loss.backward()
            pull[key[:3]] = pull.get(key[:3], 0.0) + logprobs.grad.sum().item()
        log = RunFolder(played.trainer._settings.run_dir).trajectories / "1.jsonl"
        records = [TrajectoryRecord.from_line(json.loads(line)) for line in log.read_text().splitlines()]
        metrics = {name: value for name, value in metrics.items() if name.startswith("seal/") and "seconds" not in name}
        metrics |= {f"{name}/{i}": getattr(each, name) for i, each in enumerate(records) for name in ("advantage", "w")}
        found.append((pull, metrics))
    (pull, metrics), (apart, counted) = found
    assert apart == pytest.approx(pull) and counted == pytest.approx(metrics)


@pytest.mark.parametrize(("mini", "ranks", "micro"), [(2, 1, 1), (1, 1, 3), (2, 2, 1), (1, 2, 4)])
def test_a_mini_batch_is_whole_rollouts_as_many_as_the_recipe_says(step, mini, ranks, micro):
    actor = "actor_rollout_ref.actor"
    fixed = (f"{actor}.use_dynamic_bsz=false", f"{actor}.ppo_micro_batch_size_per_gpu={micro}")
    played, seen = step(*fixed, several=SEVERAL, mini=mini), []
    played.trainer.tokenizer = tokenizer()
    played.trainer.actor_rollout_wg = SimpleNamespace(
        _dispatch_info={"actor": list(range(ranks))},
        update_actor=lambda batch: seen.append(batch.extra_info) or UPDATED,
    )
    batch = played.trainer._balance_batch(played.batch, {})
    played.trainer._update_actor(batch, {})
    width, number = seen[0]["mini_batch_size"], 2 // mini
    assert len(batch) == width * number, "a step has as many updates as with one dialogue a rollout"
    share = width // ranks
    assert share % micro == 0, "micro-batches of fixed size divide it"
    for part in range(number):
        starts = (rank * share * number + part * share for rank in range(ranks))
        keys = [key for start in starts for key in batch.keys[start : start + share]]
        rollouts = {key.rpartition("_")[0] for key in keys if not key.startswith("pad")}
        assert len(rollouts) == 4 * mini
        assert {key for key in played.keys if key.rpartition("_")[0] in rollouts} <= set(keys)
    assert played.trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == mini
    assert sorted(StepBatch.read(batch).keys) == sorted(played.keys)


def test_the_push_counts_the_tokens_in_the_loss(step):
    # The third success is silent; the record of the first, a lesson, counts a message that its mask leaves out.
    played, metrics = step(changes={"a_0_0": {"tokens": 90}, "a_2_0": {"silent": True}}), {}
    played.trainer._compute_advantage(played.batch, metrics)
    rows = [(uid, i, a) for uid, scores in SCORES.items() for i, a in enumerate(group_relative(scores))]
    tokens = {(uid, i): 0 if (uid, i) == ("a", 2) else sum(mask) for uid in MASKS for i, mask in enumerate(MASKS[uid])}
    for name, sign in (("successes", 1), ("failures", -1)):
        plain = {(uid, i): abs(a) * tokens[uid, i] for uid, i, a in rows if a * sign > 0}
        assert metrics[f"seal/push/{name}_unweighted"] == pytest.approx(sum(plain.values()), rel=1e-5)
        weighted = sum(W[uid][i] * value for (uid, i), value in plain.items())
        assert metrics[f"seal/push/{name}"] == pytest.approx(weighted, rel=1e-5)


@pytest.mark.parametrize("change", [{"infra": "engine", "labels": ()}, {"excluded": True}], ids=["lost", "excluded"])
def test_what_is_lost_or_excluded_is_apart_and_the_others_do_not_see_its_reward(step, change):
    played = step(changes={"a_2_0": change})
    played.trainer._compute_advantage(played.batch, {})
    uids = played.field("uid")
    assert uids["a_2_0"] == "a_2_0-apart"
    assert {uid for key, uid in uids.items() if key != "a_2_0"} == {"a", "b"}
    left = dict(zip((0, 1, 3), group_relative([SCORES["a"][sample] for sample in (0, 1, 3)]), strict=True))
    expected = {f"a_{sample}_0": W["a"][sample] * advantage for sample, advantage in left.items()}
    check(played.field("advantages"), {**expected, "a_2_0": 0.0})
    for mask in ("response_mask", "loss_mask"):
        assert not played.field(mask)["a_2_0"].any(), "it would have a part in the KL term and the token mean"


def test_the_only_one_left_of_a_group_has_no_advantage(step):
    excluded = {f"a_{sample}_0": {"excluded": True} for sample in range(3)}
    played, metrics = step(changes=excluded), {}
    played.trainer._compute_advantage(played.batch, metrics)
    check(played.field("advantages"), dict.fromkeys([*excluded, "a_3_0"], 0.0))
    assert not played.field("loss_mask")["a_3_0"].any()
    assert metrics["seal/groups_dropped"] == 1


def test_switched_off_the_advantages_are_verls_own(step):
    plain, vanilla = step(), step("seal.enabled=false")
    PPOTrainer._compute_advantage(plain.trainer, plain.batch, {})
    vanilla.trainer._compute_advantage(vanilla.batch, {})
    before, after = plain.field("advantages"), vanilla.field("advantages")
    assert all(torch.equal(before[key], after[key]) and before[key].any() for key in before)


def test_the_largest_difference_of_log_probs_is_logged_and_a_tools_tokens_do_not_count(step):
    played, metrics = step(noise={"a_0_0": [0.0, 5e-5, 9.0, -6e-5]}), {}
    played.trainer._compute_advantage(played.batch, metrics)
    assert metrics["seal/logp_diff_max"] == pytest.approx(6e-5, rel=0.01)


def test_an_engine_that_computes_something_else_ends_the_step_before_anything_is_weighed(step):
    played = step(noise={"b_3_0": [0.0, 0.0, -0.5]})
    with pytest.raises(RuntimeError, match=r"step 1 .*largest 5\.00e-01\).*logprob_mean_tolerance=1e-04"):
        played.trainer._compute_advantage(played.batch, {})
    check(played.field("advantages"), {"b_3_0": group_relative(SCORES["b"])[3]})


def test_a_log_prob_that_is_no_number_ends_the_step(step):
    played = step(noise={"a_0_0": [0.0, float("nan"), 0.0, 0.0]})
    with pytest.raises(RuntimeError, match="Log-probs of step 1 are not finite"):
        played.trainer._compute_advantage(played.batch, {})


def test_the_limit_is_on_the_mean_and_not_on_a_single_token(step):
    limits = "seal.logprob_check_every=1", "seal.logprob_mean_tolerance=0.01"
    played, metrics = step(*limits, noise={"a_0_0": [0.1, 0.0, 9.0, 0.0]}), {}
    played.trainer._compute_advantage(played.batch, metrics)
    assert metrics["seal/logp_diff_mean"] == pytest.approx(0.1 / 20, rel=0.01)
    played = step(*limits, noise={"a_0_0": [0.4, 0.0, 0.0, 0.0]})
    with pytest.raises(RuntimeError, match="logprob_mean_tolerance"):
        played.trainer._compute_advantage(played.batch, {})


def test_between_two_checks_the_engines_log_probs_are_the_old_ones_and_are_not_compared(step):
    played, metrics = step("seal.logprob_check_every=4", noise={"b_3_0": [0.0, 0.0, -0.5]}), {}
    played.trainer.global_steps = 4
    played.trainer._compute_old_log_prob(played.batch, {})
    sampled, old = played.field("rollout_log_probs"), played.field("old_log_probs")
    assert all(torch.equal(sampled[key], old[key]) for key in played.keys)
    played.trainer._compute_advantage(played.batch, metrics)
    assert "seal/logp_diff_max" not in metrics and played.trainer._report.record.logp_diff_max is None
    played.trainer.global_steps = 5
    with pytest.raises(AttributeError, match="actor_rollout_wg"):  # the actor, of which this test has none, is asked
        played.trainer._compute_old_log_prob(played.batch, {})


def test_what_infrastructure_lost_is_in_no_figure_of_a_validation(step, tmp_path):
    rows = [("a", 0, 1.0, None), ("b", 0, 0.0, "engine"), ("c", 0, 0.0, None), ("d", 0, 0.0, "environment_busy")]
    records = [
        TrajectoryRecord(f"multi_turn_base_{uid}", "base", "base", "eval", sample, score, infra=infra).to_json()
        for uid, sample, score, infra in rows
    ]
    infos = {"reward": [score for *_, score, _ in rows], "seal": records}
    trainer = step("seal.infra_limit=0.5").trainer
    figures = trainer._val_metrics_update(["base"] * 4, [uid for uid, *_ in rows], infos, [3] * 4)
    assert figures["val-core/base/reward/mean@1"] == 0.5 and figures["seal/val/infra"] == 2
    assert figures["seal/val/average"] == 0.5 and "seal/val/prefix_average" not in figures
    assert len((tmp_path / "validation_log" / "1.jsonl").read_text().splitlines()) == 4


def test_what_is_silent_is_in_the_baseline_and_teaches_nothing(step):
    played = step(changes={"a_1_0": {"silent": True}})
    played.trainer._compute_advantage(played.batch, {})
    advantages = group_relative(SCORES["a"])
    expected = {f"a_{sample}_0": W["a"][sample] * advantages[sample] for sample in (0, 2, 3)}
    check(played.field("advantages"), {**expected, "a_1_0": 0.0})
    assert not played.field("loss_mask")["a_1_0"].any()


@pytest.mark.parametrize("by_deviation", [True, False])
def test_beside_a_teachers_cued_rollouts_plain_ones_are_compared_with_plain_ones(step, by_deviation):
    cued = {"cues": ("schema_required",), "omega_version": 0}
    teacher = ("seal.interface.teacher=share", "seal.interface.share=0.5", "seal.reweighting.enabled=false")
    changes = {"b_0_0": cued | {"taught": True}, "b_3_0": cued | {"silent": True}, "a_3_0": cued | {"silent": True}}
    deviation = f"algorithm.norm_adv_by_std_in_grpo={str(by_deviation).lower()}"
    played = step(*teacher, deviation, changes=changes)
    played.trainer._compute_advantage(played.batch, {})
    half, whole = (group_relative(scores, by_deviation) for scores in ((1.0, 0.0, 1.0), SCORES["b"]))
    expected = {f"a_{sample}_0": half[sample] for sample in range(3)}
    expected |= {"b_0_0": whole[0], "b_1_0": 0.0, "b_2_0": 0.0, "a_3_0": 0.0, "b_3_0": 0.0}
    check(played.field("advantages"), expected)
    step_batch = StepBatch.read(played.batch)
    records = [replace(record, tokens=1) for record in step_batch.records]
    recomputed = group_advantages(records, step_batch.groups, by_deviation=by_deviation)
    assert recomputed == pytest.approx([expected[key] for key in step_batch.keys], abs=1e-5), "as `seal verify` does"


def test_verls_difference_of_engine_and_actor_leaves_lessons_out(step, monkeypatch):
    def differs(self, batch, metrics):
        metrics["training/rollout_probs_diff_max"] = 1.0
        return batch

    monkeypatch.setattr(PPOTrainer, "_compute_old_log_prob", differs)
    lesson = {"cues": ("schema_required",), "omega_version": 0, "taught": True}
    for teacher, largest in ((("seal.interface.teacher=share", "seal.interface.share=0.5"), 0.0), ((), 1.0)):
        played, metrics = step(*teacher, changes={"a_0_0": lesson}, noise={"a_0_0": [1.0, 2.0, 9.0, 3.0]}), {}
        played.trainer._compute_old_log_prob(played.batch, metrics)
        assert metrics["training/rollout_probs_diff_max"] == largest


def test_a_lesson_is_scored_by_the_actor_alone_and_its_transfer_is_logged(step):
    cued = {"cues": ("schema_required",), "omega_version": 0}
    teacher = ("seal.interface.teacher=share", "seal.interface.share=0.5", "seal.logprob_check_every=8")
    lesson = cued | {"taught": True}
    played, metrics = step(*teacher, changes={"a_0_0": lesson}, noise={"a_0_0": [1.0, 2.0, 9.0, 3.0]}), {}
    played.trainer.global_steps = 4
    with pytest.raises(AttributeError, match="actor_rollout_wg"):  # the actor, of which this test has none, is asked
        played.trainer._compute_old_log_prob(played.batch, {})
    played.trainer._compute_advantage(played.batch, metrics)
    assert torch.equal(played.field("rollout_log_probs")["a_0_0"], played.field("old_log_probs")["a_0_0"])
    assert metrics["seal/logp_diff_max"] == 0.0, "what the engine saw with cues is not compared"
    assert metrics["seal/teaching/bfcl/schema_required/transfer"] == pytest.approx(-6.0)
