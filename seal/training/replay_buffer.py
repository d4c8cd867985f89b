"""The prompts that the trainer sends out, and the sampler that collects them (`trainer.v1.sampler.custom_sampler`)."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils import tensordict_utils as tu

from seal.records.folder import RunFolder
from seal.system.files import write_json
from seal.training.batch import by_rollout
from seal.training.stop import InfrastructureFailure, StopRequested

POLL_INTERVAL_S = 0.05
"""The interval at which the buffer looks for finished groups; verl's 2 s would round up every step and validation."""

PROGRESS_S = 1.0  # between two reports of how many prompts are played

TRAIN, VALIDATION = "train", "val"
"""verl's partitions of rollouts."""
NEVER_CAME = (
    "never came back from the agent-loop workers; their errors are in the log. Start again to resume from the last "
    "checkpoint."
)


class SEALReplayBuffer(ReplayBuffer):
    """The synchronous trainer's buffer: returns whole training batches in a fixed order, and heeds a stop request.

    sampler_kwargs: `run_dir`, the folder whose stop file ends a wait; `samples`, trajectories per prompt by partition.
    """

    def __init__(self, *, sampler_kwargs: Mapping[str, Any], **arguments: Any):
        super().__init__(sampler_kwargs=sampler_kwargs, poll_interval=POLL_INTERVAL_S, **arguments)
        folder = RunFolder(sampler_kwargs["run_dir"])
        self._stop, self._progress = folder.stop, folder.progress
        self._samples = {name: int(sampler_kwargs["samples"][name]) for name in (TRAIN, VALIDATION)}
        self._order: dict[str, int] = {}
        self._sent = 0
        self._told = 0.0

    def expect(self, uids: Iterable[str]) -> None:
        """Note training prompts that were sent to the agent loops, in the order in which they are to be trained."""
        for uid in uids:
            self._order[uid] = self._sent
            self._sent += 1

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict]:
        """Wait for `batch_size` groups; a training batch comes in the order in which its prompts were sent.

        Raises StopRequested when a stop is requested during the wait, and InfrastructureFailure when trajectories are
        missing: verl would pad the gap of a training batch, and leave them out of a validation's averages.
        """
        expected = batch_size * self._samples[partition_id]
        batch, metrics = super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        if (came := len(by_rollout(batch.keys))) != expected:
            raise InfrastructureFailure(
                f"{expected - came} of {expected} trajectories of step {global_steps} {NEVER_CAME}"
            )
        if partition_id == TRAIN:
            batch.reorder(sorted(range(len(batch)), key=lambda i: self._position(batch.keys[i])))
            for key in batch.keys:
                self._order.pop(key.rsplit("_", 2)[0], None)
        return batch, metrics

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        if self._stop.exists():
            raise StopRequested("Stopped on request while rollouts were under way.")
        if time.monotonic() - self._told > PROGRESS_S:
            ended = len(self.finished_keys[partition_id]) + len(self.failure_keys[partition_id])
            others = len(self.pending_keys[partition_id]) + len(self.running_keys[partition_id])
            write_json({"done": ended, "of": ended + others}, self._progress)
            self._told = time.monotonic()
        return super()._wait_for_next_poll(partition_id, last_debug_time)

    def _position(self, key: str) -> tuple[int, str, int, int]:
        """Return the place of a dialogue in its batch (`by_rollout` has verl's form of a key).

        Prompts that a checkpoint brought back finished come first.
        """
        uid, sample, output = key.rsplit("_", 2)
        prompt = self._order.get(uid, -1)
        return prompt, uid if prompt < 0 else "", int(sample), int(output)


class SEALAsyncReplayBuffer(SEALReplayBuffer, ReplayBufferAsync):
    """The sampler of the asynchronous trainer: the oldest prompts whose rollouts have all ended."""

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple:
        """verl's reasons, but a prompt with a rollout that broke off ends the run, as in the synchronous trainer."""
        if partition_id == TRAIN and (failed := self.failure_keys[TRAIN]):
            raise InfrastructureFailure(f"Trajectories of {len(failed)} prompts {NEVER_CAME}")
        return super()._terminal_eviction_reasons(global_steps, partition_id)


class PromptSender:
    """An agent-loop manager that adds what SEAL sends along with prompts.

    Each row gets Omega_t unless the interface is off; in a validation only a withdrawal shows it (`Row.read`). Each
    training row gets `training`; rows that the asynchronous trainer has marked keep the Omega that they were drawn
    with. omega: returns Omega_t as JSON values, or None. buffer: is told the uids of the training prompts in their
    order.
    """

    def __init__(self, manager: Any, omega: Callable[[], Mapping[str, Any] | None], buffer: SEALReplayBuffer):
        self._manager = manager
        self._omega = omega
        self._buffer = buffer

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Start the rollouts of a batch of prompts; their results go into TransferQueue."""
        omega = self._omega()
        if omega is not None and "training" not in prompts:
            tu.assign_non_tensor_data(prompts, "omega", omega)
        if "validate" not in prompts:
            if "training" not in prompts:
                tu.assign_non_tensor_data(prompts, "training", True)
            self._buffer.expect(prompts["uid"])
        self._manager.generate_sequences(prompts)
