"""verl's agent loop over the environment service: one trajectory per row of a batch."""

import asyncio
import functools
import time
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from seal.method.controls import named_failures
from seal.method.teacher import has_gradient, is_control, sees_omega, whole_part
from seal.records.trajectory import FINAL, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.engine import EngineSpeaker
from seal.rollout.episode import Episode
from seal.rollout.lesson import Lesson, siblings
from seal.rollout.play import Terms, play
from seal.rollout.row import Row
from seal.rollout.services import Services, shared_services
from seal.rollout.speaker import SpeakerFault
from seal.settings import EnvServiceSettings, SealSettings


class SEALAgentLoop(AgentLoopBase):
    """The loop that `agent_loops.yaml` registers."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.settings = settings = SealSettings.of(self.config)
        self.teacher = settings.interface.teacher if settings.teaches else "off"
        self.terms = Terms(
            True, settings.reward, settings.diagnosis.taxonomy, settings.rollout.deadline_s, "seal.rollout.deadline_s"
        )
        self.service = EnvServiceSettings.of(self.config)
        self.services: Services = shared_services(self.service)
        self.budgets = Budgets.of(self.config)

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
        prompt, row = str(row.get("uid")), Row.read(row).sharing(self.settings.interface.share)
        if self.teacher == "off" or not row.training or row.withdrawn is not None:
            async with _slots(self.settings.rollout.concurrency):
                return self._output(*await self._play(sampling_params, row), row)
        return await self._teach(sampling_params, row, prompt)

    async def _teach(self, sampling_params: dict[str, Any], row: Row, prompt: str) -> AgentLoopOutput:
        """Roll a trajectory out of a prompt whose rollouts with cues teach the plain prompt (`seal.method.teacher`)."""
        settings, rollouts, record = self.settings, self.rollout_config.n, None
        share = settings.interface.share
        pupil = not sees_omega(row.sample, share)
        with siblings(prompt, rollouts - whole_part(share, rollouts), rollouts) as plain:
            try:
                if self.teacher == "retry" and not pupil:
                    labels = named_failures(await plain.failures(), settings.diagnosis, settings.seed, row.draw)
                    row = row.answering(frozenset() if is_control(row.sample, share, rollouts) else labels)
                elif self.teacher == "plain" or not row.cues:
                    row = replace(row, omega=None)
                async with _slots(settings.rollout.concurrency):
                    record, speaker = await self._play(sampling_params, row)
                    lesson = await self._lesson(record, speaker, row)
            finally:
                if pupil:
                    plain.ended(record)
        taught, imitates = lesson is not None, self.teacher == "plain" and not pupil
        trained = has_gradient(row.cues, taught, record.passed, imitates) and not record.silent
        silent = record.usable and not trained
        return self._output(replace(record, cues=row.cues, taught=taught, silent=silent), speaker, row, lesson)

    async def _play(self, sampling_params: dict[str, Any], row: Row) -> tuple[TrajectoryRecord, EngineSpeaker]:
        """Play an episode, again if infrastructure failed it."""
        started, mode = time.monotonic(), self.service.mode(row.environment)
        params = row.create_params(mode, always_guarded=self.teacher != "off")
        params |= {"wrong_hints": True} if self.teacher == "wrong_hints" and row.cues else {}
        for attempt in range(self.settings.rollout.attempts):
            episode = Episode(self.services, row.task_id, params, row.environment)
            speaker = EngineSpeaker(self, self.settings, self.budgets, row, sampling_params, attempt)
            terms = replace(self.terms, training=row.training)
            record = await play(episode, speaker, {**row.identity(), "prompt_mode": mode}, terms)
            if record.infra is None or record.infra in FINAL:
                break
        if record.infra is None:
            record = replace(record, spans=tuple(speaker.spans))
        return replace(record, seconds=round(time.monotonic() - started, 3)), speaker

    async def _lesson(self, record: TrajectoryRecord, told: EngineSpeaker, row: Row) -> Lesson | None:
        """Return the lesson of a rollout with cues: its messages in a plain episode; None unless both pass."""
        if not row.cues or not record.usable or not record.passed or record.truncated:
            return None
        mode = self.service.mode(row.environment)
        params = replace(row, omega=None).create_params(mode)
        episode = Episode(
            self.services, row.task_id, params | ({"day": record.day} if record.day else {}), row.environment
        )
        lesson = Lesson(told)
        again = await play(episode, lesson, row.identity(), self.terms)
        return lesson if again.usable and again.passed else None

    def _output(
        self, record: TrajectoryRecord, speaker: EngineSpeaker, row: Row, lesson: Lesson | None = None
    ) -> AgentLoopOutput:
        versions = speaker.versions or [row.step]
        speaker = lesson or speaker
        prompt, response = speaker.ids[: speaker.prompt_length], speaker.response
        mask, logprobs = speaker.mask, speaker.logprobs
        if not record.usable or not response:
            # verl needs at least one prompt and one response token; the mask keeps this one out of the loss.
            eos = self.tokenizer.eos_token_id
            prompt, response, mask, logprobs = prompt or [eos], [eos], [0], [0.0]
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
