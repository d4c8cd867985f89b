"""An agent of the user's as the speaker of an episode: a function of this process, or a command in one of its own.

The harness asks the policy at the gateway, and the episode through its task. What fails in it is a failure of
infrastructure (`harness`, `harness_timeout`), never a reward.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from seal.rollout.chains import Policy
from seal.rollout.dialogue import Dialogue
from seal.rollout.gateway import Session
from seal.rollout.speaker import Said, Speaker, SpeakerFault
from seal.rollout.task import Address, Event, Harness, Task, function
from seal.system.processes import end_with_parent
from seal.system.text import last_line

if TYPE_CHECKING:
    from seal.rollout.engine import EngineSpeaker

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""Within which a harness must return once its conversation has ended."""
OUTPUT_BYTES = 65_536
"""Of a command's output, per rollout, that its log keeps."""


class HarnessSpeaker(Speaker):
    """The messages of a harness. model: the policy in training, or the address of a model to score with it.

    log: where the output of a command goes.
    """

    name = "the harness"

    def __init__(self, harness: Harness, deadline_s: float, model: Policy | Address, log: Path):
        self._harness = harness
        self._deadline_s = deadline_s
        self._policy = None if isinstance(model, Address) else model
        self._session = Session(model)
        self._log = log
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
        session, policy = self._session, self._policy
        if policy is not None:
            policy.turn = dialogue.turn
        if session.task is None:
            await self._start(dialogue)
        else:
            session.task.hear(dialogue, ended=False)
        event = await session.events.get()
        if event.kind == "fault":
            raise event.value
        if event.kind == "left":
            raise SpeakerFault("harness", f"the harness left before the conversation ended{event.value}")
        if event.kind == "limit":
            self.limit = event.value
            return None
        self.limit = policy.trained.limit if policy is not None else ""
        return Said(event.value, event.kind == "message" and policy is not None and policy.cut)

    async def ended(self, dialogue: Dialogue) -> None:
        """SpeakerFault unless the policy spoke, and what it said is what was sampled."""
        if self._policy is not None:
            if not self.told.sampled:
                raise SpeakerFault("harness", "the harness never asked the policy")
            await self.told.ended(dialogue)

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        if self._policy is None:
            return {}
        return self.told.facts(dialogue) | {"rewritten": self._policy.others}

    async def close(self, dialogue: Dialogue) -> None:
        """Tell the harness that the conversation has ended, and end it if it stays."""
        if self._session.task is not None:
            self._session.task.hear(dialogue, ended=True)
        if self._running is not None:
            await asyncio.wait([self._running], timeout=GRACE_S)
            self._running.cancel()
            await asyncio.wait([self._running])
        await self._session.close()

    async def _start(self, dialogue: Dialogue) -> None:
        await self._session.open(dialogue, self._deadline_s)
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
        how = "" if running.cancelled() else running.result() if error is None else _shown(error)
        if error is not None and task.ended:
            logger.warning("a harness failed after its conversation had ended%s", how)
        task.events.put_nowait(Event("left", how))


def _shown(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f": {type(error).__name__}: {last_line(str(error))}"


async def _command(command: Sequence[str], task: Task, log: Path) -> str:
    """Run a command to its end in a session of its own; return how it ended, as the end of a sentence."""
    known = {"OPENAI_BASE_URL": task.base_url, "OPENAI_API_KEY": task.api_key, "OPENAI_MODEL": task.model}
    known |= {"SEAL_MCP_URL": task.mcp_url, "SEAL_TASK_URL": task.task_url}
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **known},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: end_with_parent(signal.SIGKILL),
    )
    kept = bytearray()
    drain = asyncio.create_task(_drain(process.stdout, kept))  # a child that stays can hold the output open
    try:
        code = await process.wait()
    finally:
        await asyncio.shield(asyncio.to_thread(_end, process.pid, task.task_url))
        await asyncio.shield(asyncio.wait((drain,), timeout=GRACE_S))
        drain.cancel()
        if kept:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(kept)
    return f" (exit code {code}, {last_line(kept.decode(errors='replace'), 'no output')}; its output: {log})"


async def _drain(output: asyncio.StreamReader, kept: bytearray) -> None:
    """Read to the end; the first OUTPUT_BYTES are kept."""
    while piece := await output.read(OUTPUT_BYTES):
        kept += piece[: OUTPUT_BYTES - len(kept)]


def _end(pid: int, mark: str) -> None:
    """Kill a command's session and what left it: every process of ours that has this rollout's address."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    left = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.pid != pid and process.environ().get("SEAL_TASK_URL") == mark:
                process.kill()
                left.append(process)
    psutil.wait_procs(left, timeout=GRACE_S)
