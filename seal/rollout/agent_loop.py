"""verl's agent loop over the environment service: one trajectory per row of a batch."""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from env_service.environments.kit.tool_calls import NATIVE
from seal.method.interface.cues import Omega
from seal.method.teacher import Role, omega_for, teacher_of, whole_part
from seal.records.trajectory import FINAL, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.engine import EngineSpeaker
from seal.rollout.episode import Episode
from seal.rollout.harness.chains import Policy
from seal.rollout.lesson import Lesson, Siblings, leave_out_failures, siblings
from seal.rollout.native import NativeFormat
from seal.rollout.play import Terms, play
from seal.rollout.row import Row
from seal.rollout.services import Services, shared_services
from seal.rollout.stream import TokenStream
from seal.rollout.user import ModelUser, RecordedUser
from seal.settings import EnvServiceSettings, SealSettings

if TYPE_CHECKING:
    from seal.rollout.harness.speaker import HarnessSpeaker

    Told = EngineSpeaker | Lesson | HarnessSpeaker


class SEALAgentLoop(AgentLoopBase):
    """The loop that `agent_loops.yaml` registers."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.settings, self.service, self.budgets = _read_once(self.config)
        settings = self.settings
        self.teacher = teacher_of(settings)
        self.terms = Terms(
            True, settings.reward, settings.diagnosis.taxonomy, settings.rollout.deadline_s, "seal.rollout.deadline_s"
        )
        self.services: Services = shared_services(self.service)

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        return prompt_ids  # verl would cut off the head of the prompt, and with it the tools; the stream refuses it

    async def run(self, sampling_params: dict[str, Any], **columns) -> list[AgentLoopOutput]:
        """Roll one trajectory out; columns: the data set's, and what the trainer adds.

        Returns its dialogues with the policy, the main one last: verl takes the reward and the advantage from there.
        """
        row, share, rollouts = Row.read(columns), self.settings.interface.share, self.rollout_config.n
        if not row.trains:
            return await self._untaught(sampling_params, row)
        role = self.teacher.role(row.sample, rollouts)
        if not self.teacher.teaches:
            return await self._untaught(sampling_params, row if role == "cued" else row.with_omega(None))
        with siblings(str(columns.get("uid")), rollouts - whole_part(share, rollouts), rollouts) as others:
            return await self._taught(sampling_params, row, role, others)

    async def _untaught(self, sampling_params: dict[str, Any], row: Row) -> list[AgentLoopOutput]:
        """Roll out a trajectory that trains, if it does, under the prompt that it saw."""
        async with _slots(self.settings.rollout.concurrency):
            return self._output(*await self._roll_out(sampling_params, row), row)

    async def _taught(
        self, sampling_params: dict[str, Any], row: Row, role: Role, others: Siblings
    ) -> list[AgentLoopOutput]:
        """Roll out a trajectory of a prompt whose rollouts with cues teach the plain prompt (`seal.method.teacher`)."""
        settings, record = self.settings, None
        try:
            broken = await others.broken() if role == "retry" else None
            shown = omega_for(role, Omega.from_json(row.omega), row.category, settings.interface.entries, broken)
            row = row.with_omega(shown)
            async with _slots(settings.rollout.concurrency):
                record, streams = await self._roll_out(sampling_params, row)
                record, lesson = await self._lesson(record, streams[-1], row)
        finally:
            if role == "plain":
                others.ended(record)
        taught = lesson is not None
        silent = record.usable and (record.silent or (bool(row.cues) and not taught))
        saw = {"cues": row.cues, "documents": (shown.limit if shown else None) or None}
        record = replace(record, **saw, taught=taught, silent=silent)
        return self._output(record, [lesson] if taught else streams, row)

    async def _roll_out(self, sampling_params: dict[str, Any], row: Row) -> tuple[TrajectoryRecord, list[TokenStream]]:
        """Let the policy play a row's task."""
        params = row.create_params(self.service.mode(row.environment), always_guarded=self.teacher.teaches)
        params |= {"native": True} if self.settings.rollout.harness is not None else {}
        params |= {"user": True} if self.settings.user.base_url is not None else {}
        return await self._play(row, params, lambda attempt: self._speaker(row, sampling_params, attempt))

    async def _lesson(
        self, record: TrajectoryRecord, told: TokenStream, row: Row
    ) -> tuple[TrajectoryRecord, TokenStream | None]:
        """Return the lesson of a rollout with cues: its messages in a plain episode; None unless both pass.

        The record stays, unless infrastructure loses the lesson: then the rollout is lost.
        """
        if not row.cues or not record.usable or not record.passed or record.truncated:
            return record, None
        plain = row.with_omega(None)
        params = plain.create_params(self.service.mode(row.environment)) | ({"day": record.day} if record.day else {})
        params |= {"user": True} if record.user else {}
        again, (lesson,) = await self._play(plain, params, lambda _: Lesson(told), record.user)
        if again.infra is not None:
            return replace(again, infra_message=f"the lesson was lost: {again.infra_message}"), None
        if not again.usable or not again.passed:
            return record, None
        leave_out_failures(lesson, again.evidence)
        return record, lesson

    async def _play(
        self,
        row: Row,
        params: Mapping[str, Any],
        speaker_of: "Callable[[int], Told]",
        said: Sequence[Mapping[str, Any]] | None = None,
    ) -> tuple[TrajectoryRecord, list[TokenStream]]:
        """Play an episode, again if infrastructure failed it.

        speaker_of: gives the speaker of an attempt. said: the user's messages, where they are known.
        """
        started, mode = time.monotonic(), self.service.mode(row.environment)
        for attempt in range(self.settings.rollout.attempts):
            episode = Episode(self.services, row.task_id, params, row.environment)
            speaker = speaker_of(attempt)
            terms = replace(self.terms, training=row.trains)
            if said is None:
                user = ModelUser(self.settings.user, f"{self.settings.seed}/{row.place}/{attempt}")
            else:
                user = RecordedUser(said)
            record = await play(episode, speaker, {**row.identity(), "prompt_mode": mode}, terms, user)
            if record.infra is None or record.infra in FINAL:
                break
        streams = speaker.streams
        if record.infra is None:
            record = replace(record, spans=tuple(streams[-1].spans))
        seconds = round(time.monotonic() - started, 3)
        return replace(record, seconds=seconds, attempts=attempt + 1), streams

    def _speaker(self, row: Row, sampling_params: dict[str, Any], attempt: int) -> "EngineSpeaker | HarnessSpeaker":
        """The policy itself, or the harness that asks it."""

        native = self._native(self.service.mode(row.environment))

        def policy(chain: int = 0) -> EngineSpeaker:
            key = f"{attempt}/{chain}" if chain else attempt
            return EngineSpeaker(self, self.settings, self.budgets, row, sampling_params, key, native)

        settings = self.settings
        if settings.rollout.harness is None:
            return policy()
        from seal.rollout.harness.speaker import HarnessSpeaker  # its server loads only where a recipe names a harness

        log = Path(settings.run_dir, "harness", "train" if row.guided else "val", f"{row.place}.log")
        most = self.budgets.max_steps if row.trains else None
        rollout = settings.rollout
        trained = rollout.trained if row.trains else "main"
        chains = Policy(policy, self.service.mode(row.environment), most, trained)
        failed = rollout.harness_failure == "failed"
        return HarnessSpeaker(rollout.harness, rollout.deadline_s, chains, log, rollout.harness_env, failed)

    def _native(self, mode: str) -> NativeFormat | None:
        """The model's own tool format, if a prompt mode asks for it."""
        return NativeFormat(self.rollout_config.multi_turn.format, self.tokenizer) if mode == NATIVE else None

    def _output(self, record: TrajectoryRecord, streams: Sequence[TokenStream], row: Row) -> list[AgentLoopOutput]:
        """What verl trains."""
        eos, versions = self.tokenizer.eos_token_id, [each for stream in streams for each in stream.versions]
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
                    "min_global_steps": min(versions, default=row.step),
                    "max_global_steps": max(versions, default=row.step),
                    "reward_extra_info": {"seal": record.to_json()},
                },
            )
            for prompt, response, mask, logprobs in told
        ]


_READ: dict[int, tuple[DictConfig, tuple[SealSettings, EnvServiceSettings, Budgets]]] = {}
"""By the identity of a worker's configuration, which stays referenced."""


def _read_once(config: DictConfig) -> tuple[SealSettings, EnvServiceSettings, Budgets]:
    """What each rollout needs of its worker's configuration; reading it takes a third of a rollout's own time."""
    if id(config) not in _READ:
        _READ[id(config)] = config, (SealSettings.of(config), EnvServiceSettings.of(config), Budgets.of(config))
    return _READ[id(config)][1]


@functools.cache
def _slots(concurrency: int) -> asyncio.Semaphore:
    """Return this worker's places; a whole validation at once would overload the service and the engine's queue."""
    return asyncio.Semaphore(concurrency)
