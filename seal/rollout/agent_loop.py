"""verl's agent loop over the environment service: one trajectory per row of a batch."""

import asyncio
import functools
import time
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from seal.records.trajectory import FINAL, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.engine import EngineSpeaker
from seal.rollout.episode import Episode
from seal.rollout.play import Terms, play
from seal.rollout.row import Row, Shown
from seal.rollout.services import Services, shared_services
from seal.rollout.speaker import SpeakerFault
from seal.settings import EnvServiceSettings, SealSettings


class SEALAgentLoop(AgentLoopBase):
    """The loop that `agent_loops.yaml` registers.

    shown: what rows of a withdrawal see of Omega (`row.Shown`), None for every other row.
    """

    def __init__(self, *args, shown: Shown | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        settings = SealSettings.of(self.config)
        self.settings = settings.rollout
        self.interface = settings.interface
        self.reward = settings.reward
        self.taxonomy = settings.diagnosis.taxonomy
        self.service = EnvServiceSettings.of(self.config)
        self.services: Services = shared_services(self.service)
        self.budgets = Budgets.of(self.config)
        self.shown = shown

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        # verl would cut off the head of the prompt, and with it the tools.
        limit = self.rollout_config.prompt_length
        if len(prompt_ids) > limit:
            raise SpeakerFault(
                "prompt_too_long",
                f"a first prompt has {len(prompt_ids)} tokens and data.max_prompt_length is {limit}: "
                f"raise data.max_prompt_length to at least {len(prompt_ids)}",
            )
        return prompt_ids

    async def run(self, sampling_params: dict[str, Any], **row) -> AgentLoopOutput:
        """Roll one trajectory out; row holds the data set's columns and what the trainer adds."""
        async with _slots(self.settings.concurrency):
            return await self._run(sampling_params, Row.read(row, self.shown).sharing(self.interface.share))

    async def _run(self, sampling_params: dict[str, Any], row: Row) -> AgentLoopOutput:
        started, mode = time.monotonic(), self.service.mode(row.environment)
        params = row.create_params(self.settings, mode)
        terms = Terms(row.training, self.reward, self.taxonomy, self.settings.deadline_s, "seal.rollout.deadline_s")
        for attempt in range(self.settings.attempts):
            episode = Episode(self.services, row.task_id, params, row.environment)
            speaker = EngineSpeaker(self, self.settings, self.budgets, row, sampling_params, attempt)
            record = await play(episode, speaker, {**row.identity(), "prompt_mode": mode}, terms)
            if record.infra is None or record.infra in FINAL:
                break
        record = replace(record, seconds=round(time.monotonic() - started, 3))
        return self._output(record, speaker, row)

    def _output(self, record: TrajectoryRecord, speaker: EngineSpeaker, row: Row) -> AgentLoopOutput:
        prompt, response = speaker.ids[: speaker.prompt_length], speaker.response
        mask, logprobs = speaker.mask, speaker.logprobs
        if record.infra is None:
            record = replace(record, spans=tuple(speaker.spans))
        if not record.usable or not response:
            # verl needs at least one prompt and one response token; the mask keeps this one out of the loss.
            eos = self.tokenizer.eos_token_id
            prompt, response, mask, logprobs = prompt or [eos], [eos], [0], [0.0]
        versions = speaker.versions or [row.step]
        waited = {"generate_sequences": 0.0, "tool_calls": 0.0}
        for asked, received, answered in record.times:
            waited["generate_sequences"] += received - asked
            waited["tool_calls"] += answered - received
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=logprobs,
            reward_score=record.score,
            num_turns=len(record.messages),
            metrics=waited,
            extra_fields={
                "min_global_steps": min(versions),
                "max_global_steps": max(versions),
                "reward_extra_info": {"seal": record.to_json()},
            },
        )


@functools.cache
def _slots(concurrency: int) -> asyncio.Semaphore:
    """Return this worker's places; a whole validation at once would overload the service and the engine's queue."""
    return asyncio.Semaphore(concurrency)
