"""One trajectory: the policy and the environment service in turns, tokens in and tokens out.

What is trained is what was sampled: assistant tokens and their log-probs come
from the engine and are never made again from text; verl's continuous-token
builder appends the environment's messages, masked. A failure of the service or
the engine is recorded in the trajectory, not raised: a bad rollout is data.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import zlib
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from ray.exceptions import RayError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from seal.rollout.env_client import EnvironmentClient, EnvironmentFault, shared_client
from seal.rollout.record import FATAL, TrajectoryRecord
from seal.rollout.rewards import RewardSettings, terminal_reward
from seal.rollout.settings import RolloutSettings

logger = logging.getLogger(__name__)

CUTS = {"length": {"stop": "length"}, "max_steps": {"stop": "step_limit"}}
"""What the service is told of a trajectory that one of our budgets cut, by its stop."""


class PromptTooLong(RuntimeError):
    """A first prompt that data.max_prompt_length cannot hold."""


@dataclass
class Dialogue:
    """The growing token stream of one trajectory and what is known about it."""

    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    weight_versions: list[int] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    generation_s: float = 0.0
    environment_s: float = 0.0
    stop: str = ""

    @property
    def sampled_tokens(self) -> int:
        return sum(self.mask)


class SEALAgentLoop(AgentLoopBase):
    """verl's agent loop over the environment service; registered as `seal_agent`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        settings = self.config.seal
        self.settings = RolloutSettings(**OmegaConf.to_container(settings.rollout))
        self.reward = RewardSettings(**OmegaConf.to_container(settings.reward))
        self.taxonomy = settings.diagnosis.taxonomy
        service = self.config.env_service
        self.prompt_mode = service.prompt_mode
        self.client: EnvironmentClient = shared_client(
            service.env_url, service.env_type, float(service.timeout_s), int(service.attempts)
        )
        self.response_budget = self.rollout_config.response_length
        self.model_length = self.rollout_config.max_model_len or (
            self.rollout_config.prompt_length + self.response_budget
        )
        actor = self.config.actor_rollout_ref.actor
        # A training trajectory must fit the actor's token budget, or verl could not pack it.
        self.training_length = self.model_length
        if actor.use_dynamic_bsz:
            packed = actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
            self.training_length = min(self.model_length, packed)

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        # verl would cut the prompt's head, and with it the tools: refuse instead.
        limit = self.rollout_config.prompt_length
        if len(prompt_ids) > limit:
            raise PromptTooLong(
                f"a first prompt has {len(prompt_ids)} tokens and data.max_prompt_length is {limit}: "
                f"raise data.max_prompt_length to at least {len(prompt_ids)}"
            )
        return prompt_ids

    async def run(self, sampling_params: dict[str, Any], **row) -> AgentLoopOutput:
        """Roll one trajectory out; row holds the data set's columns and, in training, `omega`."""
        async with _slots(self.settings.concurrency):
            return await self._run(sampling_params, row)

    async def _run(self, sampling_params: dict[str, Any], row: dict[str, Any]) -> AgentLoopOutput:
        started = time.monotonic()
        infra, message = None, ""
        for attempt in range(self.settings.attempts):
            dialogue = Dialogue()
            try:
                async with asyncio.timeout(self.settings.deadline_s):
                    evaluation = await self._episode(dialogue, sampling_params, row, attempt)
                return self._output(dialogue, row, evaluation, time.monotonic() - started)
            except EnvironmentFault as fault:
                infra, message = f"environment_{fault.cause}", str(fault)
            except TimeoutError:
                infra = "trajectory_deadline"
                message = f"not finished after seal.rollout.deadline_s={self.settings.deadline_s}"
            except RayError as error:
                infra, message = "engine", f"the rollout engine failed: {error}"
            except PromptTooLong as error:
                infra, message = "prompt_too_long", str(error)
            logger.warning("trajectory of %s: %s", row["extra_info"]["task_id"], message)
            if infra in FATAL:
                break
        return self._output(dialogue, row, None, time.monotonic() - started, infra, message)

    async def _episode(
        self, dialogue: Dialogue, sampling_params: dict[str, Any], row: dict[str, Any], attempt: int
    ) -> dict[str, Any]:
        """Create, interact, evaluate, release; returns the service's evaluation."""
        instance_id = uuid4().hex
        created = False
        try:
            with _Clock(dialogue, "environment_s"):
                messages, dialogue.info = await self.client.create(
                    row["extra_info"]["task_id"], instance_id, self._create_params(row)
                )
            created = True
            dialogue.messages = list(messages)
            dialogue.ids = await self.ct_build_initial_tokens(dialogue.messages)
            dialogue.prompt_length = len(dialogue.ids)
            await self._interact(dialogue, instance_id, sampling_params, row, attempt)
            with _Clock(dialogue, "environment_s"):
                return await self.client.evaluate(
                    instance_id, {"taxonomy": self.taxonomy, **CUTS.get(dialogue.stop, {})}
                )
        finally:
            if created:
                await self._release(instance_id)

    def _create_params(self, row: dict[str, Any]) -> dict[str, Any]:
        extra = row["extra_info"]
        params: dict[str, Any] = {"split": extra["split"], "tool_prompt_mode": self.prompt_mode}
        if int(extra.get("turns", -1)) > 0:
            params["turns"] = int(extra["turns"])
        if row.get("training"):
            params["enforce_available_tools"] = self.settings.enforce_available_tools
            if row.get("omega") is not None:
                params["omega"] = row["omega"]
                params["leak_guard"] = self._guards(row)
        return params

    def _guards(self, row: dict[str, Any]) -> bool:
        """Whether the leak guard watches this trajectory: a fixed share of them, chosen by step, row and sample."""
        draw = zlib.crc32(f"guard/{row['global_steps']}/{row['index']}/{row['session_id']}".encode()) / 2**32
        return draw < self.settings.leak_guard_share

    async def _interact(
        self,
        dialogue: Dialogue,
        instance_id: str,
        sampling_params: dict[str, Any],
        row: dict[str, Any],
        attempt: int,
    ) -> None:
        """Alternate messages of the policy and the environment until the episode or a budget ends."""
        eos = self.tokenizer.eos_token_id
        request_id = uuid4().hex  # the same for all messages, so that one server keeps the prefix
        seed = f"{self.settings.seed}/{row['global_steps']}/{row['index']}/{row['session_id']}/{attempt}"
        longest = self.training_length if row.get("training") else self.model_length
        turn = 0
        message = 0
        while True:
            budget = min(
                self.settings.max_message_tokens,
                self.response_budget - len(dialogue.mask),
                longest - len(dialogue.ids),
            )
            if budget < 1:
                dialogue.stop = "length"
                return
            if row.get("training") and message >= self.settings.max_steps:
                dialogue.stop = "max_steps"
                return
            params = {
                **sampling_params,
                "max_tokens": budget,
                "stop_token_ids": [eos],
                "seed": zlib.crc32(f"{seed}/{message}".encode()),
            }
            with _Clock(dialogue, "generation_s"):
                output = await self.server_manager.generate(
                    request_id=request_id, prompt_ids=dialogue.ids, sampling_params=params
                )
            if not output.token_ids:
                raise EnvironmentFault("engine_aborted", "the rollout engine returned no token")
            start = len(dialogue.mask)
            merged, dialogue.mask, dialogue.logprobs = await self.ct_merge_assistant_token(
                dialogue.ids,
                output.token_ids,
                dialogue.mask,
                dialogue.logprobs,
                assistant_logprobs=output.log_probs or [0.0] * len(output.token_ids),
            )
            dialogue.ids = merged.token_ids
            dialogue.weight_versions.append(int(output.extra_fields.get("global_steps") or 0))
            dialogue.spans.append((turn, start, len(dialogue.mask)))
            message += 1

            truncated = output.token_ids[-1] != eos
            sampled = output.token_ids if truncated else output.token_ids[:-1]
            content = self.tokenizer.decode(sampled, skip_special_tokens=False)
            previous = [*dialogue.messages, {"role": "assistant", "content": content}]
            with _Clock(dialogue, "environment_s"):
                observation = await self.client.step(instance_id, f"{attempt}-{message}", content, truncated)
            dialogue.messages = [*previous, *observation.messages]
            turn = observation.turn
            if observation.done:
                dialogue.stop = "completed"
                return
            merged, mask, logprobs = await self.ct_merge_context_msg(
                previous, dialogue.messages, dialogue.ids, dialogue.mask, dialogue.logprobs
            )
            if len(mask) >= self.response_budget or len(merged.token_ids) >= longest:
                dialogue.stop = "length"
                return
            dialogue.ids, dialogue.mask, dialogue.logprobs = merged.token_ids, mask, logprobs

    async def _release(self, instance_id: str) -> None:
        try:
            await self.client.release(instance_id)
        except EnvironmentFault as fault:
            # The service expires idle episodes by itself; a lost release costs no trajectory.
            logger.warning("episode %s could not be released: %s", instance_id, fault)

    def _output(
        self,
        dialogue: Dialogue,
        row: dict[str, Any],
        evaluation: dict[str, Any] | None,
        seconds: float,
        infra: str | None = None,
        message: str = "",
    ) -> AgentLoopOutput:
        prompt = dialogue.ids[: dialogue.prompt_length]
        response = dialogue.ids[dialogue.prompt_length :]
        mask, logprobs = dialogue.mask, dialogue.logprobs
        if evaluation is None or not response:
            # verl wants at least one prompt and one response token; the mask keeps this one out of the loss.
            eos = self.tokenizer.eos_token_id
            prompt, response, mask, logprobs = prompt or [eos], [eos], [0], [0.0]
        if not len(response) == len(mask) == len(logprobs):
            raise RuntimeError(
                f"token streams disagree: {len(response)} ids, {len(mask)} mask, {len(logprobs)} log-probs"
            )
        score = terminal_reward(evaluation, self.reward) if evaluation else 0.0
        record = self._record(dialogue, row, evaluation, score, seconds, infra, message)
        versions = dialogue.weight_versions or [int(row["global_steps"])]
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response[: self.response_budget],
            response_mask=mask[: self.response_budget],
            response_logprobs=logprobs[: self.response_budget],
            reward_score=score,
            num_turns=len(dialogue.messages),
            metrics={"generate_sequences": dialogue.generation_s, "tool_calls": dialogue.environment_s},
            extra_fields={
                "min_global_steps": min(versions),
                "max_global_steps": max(versions),
                "reward_extra_info": {"seal": record.to_json()},
            },
        )

    def _record(
        self,
        dialogue: Dialogue,
        row: dict[str, Any],
        evaluation: dict[str, Any] | None,
        score: float,
        seconds: float,
        infra: str | None,
        message: str,
    ) -> TrajectoryRecord:
        extra, info = row["extra_info"], dialogue.info
        known: dict[str, Any] = {
            "task_id": extra["task_id"],
            "data_source": row["data_source"],
            "category": extra["category"],
            "split": extra["split"],
            "sample": int(row["session_id"]),
            "score": score,
            "tokens": dialogue.sampled_tokens,
            "seconds": round(seconds, 3),
            "stop": dialogue.stop,
            "infra": infra,
            "infra_message": message,
            "omega_version": (info.get("omega") or {}).get("version"),
            "prompt_mode": self.prompt_mode,
            "service_hash": str(info.get("service_hash", "")),
            "data_hash": str(info.get("data_hash", "")),
            "messages": tuple(dialogue.messages),
        }
        if evaluation is None:
            return TrajectoryRecord(**known)
        progress = evaluation["bfcl_progress_info"]
        return TrajectoryRecord(
            **known,
            labels=tuple(evaluation["labels"]),
            diagnosis=tuple(evaluation["diagnosis"]),
            evidence=tuple(evaluation["evidence"]),
            spans=tuple(dialogue.spans),
            turns_passed=progress["passed_turns"] + progress["passed_irrelevance_turns"],
            turns=int(evaluation["turns"]),
            progress=float(evaluation["progress"]),
            calls=int(evaluation["calls"]),
            errors=int(evaluation["errors"]),
        )


@functools.cache
def _slots(concurrency: int) -> asyncio.Semaphore:
    """The places of this worker; a whole validation at once would outgrow the service and the engine's queue."""
    return asyncio.Semaphore(concurrency)


class _Clock:
    """Adds the seconds spent in its block to a field of the dialogue."""

    def __init__(self, dialogue: Dialogue, name: str):
        self._dialogue, self._name = dialogue, name

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_) -> None:
        setattr(self._dialogue, self._name, getattr(self._dialogue, self._name) + time.monotonic() - self._started)
