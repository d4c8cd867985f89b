"""The trainer's own part of a step and of a save, with verl's classes and without its workers."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.utils import create_rl_sampler
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.tracking import FileLogger

import seal.backends.cpu_platform  # noqa: F401  registers the platform that the recipe names
from seal.launch.recipe import read_recipe
from seal.method.interface.cues import Omega
from seal.system.paths import HOME
from seal.training.checkpoints import CheckpointError, last_step, load_state, verify
from seal.training.closed_loop import ClosedLoop
from seal.training.replay_buffer import PromptSender
from seal.training.stop import InfrastructureFailure, StopRequested
from seal.training.trainer import SEALTrainer

PROMPTS, SAMPLES = 3, 2


class Workers:
    """Saves in place of verl's worker group: one rank, one file."""

    def __init__(self, error=None):
        self.error = error
        self._dispatch_info = {"actor": [0]}

    def save_checkpoint(self, folder, *_, **__):
        Path(folder).mkdir(parents=True)
        torch.save({"weight": torch.zeros(3)}, Path(folder) / "model_world_size_1_rank_0.pt")
        if self.error:
            raise self.error

    def load_checkpoint(self, **_):
        return None


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))  # which a resume changes
    own = [f"seal.run_dir={tmp_path}", f"data.train_batch_size={PROMPTS}", f"actor_rollout_ref.rollout.n={SAMPLES}"]
    config = read_recipe(
        HOME / "exp" / "quickstart.yaml", [*own, f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}"]
    ).config
    made = SEALTrainer(config)
    made.actor_rollout_wg, made.timing_raw, made.total_training_steps, made.global_steps = Workers(), {}, 9, 4
    rows = range(12)
    made.train_dataloader = StatefulDataLoader(
        rows, batch_size=PROMPTS, collate_fn=list, drop_last=True, sampler=create_rl_sampler(config.data, rows)
    )
    made.tokenizer = SimpleNamespace(eos_token_id=0)
    return made


def batch(uids):
    keys = [f"{uid}_{sample}_0" for uid in uids for sample in range(SAMPLES)]
    random.Random(0).shuffle(keys)
    return KVBatchMeta(partition_id="train", keys=keys, tags=[{"seq_len": 7} for _ in keys])


class AgentLoops:
    """Keeps the prompts that verl's agent-loop manager would roll out."""

    def generate_sequences(self, prompts):
        self.prompts = prompts


def send(trainer, uids, **marks):
    """Send prompts to the agent loops as the trainer does; returns what arrives there."""
    loops, prompts = AgentLoops(), tu.get_tensordict({"uid": list(uids)})
    for name, value in marks.items():
        tu.assign_non_tensor_data(prompts, name, value)
    PromptSender(loops, trainer._loop.omega_to_send, trainer.replay_buffer).generate_sequences(prompts)
    return loops.prompts


def sample(trainer, monkeypatch, finished, partition="train"):
    monkeypatch.setattr(ReplayBuffer, "sample", lambda self, **_: (batch(finished), {}))
    found, _ = trainer.replay_buffer.sample(global_steps=4, partition_id=partition, batch_size=PROMPTS)
    return found


def test_prompts_carry_omega_and_those_of_a_validation_are_not_marked_as_training(trainer):
    training = send(trainer, ["a", "b"])
    assert tu.get_non_tensor_data(training, "training", False) is True
    assert tu.get_non_tensor_data(training, "omega", None) == trainer._loop.omega_to_send()
    validation = send(trainer, ["a", "b"], validate=True)
    assert "training" not in validation, "such a row shows its Omega in a withdrawal alone (tests/rollout)"
    assert tu.get_non_tensor_data(validation, "omega", None) == trainer._loop.omega_to_send()


def test_a_batch_is_in_the_order_of_prompts_and_samples_whichever_rollout_ended_first(trainer, monkeypatch):
    uids = ["b-1", "a-2", "c-0"]
    send(trainer, uids)
    ordered = sample(trainer, monkeypatch, uids)
    assert ordered.keys == [f"{uid}_{number}_0" for uid in uids for number in range(SAMPLES)]


