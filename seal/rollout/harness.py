"""An agent of the user's as the speaker of an episode: a function of this process, or a command in one of its own.

The harness asks the policy at the gateway, and the episode through its task. What fails in it is a failure of
infrastructure (`harness`, `harness_timeout`), never a reward.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seal.rollout.chains import Policy
from seal.rollout.dialogue import Dialogue
from seal.rollout.gateway import Session, shared_gateway
from seal.rollout.speaker import Said, Speaker, SpeakerFault
from seal.rollout.task import Address, Event, Harness, Task, function
from seal.system.processes import adopt_orphans, guard, stop_session
from seal.system.text import last_line

if TYPE_CHECKING:
    from seal.rollout.engine import EngineSpeaker

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""Within which a harness must return once its conversation has ended."""
END_S = 60.0
"""Within which one must end once it is cancelled."""
OUTPUT_BYTES = 65_536
"""Of a command's output, per rollout, that its log keeps."""


class HarnessSpeaker(Speaker):
    """The messages of a harness. model: the policy in training, or the address of a model to score with it.

    log: where the output of a command goes.
    """

    name = "the harness"

    def __init__(self, harness: Harness, deadline_s: float, model: Policy | Address, log: Path):
        self._harness, self._deadline_s, self._model, self._log = harness, deadline_s, model, log
        self._policy = None if isinstance(model, Address) else model
        self._session: Session | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def told(self) -> "EngineSpeaker":
        """Whose tokens are trained: the chain that spoke last."""
        return self._policy.trained

    @property
    def late(self) -> str:
        """Its own failure, unless the policy is what it waits for."""
        return Speaker.late if self._policy is not None and self._policy.asked else "harness_timeout"

    async def say(self, dialogue: Dialogue) -> Said | None:
        """Pass on what the environment said, and wait for what the harness makes of it."""
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
        self.limit = policy.trained.limit if policy is not None else ""
        return Said(event.value, event.kind == "message" and policy is not None and policy.cut(event.value))

    async def ended(self, dialogue: Dialogue) -> None:
        """SpeakerFault unless the policy spoke, and what it said is what was sampled."""
        if self._policy is not None:
            self._policy.end()  # a summary or a title is no part of the rollout
            if not self.told.sampled:
                raise SpeakerFault("harness", "the harness never asked the policy")
            await self.told.ended(dialogue)

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        if self._policy is None:
            return {}
        return self.told.facts(dialogue) | {"rewritten": self._policy.others, "tokens_in": self._policy.tokens_in}

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
        self._session = Session(shared_gateway(), dialogue, self._model, self._deadline_s)
        self._running = asyncio.create_task(self._run(self._session.task))
        self._running.add_done_callback(self._left)

    async def _run(self, task: Task) -> str:
        """Run the harness to its end; return how it ended, as the end of a sentence."""
        if not isinstance(self._harness, str):
            return await _command(self._harness, task, self._log)
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
        how = f": {type(error).__name__}: {last_line(str(error))}"
        if error is None:
            how = "" if running.cancelled() else running.result()
        elif task.ended:
            logger.warning("a harness failed after its conversation had ended%s", how)
        fault = SpeakerFault("harness", f"the harness left before the conversation ended{how}")
        task.events.put_nowait(Event("fault", fault))


class _Output(asyncio.SubprocessProtocol):
    """The last OUTPUT_BYTES of a command's output. exited: it has ended; closed: nothing else holds the output."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.kept = (self.kept + data)[-OUTPUT_BYTES:]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def _command(command: Sequence[str], task: Task, log: Path) -> str:
    """Run a command to its end in a session of its own; return how it ended, as the end of a sentence."""
    adopt_orphans()
    known = {"OPENAI_BASE_URL": task.base_url, "OPENAI_API_KEY": task.api_key, "OPENAI_MODEL": task.model}
    known |= {"SEAL_MCP_URL": task.mcp_url, "SEAL_TASK_URL": task.task_url}
    process, output = await asyncio.get_running_loop().subprocess_exec(
        _Output,
        *guard(),
        *command,
        env={**os.environ, **known},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        await output.exited.wait()
    finally:
        if process.get_returncode() is None:
            process.kill()
        await asyncio.shield(asyncio.to_thread(stop_session, process.get_pid(), "SEAL_TASK_URL", task.task_url))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(output.closed.wait(), GRACE_S)
        process.close()
        if output.kept:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(output.kept)
    said = last_line(output.kept.decode(errors="replace"), "no output")
    return f" (exit code {process.get_returncode()}, {said}; its output: {log})"
