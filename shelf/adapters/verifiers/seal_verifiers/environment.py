"""An episode of verifiers is one episode of the service, with the service as the model's user."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment as load

from env_service.answers import Message
from env_service.client import ServiceClient
from env_service.local_service import address
from seal_verifiers.taskset import SealTask, SealTasksetConfig

ID = "seal-verifiers"


class SealEnvConfig(vf.EnvConfig):
    """The policy's seat; the taskset says which service and which tasks."""

    # The harness is from this package: verifiers takes that of the taskset's package unless one is named.
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig(), network_notice=False)


class SealEnv(vf.Env[SealEnvConfig]):
    """Plays tasks of the service; a fault of the service fails the episode and never gives a reward of 0."""

    def __init__(self, config: SealEnvConfig) -> None:
        super().__init__(config)
        taskset = config.taskset
        assert isinstance(taskset, SealTasksetConfig)
        self._client = ServiceClient(address(taskset.base_url), taskset.env_type)

    async def run(self, task: SealTask, agents: vf.Agents) -> None:
        """Open the task, pass messages back and forth until it ends, and record reward, metrics and labels."""
        name = uuid.uuid4().hex
        opening = (await asyncio.to_thread(self._client.create, task.data.id, name, task.data.params))["state"]
        try:
            system, user = _opening(opening)
            async with agents.agent.interaction(task.with_system_prompt(system)) as interaction:
                segment = await interaction.turn(user)
                ended = False
                while not segment.terminated and not ended:
                    # Not last_reply: it strips the text, and the service must read what the model wrote.
                    text, cut = _text(segment), interaction.trace.is_truncated
                    step = await asyncio.to_thread(self._client.step, name, text, cut)
                    ended = step["is_terminated"]
                    if not ended:
                        segment = await interaction.turn(_joined(step["state"]))
            trace = interaction.trace
            if trace.ok:
                stop = None if ended else "length"
                _record(trace, await asyncio.to_thread(self._client.evaluate, name, stop))
        finally:
            await asyncio.to_thread(self._client.release, name)

    async def stop(self) -> None:
        """Close the connections."""
        self._client.close()


def load_environment(
    base_url: str | None = None, env_type: str = "bfcl", split: str = "train", params: Mapping[str, Any] | None = None
) -> vf.Env:
    """The environment over one split of a service; without `base_url`, that of SEAL_URL, else one is started here.

    ServiceError if no service answers.
    """
    taskset = SealTasksetConfig(id=ID, base_url=base_url, env_type=env_type, split=split, params=dict(params or {}))
    return load(SealEnvConfig(taskset=taskset))


def _opening(messages: Sequence[Message]) -> tuple[str, str]:
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    return system, _joined([message for message in messages if message["role"] != "system"])


def _joined(messages: Sequence[Message]) -> str:
    """The messages joined into the one user message that an interaction takes.

    The default prompt mode answers all calls in one message. Other modes answer each call
    in a separate message, and only the contents of these survive here.
    """
    return "\n\n".join(message["content"] for message in messages)


def _text(segment: vf.Segment) -> str:
    written = [message.content for message in segment.messages if isinstance(message, vf.AssistantMessage)]
    return written[-1] or "" if written else ""


def _record(trace: vf.Trace, report: Mapping[str, Any]) -> None:
    trace.record_reward("passed", float(bool(report["valid"])))
    figures = ("progress", "turns", "calls", "errors")
    trace.record_metrics({name: float(report[name]) for name in figures if name in report})
    trace.info["seal"] = {name: report.get(name) for name in ("labels", "diagnosis", "stop")}
