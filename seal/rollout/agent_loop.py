"""verl's agent loop over the environment service: one trajectory per row of a batch."""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from seal.method.teacher import omega_for, whole_part
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.attempts import Attempts
from seal.rollout.budgets import Budgets
from seal.rollout.row import Row
from seal.rollout.services import Services, shared_services
from seal.rollout.siblings import siblings
from seal.rollout.stream import TokenStream
from seal.settings import EnvServiceSettings, SealSettings


class SEALAgentLoop(AgentLoopBase):
    """The loop that `agent_loops.yaml` registers."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.settings, self.service, budgets = _read_once(self.config)
        self.services: Services = shared_services(self.service)
        self.attempts = Attempts(self, self.settings, budgets, self.services)

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        return prompt_ids  # verl would cut off the head of the prompt, and with it the tools; the stream refuses it

    async def run(self, sampling_params: dict[str, Any], **columns) -> list[AgentLoopOutput]:
        """Roll one trajectory out; columns: those of the data set, and those that the trainer adds.

        Returns its dialogues with the policy, the main one last: verl takes the reward and the advantage from there.
        """
        row, settings = Row.read(columns, self.service), self.settings
        teacher, rollouts = self.attempts.teacher, self.rollout_config.n
        role = teacher.role(row.sample, rollouts) if row.trains else "cued"
        if not (row.trains and teacher.teaches):
            row = row if role == "cued" else replace(row, omega=None)
            async with _slots(settings.rollout.concurrency):
                record, streams = await self.attempts.roll_out(row, sampling_params)
        else:
            plain = rollouts - whole_part(teacher.share, rollouts)
            with siblings(str(columns.get("uid")), role, plain, rollouts) as others:
                broken = await others.broken() if role == "retry" else None
                shown = omega_for(role, row.omega, row.cues, settings.interface.entries, broken)
                row = replace(row, omega=shown)
                async with _slots(settings.rollout.concurrency):
                    record, streams = await self.attempts.roll_out(row, sampling_params)
                    record, lesson = await self.attempts.learn(row, (record, streams))
                if role == "plain":
                    others.hear(record)
            streams = streams if lesson is None else [lesson]
            silent = record.usable and (record.silent or (bool(row.cues) and lesson is None))
            saw = {"cues": row.cues, "documents": (shown.limit if shown else None) or None}
            record = replace(record, **saw, taught=lesson is not None, silent=silent)
        return _output(record, streams, row.step, self.tokenizer.eos_token_id)


def _output(record: TrajectoryRecord, streams: Sequence[TokenStream], step: int, eos: int) -> list[AgentLoopOutput]:
    """What verl trains. step: the trainer's. eos: a token for a rollout without any."""
    versions = [each for stream in streams for each in stream.versions]
    told = [(each.ids[: each.prompt_length], each.response, each.mask, each.logprobs) for each in streams]
    if not record.usable or not all(each.response for each in streams):
        # verl needs at least one prompt and one response token; the mask keeps this one out of the loss.
        told = [([eos], [eos], [0], [0.0])]
    sampling = sum(received - asked for asked, received, _ in record.times)
    calls = sum(answered - received for _, received, answered in record.times)
    return [
        AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=logprobs,
            reward_score=record.score,
            num_turns=len(record.messages),
            metrics={"generate_sequences": sampling, "tool_calls": calls},
            extra_fields={
                "min_global_steps": min(versions, default=step),
                "max_global_steps": max(versions, default=step),
                "reward_extra_info": {"seal": record.to_json()},
            },
        )
        for prompt, response, mask, logprobs in told
    ]


_READ: dict[int, tuple[DictConfig, tuple[SealSettings, EnvServiceSettings, Budgets]]] = {}
"""The settings by the id of a worker's configuration, which stays referenced."""


def _read_once(config: DictConfig) -> tuple[SealSettings, EnvServiceSettings, Budgets]:
    """What each rollout needs from its worker's configuration; reading it takes a third of a rollout's own time."""
    if id(config) not in _READ:
        _READ[id(config)] = config, (SealSettings.of(config), EnvServiceSettings.of(config), Budgets.of(config))
    return _READ[id(config)][1]


@functools.cache
def _slots(concurrency: int) -> asyncio.Semaphore:
    """Return this worker's places; a whole validation at once would overload the service and the engine's queue."""
    return asyncio.Semaphore(concurrency)
