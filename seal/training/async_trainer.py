"""SEAL's asynchronous trainer: rollouts continue while others are trained, with verl's `colocate_async`.

A prompt is drawn some steps before it is trained (docs/operate.md#asynchronous-training). Each row therefore carries
the Omega it was drawn with and the mark of training; verl keeps rows under way in the checkpoint, so both survive a
resume. PPO's ratio to the engine's log-probs, or `algorithm.rollout_correction`, corrects stale trajectories.
"""

import zlib
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from seal.training.replay_buffer import TRAIN, VALIDATION, SEALAsyncReplayBuffer
from seal.training.trainer import SEALTraining


def continued(seed: int, tokens: int) -> int:
    """The seed for the part of a message that is sampled after `tokens` tokens of prompt and message."""
    return zlib.crc32(f"{seed}/{tokens}".encode())


class _SeededClient(LLMServerClient):
    """Gives each part of an interrupted message a seed of its own.

    A weight update interrupts a message, and verl asks for its rest with the tokens so far as prompt. With the seed of
    the first part the rest would be drawn with the same random numbers again.
    """

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **rest: Any
    ) -> TokenOutput:
        """Sample the next part of a message."""
        params = dict(sampling_params)
        if "seed" in params:
            params["seed"] = continued(params["seed"], len(prompt_ids))
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=params, **rest)


class SEALAsyncClient(FullyAsyncLLMServerClient, _SeededClient):
    """verl's client that resumes interrupted messages, with a seed for each part."""


@register_trainer("seal_async")
class SEALAsyncTrainer(SEALTraining, PPOTrainerColocateAsync):
    """Rollouts of later steps continue while a step is trained; verl's sampler bounds how stale they may be."""

    mode = "colocate_async"
    buffer = SEALAsyncReplayBuffer

    def get_llm_client(self) -> LLMServerClient:
        """The engine as the agent loops call it."""
        return self.llm_server_manager.get_client(client_cls=SEALAsyncClient)

    def prepare_step(self) -> dict:
        """Draw a batch of prompts, unless a stop in a step's rollouts saved that step's batch with those under way."""
        batch = self.config.data.train_batch_size
        if self._restored_tq_prompt_count >= batch * (1 + self.config.trainer.v1.colocate_async.num_warmup_batches):
            self._restored_tq_prompt_count -= batch
            return {}
        return super().prepare_step()

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        """Mark rows as training and give them their Omega before verl stores them, so that a resume finds both."""
        tu.assign_non_tensor_stack(batch, "training", [True] * len(batch))
        tu.assign_non_tensor_stack(batch, "drawn", [self.global_steps] * len(batch))  # a resume sends it again later
        omega = self._loop.omega_to_send()
        if omega is not None:
            tu.assign_non_tensor_stack(batch, "omega", [omega] * len(batch))
        return super()._submit_batch_to_rollout(batch)

    def _load_checkpoint(self):
        super()._load_checkpoint()
        self._drop_trained()
        # verl sends what was under way again; a prompt whose rollout broke off is played anew too.
        tags = (tq.kv_list(TRAIN) or {}).get(TRAIN, {})
        if failed := {key: {**tag, "status": "pending"} for key, tag in tags.items() if tag.get("status") == "failure"}:
            tq.kv_batch_put(keys=list(failed), partition_id=TRAIN, tags=list(failed.values()))
        # A stop may have cut a validation short; it is played anew.
        if begun := (tq.kv_list(VALIDATION) or {}).get(VALIDATION):
            tq.kv_clear(keys=list(begun), partition_id=VALIDATION)

    def _drop_trained(self) -> None:
        """Remove the trajectories of the checkpoint's own step, which verl saved with those under way."""
        tags = (tq.kv_list(TRAIN) or {}).get(TRAIN, {})
        prompts = {key for key, tag in tags.items() if tag.get("is_prompt", False)}
        trained = [key for key in tags if key not in prompts and key.rsplit("_", 2)[0] not in prompts]
        if trained:
            tq.kv_clear(keys=trained, partition_id=TRAIN)
