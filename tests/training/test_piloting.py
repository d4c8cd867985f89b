"""Sending a piloted step: rows, uids and numbers of samples, the order of the batch, and what is logged."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from seal.launch.recipe import compose_recipe
from seal.paths import HOME
from seal.pilot import Part
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.row import Row
from seal.settings import SealSettings
from seal.training import piloting
from seal.training.replay_buffer import TRAIN, SEALReplayBuffer
from seal.training.stop import InfrastructureFailure, StopRequest, StopRequested

RECORD = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 1.0)


class Loops:
    """Agent loops that answer at once: `rewards` by row and sample, None for a rollout that is lost."""

    def __init__(self, rewards):
        self.rewards, self.rows, self.records, self.parts, self.waited = rewards, [], {}, {}, []

    def submit(self, rows):
        tu.assign_non_tensor_data(rows, "training", True)  # as PromptSender does
        columns = [name for name in rows.keys() if name not in ("global_steps", "training")]  # noqa: SIM118
        shared = {name: tu.get(rows, name) for name in ("global_steps", "training")}
        for values in zip(*(tu.get(rows, name) for name in columns), strict=True):
            row = shared | dict(zip(columns, values, strict=True))
            self.rows.append(row)
            for session in range(row["__rollout_n__"]):
                score = self.rewards(row["index"], row["first_sample"] + session)
                lost = replace(RECORD, infra="engine") if score is None else replace(RECORD, score=score)
                self.records[f"{row['uid']}_{session}_0"] = lost

    def expect_parts(self, parts):
        self.parts |= parts

    def wait_for(self, uids):
        self.waited.append(list(uids))


def loader(indices):
    """Prompts as the data loader gives them with a batch size of 1, from a data set that begins anew."""
    uids = count()

    def fetch():
        index = next(indices)
        extra = {"index": index, "task_id": f"multi_turn_base_{index}", "turns": -1}
        rows = collate_fn([{"index": index, "extra_info": extra, "data_source": "base"}])
        rows["uid"] = np.array([f"prompt{next(uids)}"], dtype=object)
        return tu.get_tensordict(rows)

    return fetch


@pytest.fixture
def played(monkeypatch):
    own = ["data.train_batch_size=4", "actor_rollout_ref.rollout.n=8", "seal.sampling.pilot.samples=2"]
    config = compose_recipe(
        HOME / "exp" / "quickstart.yaml", [*own, "seal.sampling.pilot.keep=0.000001", "seal.seed=0"]
    )

    def play(rewards, indices, step=3):
        loops = Loops(rewards)
        monkeypatch.setattr(piloting, "read_records", lambda _, keys: [loops.records[key] for key in keys])
        made = piloting.Piloting(config, SealSettings.of(config), loops, loader(iter(indices)), loops.submit)
        made.play(step)
        return loops, made

    return play


def differing(index, sample):
    return float(sample % 2) if index % 2 else 1.0


def test_the_rest_of_a_group_has_a_uid_of_its_own_and_goes_on_with_numbers_and_seeds(played):
    loops, made = played(differing, range(100))
    pilots, further = loops.rows[:4], [row for row in loops.rows if row["first_sample"]]
    assert [(row["index"], row["__rollout_n__"]) for row in pilots] == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert [row["index"] for row in further] == [1, 3]
    assert {(row["__rollout_n__"], row["first_sample"], row["inclusion"]) for row in further} == {(6, 2, 1.0)}
    assert len({row["uid"] for row in loops.rows}) == len(loops.rows)
    assert sum(row["__rollout_n__"] for row in loops.rows) == 32
    assert all(row["global_steps"] == 3 and row["training"] for row in loops.rows)
    known = {
        "data_source": "base",
        "extra_info": {"task_id": "multi_turn_base_0", "category": "base", "split": "train"},
    }
    every = [{**row, **known, "session_id": number} for row in loops.rows for number in range(row["__rollout_n__"])]
    places = [Row.read(row).place for row in every]
    assert len(set(places)) == 32, "two rollouts would have the same seed"
    assert loops.parts[further[0]["uid"]] == Part(1, 2, 6, 1.0)
    # 12 rollouts are left for a second wave of one, and then 10 for a full group and a smaller one.
    assert loops.waited == [["prompt0", "prompt1", "prompt2", "prompt3"], ["prompt4"]]
    assert made.figures == {"piloted": 5, "went_on": 2, "in_full": 2}


def test_what_was_decided_is_logged_with_the_reason(played):
    lost = {(0, 1): None}
    _, made = played(lambda *rollout: lost.get(rollout, differing(*rollout)), range(100))
    entries = made.line()["pilots"]
    assert [entry["task_id"] for entry in entries] == [f"multi_turn_base_{number}" for number in range(len(entries))]
    assert [(entry["verdict"], entry["went_on"], entry["rollouts"]) for entry in entries[:3]] == [
        ("undecided", True, 8),
        ("differ", True, 8),
        ("agree", False, 2),
    ]
    assert entries[0]["scores"] == [1.0, None] and entries[2]["probability"] == 0.000001
    assert sum(entry["rollouts"] for entry in entries) == 32


def test_a_prompt_that_comes_twice_is_played_once(played):
    loops, _ = played(lambda *_: 1.0, [0, 1, 2, 1, 0, 3, *range(20)])
    first = [row["index"] for row in loops.rows]
    assert first[:5] == [0, 1, 2, 3, 4] and len(set(first)) == len(first)


def test_the_same_rewards_send_the_same_in_every_step_of_a_resumed_run(played):
    runs = [played(differing, range(100), step)[0] for step in (5, 5)]
    sent = [[(row["index"], row["first_sample"], row["__rollout_n__"]) for row in run.rows] for run in runs]
    assert sent[0] == sent[1]


@pytest.fixture
def buffer(tmp_path):
    return SEALReplayBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs={"run_dir": str(tmp_path), "samples": 4, "refill_failed_groups": False},
    )


def test_a_batch_is_trained_in_the_order_of_prompts_and_samples(buffer, monkeypatch):
    asked = []

    def sample(self, global_steps, partition_id, batch_size):
        asked.append(batch_size)
        keys = ["later_1_0", "b_1_0", "a_0_0", "later_0_0", "b_0_0", "a_1_0"]
        return KVBatchMeta(partition_id=partition_id, keys=keys, tags=[{}] * 6), {}

    monkeypatch.setattr(ReplayBuffer, "sample", sample)
    buffer.expect(["a", "b"])  # as PromptSender tells
    buffer.expect_parts({"a": Part(0, 0, 2), "b": Part(1, 0, 2)})
    buffer.expect(["later"])
    buffer.expect_parts({"later": Part(0, 2, 2)})
    batch, _ = buffer.sample(1, TRAIN, 2)
    assert asked == [3] and batch.keys == ["a_0_0", "a_1_0", "later_0_0", "later_1_0", "b_0_0", "b_1_0"]
    buffer.expect_parts({"a": Part(0, 0, 2), "b": Part(1, 0, 2), "later": Part(0, 2, 3)})
    with pytest.raises(InfrastructureFailure, match="1 of 7 trajectories"):
        buffer.sample(2, TRAIN, 2)


def test_a_wait_for_pilots_ends_with_them_on_a_loss_and_on_a_stop(buffer, monkeypatch, tmp_path):
    polls = []

    def poll():
        polls.append(None)
        buffer.finished_keys[TRAIN] = {"a", "other"} | ({"b"} if len(polls) > 2 else set())

    monkeypatch.setattr(buffer, "_sync_metadata_from_transfer_queue", poll)
    buffer.wait_for(["a", "b"])
    assert len(polls) == 3
    StopRequest(tmp_path).make()
    with pytest.raises(StopRequested):
        buffer.wait_for(["a", "never"])
    buffer.failure_keys[TRAIN] = {"a"}
    with pytest.raises(InfrastructureFailure, match="of 1 of 2 prompts never came back"):
        buffer.wait_for(["a", "b"])
