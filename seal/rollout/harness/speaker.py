"""The user's own agent as the speaker of an episode: a function in this process, or a command in a process of its own.

The harness asks the policy at the gateway, and the episode through its task. Its failures are failures of
infrastructure (`harness`, `harness_timeout`), never a reward, unless the harness or the recipe says otherwise.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.chains import Policy
from seal.rollout.harness.gateway import shared_gateway
from seal.rollout.harness.sessions import Session
from seal.rollout.harness.task import Address, Event, Harness, Task, function
from seal.rollout.speaker import FAILED, Said, Speaker, SpeakerFault
from seal.system.text import last_line

if TYPE_CHECKING:
    from seal.rollout.stream import TokenStream

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""Seconds within which a harness must return once its conversation has ended."""
END_S = 60.0
"""Seconds within which a harness must end once it is cancelled."""


class HarnessSpeaker(Speaker):
    """The messages of a harness. model: the policy in training, or the address of a model to score with it.

    log: where the output of a command goes. env: variables that a command inherits beside HARMLESS. failed: leaving
    early is the policy's failure once it has spoken, unless a signal ended the command or a request got no answer.
    """

    name = "the harness"

    def __init__(
        self,
        harness: Harness,
        deadline_s: float,
        model: Policy | Address,
        log: Path,
        env: Sequence[str] = (),
        failed: bool = False,
    ):
        self._harness, self._deadline_s, self._model, self._log = harness, deadline_s, model, log
        self._policy = None if isinstance(model, Address) else model
        self._env, self._failed = env, failed and self._policy is not None
        self._session: Session | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def streams(self) -> "list[TokenStream]":
        """The tokens that are trained, of each dialogue, the main one last."""
        return self._policy.streams

    @property
    def late(self) -> str:
        """Its own failure, unless the policy is what it waits for."""
        return Speaker.late if self._policy is not None and self._policy.asked else "harness_timeout"

    async def say(self, dialogue: Dialogue) -> Said | None:
        """Pass on what the environment said, and wait for what the harness does next."""
        policy = self._policy
        if policy is not None:
            policy.turn = dialogue.turn
        if self._session is None:
            self._start(dialogue)
        else:
            self._session.task.hear(dialogue, ended=False)
        event = await self._session.task.events.get()
        if event.kind == "fault":
            raise event.value
        if event.kind == "limit":
            self.limit = event.value
            return None
        if event.kind == "failed":
            self.limit, dialogue.note = FAILED, event.value
            return None
        self.limit = policy.reach(event.value) if policy is not None else ""
        return Said(event.value, event.kind == "message" and bool(self.limit))

    async def ended(self, dialogue: Dialogue) -> None:
        """SpeakerFault unless the policy spoke and its tokens are what was sampled."""
        if self._policy is not None:
            self._policy.end()  # a summary or a title is not part of the rollout
            if not self._policy.said:
                full = self.limit not in ("", FAILED) and f"the harness's first request leaves no room: {self.limit}"
                raise SpeakerFault("harness", dialogue.note or full or "the harness never asked the policy")
            self._policy.check()

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        return self._policy.facts() if self._policy is not None else {}

    async def close(self, dialogue: Dialogue) -> None:
        """Tell the harness that the conversation has ended, and end it if it stays."""
        if self._running is None:
            return
        self._session.task.hear(dialogue, ended=True)
        await asyncio.wait([self._running], timeout=GRACE_S)
        self._session.close()
        self._running.cancel()
        if (await asyncio.wait([self._running], timeout=END_S))[1]:
            logger.warning("the harness %s does not end", self._harness)

    def _start(self, dialogue: Dialogue) -> None:
        if self._policy is not None:
            self._policy.cues = dialogue.info.get("native", {}).get("cues", "")
        self._session = Session(shared_gateway().sessions, dialogue, self._model, self._deadline_s)
        self._running = asyncio.create_task(self._run(self._session.task))
        self._running.add_done_callback(self._left)

    async def _run(self, task: Task) -> str:
        """Run the harness to its end; return how it ended, as the end of a sentence."""
        if not isinstance(self._harness, str):
            return await shared_gateway().places.play(self._harness, task, self._log, self._env)
        try:
            await function(self._harness)(task)
        except SystemExit as exit:
            return f": it exited with {exit.code}"
        return ""

    def _left(self, running: asyncio.Task[str]) -> None:
        """Say that the harness has ended; what it raised is its own failure."""
        task, error = self._session.task, None if running.cancelled() else running.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        killed = isinstance(error, ChildProcessError)
        how = f" {error}" if killed else f": {type(error).__name__}: {last_line(str(error))}"
        if error is None:
            how = "" if running.cancelled() else running.result()
        elif task.ended:
            logger.warning("a harness failed after its conversation had ended%s", how)
        sentence = f"the harness left before the conversation ended{how}"
        if self._failed and self._policy.said and not (killed or self._session.unanswered or task.waits):
            task.events.put_nowait(Event("failed", sentence))
        else:
            task.events.put_nowait(Event("fault", SpeakerFault("harness", sentence)))
