"""A harness that is a command: a process per rollout, in a session of its own."""

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from seal.rollout.harness.task import Task
from seal.system.processes import adopt_orphans, guard, stop_session
from seal.system.text import last_line

GRACE_S = 2.0
"""Within which the output of a command must close once the command has ended."""
OUTPUT_BYTES = 65_536
"""Of a command's output, per rollout, that its log keeps."""


HARMLESS = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TERM|TMPDIR|PYTHONPATH|VIRTUAL_ENV|NODE_PATH|LD_LIBRARY_PATH|"
    r"SSL_CERT_(FILE|DIR)|no_proxy|NO_PROXY|OMP_NUM_THREADS"
)
"""The variables that each command inherits: without secrets, because code that the policy wrote may read them."""


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


async def run_command(command: Sequence[str], task: Task, log: Path, env: Sequence[str]) -> str:
    """Run a command to its end in a session of its own; return how it ended, as the end of a sentence.

    env: the names of variables that it inherits beside HARMLESS.
    """
    adopt_orphans()
    inherited = {name: value for name, value in os.environ.items() if name in env or HARMLESS.fullmatch(name)}
    known = {"OPENAI_BASE_URL": task.base_url, "OPENAI_API_KEY": task.api_key, "OPENAI_MODEL": task.model}
    known |= {"OPENAI_API_BASE": task.base_url, "SEAL_MCP_URL": task.mcp_url, "SEAL_TASK_URL": task.task_url}
    process, output = await asyncio.get_running_loop().subprocess_exec(
        _Output,
        *guard(),
        *command,
        env={**inherited, **known},
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
    said = last_words(output.kept.decode(errors="replace"))
    return f" (exit code {process.get_returncode()}, {said}; its output: {log})"


def last_words(output: str) -> str:
    """The line of a program's output that says why it ended: the last one, or before Node's version its error."""
    said = last_line(output, "no output")
    if not re.match(r"Node\.js v\d", said):
        return said
    errors = (line for line in reversed(output.splitlines()) if re.match(r"[\w$.]*(Error|Exception)\b", line))
    return next(errors, said)
