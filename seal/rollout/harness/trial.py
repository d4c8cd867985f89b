"""One rollout of a harness with a policy that only answers: the harness's mistakes show before costly parts start."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from env_service.environments.kit.formats import Format
from env_service.environments.kit.tool_calls import AGENT_FORMATS
from seal.records.trajectory import TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.episode import Episode
from seal.rollout.harness.chains import Policy
from seal.rollout.harness.mcp import USER
from seal.rollout.harness.speaker import HarnessSpeaker
from seal.rollout.harness.task import ENDED
from seal.rollout.play import Terms, play
from seal.rollout.row import Row
from seal.rollout.services import Services
from seal.rollout.speaker import Said, Speaker
from seal.rollout.token_path import Sampled
from seal.rollout.user import ModelUser
from seal.settings.rollout import RolloutSettings
from seal.settings.user import UserSettings

DEADLINE_S = 300.0
ANSWER = "Done."


async def play_trial(
    settings: RolloutSettings, services: Services, row: Row, log: Path, user: UserSettings
) -> TrajectoryRecord:
    """The record of a rollout of `settings.harness`; log: for a command's output."""
    terms = Terms(deadline_s=min(settings.deadline_s, DEADLINE_S), deadline="the trial's deadline")
    form = AGENT_FORMATS.get(row.prompt_mode, AGENT_FORMATS["hermes"])
    policy = Policy(lambda _: _Policy(form), row.prompt_mode, settings.max_steps, "main")
    failed = settings.harness_failure == "failed"
    speaker = HarnessSpeaker(settings.harness, terms.deadline_s, policy, log, settings.harness_env, failed)
    params = row.create_params() | {"native": True} | ({"user": True} if user.base_url is not None else {})
    episode = Episode(services, row.task_id, params, row.environment)
    return await play(episode, speaker, row.identity(), terms, ModelUser(user, "trial"))


class _Bytes:
    """A token stream without an engine: its tokens are bytes."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.sampled: list[Sampled] = []

    def branch(self, number: int) -> "_Bytes":
        """Another stream that begins with the first `number` messages of this one."""
        other = _Bytes()
        for message in self.sampled[:number]:
            other.append("", self.decoded(message.ids))
        return other

    def append(self, heard: str, text: str) -> None:
        before, ids = heard.encode(), tuple(text.encode())
        self.ids, self.mask = [*self.ids, *before, *ids], [*self.mask, *(0 for _ in before), *(1 for _ in ids)]
        self.sampled.append(Sampled(ids, (0.0,) * len(ids)))

    def decoded(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode()

    def check(self) -> None:
        """Nothing is trained."""

    def facts(self) -> Mapping[str, Any]:
        return {"tokens": sum(self.mask)}


class _Policy(Speaker):
    """Answers; if the user is a tool, it asks for the next message until the conversation has ended."""

    name = "the trial's policy"
    tokens_in = 0

    def __init__(self, form: Format) -> None:
        self.stream, self._form, self._heard = _Bytes(), form, 0

    async def say(self, dialogue: Dialogue, most: int | None = None) -> Said:
        text, messages = ANSWER, dialogue.messages
        users = [name for each in dialogue.info["tools"] if USER in (name := each["function"]["name"])]
        if users and ENDED not in messages[-1]["content"]:  # MCP clients write a server's name before the tool's
            begun = any(message["role"] == "assistant" for message in messages)
            text = self._form.render_call(users[0], {"answer": ANSWER} if begun else {})
        self.stream.append("".join(message["content"] for message in messages[self._heard :]), text)
        self._heard = len(messages) + 1  # its own answer follows them
        return Said(text)
