"""The rollout of a row, and its lesson: an episode that is played again if infrastructure lost it."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from seal.method.teacher import Teacher, teacher_of
from seal.records.trajectory import FINAL, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.engine import EngineSpeaker
from seal.rollout.episode import Episode
from seal.rollout.harness.chains import Policy
from seal.rollout.lesson import Lesson, leave_out_failures
from seal.rollout.play import Terms, play
from seal.rollout.row import Row
from seal.rollout.services import Services
from seal.rollout.stream import TokenStream
from seal.rollout.user import ModelUser, RecordedUser
from seal.settings import SealSettings

if TYPE_CHECKING:
    from seal.rollout.harness.speaker import HarnessSpeaker

Played = tuple[TrajectoryRecord, list[TokenStream]]
"""A rollout, and its dialogues with the policy, the main one last."""


class Attempts:
    """Plays the rows that verl hands to an agent loop."""

    def __init__(self, loop: AgentLoopBase, settings: SealSettings, budgets: Budgets, services: Services):
        self._loop, self._settings, self._budgets, self._services = loop, settings, budgets, services
        self.teacher: Teacher = teacher_of(settings)

    async def roll_out(self, row: Row, sampling_params: dict[str, Any], told: Played | None = None) -> Played:
        """Let the policy play a row's task, or repeat what it said in another dialogue of the task (told)."""
        settings, started = self._settings, time.monotonic()
        limits = settings.rollout.deadline_s, "seal.rollout.deadline_s"
        terms = Terms(row.trains, settings.reward, settings.diagnosis.taxonomy, *limits)
        for attempt in range(settings.rollout.attempts):
            if told is None:
                speaker = self._speaker(row, sampling_params, attempt)
                user = ModelUser(settings.user, f"{settings.seed}/{row.place}/{attempt}")
                asked = {"native": settings.rollout.harness is not None, "user": settings.user.base_url is not None}
            else:
                speaker, user = Lesson(told[1][-1]), RecordedUser(told[0].user)
                asked = {"day": told[0].day, "user": bool(told[0].user)}
            params = row.create_params(self.teacher.teaches) | {name: value for name, value in asked.items() if value}
            known, episode = row.identity(), Episode(self._services, row.task_id, params, row.environment)
            record = await play(episode, speaker, known, terms, user)
            if record.infra is None or record.infra in FINAL:
                break
        streams = speaker.streams
        if record.infra is None:
            record = replace(record, spans=tuple(streams[-1].spans))
        seconds = round(time.monotonic() - started, 3)
        return replace(record, seconds=seconds, attempts=attempt + 1), streams

    async def learn(self, row: Row, told: Played) -> tuple[TrajectoryRecord, TokenStream | None]:
        """Return the lesson of a rollout with cues: its messages in a plain episode; None unless both pass.

        The record does not change unless infrastructure loses the lesson: then the rollout is lost.
        """
        record, _ = told
        if not row.cues or not record.usable or not record.passed or record.truncated:
            return record, None
        again, (lesson,) = await self.roll_out(replace(row, omega=None), {}, told)
        if again.infra is not None:
            return replace(again, infra_message=f"the lesson was lost: {again.infra_message}"), None
        if not again.usable or not again.passed:
            return record, None
        leave_out_failures(lesson, again.evidence)
        return record, lesson

    def _speaker(self, row: Row, sampling_params: dict[str, Any], attempt: int) -> "EngineSpeaker | HarnessSpeaker":
        """The policy itself, or the harness that asks it."""
        settings, rollout = self._settings, self._settings.rollout

        def policy(chain: int = 0) -> EngineSpeaker:
            key = f"{attempt}/{chain}" if chain else attempt
            return EngineSpeaker(self._loop, settings, self._budgets, row, sampling_params, key)

        if rollout.harness is None:
            return policy()
        from seal.rollout.harness.speaker import HarnessSpeaker  # its server loads only if a recipe names a harness

        log = Path(settings.run_dir, "harness", "train" if row.trains else "val", f"{row.place}.log")
        most, trained = (self._budgets.max_steps, rollout.trained) if row.trains else (None, "main")
        chains = Policy(policy, row.prompt_mode, most, trained)
        failed = rollout.harness_failure == "failed"
        return HarnessSpeaker(rollout.harness, rollout.deadline_s, chains, log, rollout.harness_env, failed)