@pytest.mark.fault(
    event="An agent-loop worker fails a trajectory with an error that is not a failure of infrastructure",
    user_sees="K of N trajectories of step S never came back from the agent-loop workers; their errors are in the log",
    outcome="the run ends with code 4; it does not train on a batch filled up with padding",
)
def test_a_batch_with_a_gap_is_refused(trainer, monkeypatch):
    uids = ["b-1", "a-2", "c-0"]
    send(trainer, uids)
    with pytest.raises(InfrastructureFailure, match="2 of 6 trajectories of step 4 never came back"):
        sample(trainer, monkeypatch, uids[:2])
    with pytest.raises(InfrastructureFailure, match="2 of 6 trajectories of step 4 never came back"):
        sample(trainer, monkeypatch, uids[:2], "val")


def test_the_callback_of_the_recipe_hears_of_a_checkpoint_in_its_final_place(trainer, tmp_path):
    class Callback(CheckpointCallback):
        def on_save(self, trainer, global_step, checkpoint_dir, **_):
            verify(Path(checkpoint_dir))
            self.saved = (global_step, checkpoint_dir)

    trainer._recipe_callback = Callback()
    trainer._save_checkpoint()
    assert trainer._recipe_callback.saved == (4, str(tmp_path / "checkpoints" / "global_step_4"))


def test_a_save_is_whole_and_what_it_holds_is_loaded(trainer, tmp_path):
    trainer._loop._omega = Omega.of(["caution"], version=3)
    trainer._save_checkpoint()
    folder = tmp_path / "checkpoints" / "global_step_4"
    verify(folder)
    assert load_state(folder)["step"] == 4 and last_step(folder.parent) == 4
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        "global_step_4",
        "latest_checkpointed_iteration.txt",
    ]
    saved, trainer._loop, trainer.global_steps = trainer._loop.state, ClosedLoop(trainer._settings), 0
    trainer.config.trainer.update(resume_mode="resume_path", resume_from_path=str(folder))
    trainer._load_checkpoint()
    assert trainer.global_steps == 4 and trainer._loop.state == saved


def test_a_resume_keeps_the_metrics_that_verls_file_logger_wrote(trainer, tmp_path, monkeypatch):
    monkeypatch.delenv("VERL_FILE_LOGGER_PATH", raising=False)
    names = trainer.config.trainer.project_name, trainer.config.trainer.experiment_name
    trainer.config.trainer.update(resume_mode="resume_path", logger=["console", "file"])
    for step in (4, 5, 6):  # each launch ends after its first step
        file = FileLogger(*names)
        file.log({"reward": 0.5}, step)
        file.finish()
        trainer.global_steps = step
        trainer._save_checkpoint()
        trainer.config.trainer.resume_from_path = str(tmp_path / "checkpoints" / f"global_step_{step}")
        trainer._load_checkpoint()
    files = tmp_path.rglob(f"{names[0]}/*.jsonl")
    assert {json.loads(line)["step"] for file in files for line in file.read_text().splitlines()} == {4, 5, 6}


def test_a_save_that_fails_in_a_worker_leaves_the_last_one(trainer, tmp_path):
    trainer._save_checkpoint()
    trainer.global_steps, trainer.actor_rollout_wg = 5, Workers(RuntimeError("file write failed"))
    with pytest.raises(CheckpointError, match=r"step 5 could not be written \(file write failed\).*global_step_4.* if"):
        trainer._save_checkpoint()
    assert last_step(tmp_path / "checkpoints") == 4
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("*.*") if path.is_dir()) == []


def test_a_stop_during_rollouts_saves_the_step_before_with_its_place_in_the_data(trainer, monkeypatch, tmp_path):
    batches = iter(trainer.train_dataloader)
    next(batches)
    expected = trainer.train_dataloader.state_dict()

    def rollouts(self, metrics, timing_raw):
        next(batches)
        (tmp_path / "stop").touch()
        self.replay_buffer._wait_for_next_poll("train", 0.0)

    monkeypatch.setattr(PPOTrainer, "step", rollouts)
    with pytest.raises(StopRequested, match="step 3 is saved"):
        trainer.step({}, {})
    saved = torch.load(tmp_path / "checkpoints" / "global_step_3" / "data.pt", weights_only=False)
    assert saved["_num_yielded"] == expected["_num_yielded"] == 1


def test_a_stop_before_anything_was_trained_saves_nothing(trainer, tmp_path):
    trainer.global_steps = 1
    (tmp_path / "stop").touch()
    with pytest.raises(StopRequested, match="no step has ended, so none is saved"):
        trainer.on_step_begin()
    assert last_step(tmp_path / "checkpoints") is None
