"""One environment of the service behind Gymnasium's interface: texts in, texts out.

An action is one assistant message as the policy wrote it. An observation is what
followed it: the contents of the new messages, separated by blank lines; `info["messages"]`
has them with their roles. The reward is 1 for a passed task and comes with the last
step, whose `info["evaluation"]` has verdict, figures and labels.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
from gymnasium.error import ResetNeeded

from env_service.answers import Message
from seal.client import ServiceClient, ServiceError, choose
from seal.gym.spaces import AnyText
from seal.local_service import address

MAX_ACTION_CHARACTERS = 2**16
MAX_OBSERVATION_CHARACTERS = 2**21

Info = dict[str, Any]


class ServiceEnv(gymnasium.Env[str, str]):
    """Tasks of one split; each reset opens one as an episode of the service.

    A seed chooses the task; `options={"task_id": ...}` or `{"index": ...}` names it. The
    service plays deterministically, so the same seed and actions give the same answers.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        base_url: str | None = None,
        env_type: str = "bfcl",
        split: str = "train",
        params: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Connect to a service and read the split's task ids.

        base_url: the service's address; None takes SEAL_URL's, or starts one that this
        process shares. params: `params` of /create, for
        example `{"tool_prompt_mode": "compact", "turns": 1}`. ServiceError: no service
        answers, or it does not know the environment or the split.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode {render_mode!r} is unknown: use None or 'ansi'.")
        self.render_mode = render_mode
        self.action_space = AnyText(MAX_ACTION_CHARACTERS)
        self.observation_space = AnyText(MAX_OBSERVATION_CHARACTERS)
        self._split = split
        self._params = {"split": split, **(params or {})}
        self._client = ServiceClient(address(base_url), env_type)
        try:
            self._tasks = self._client.tasks(split)
        except ServiceError:
            self._client.close()
            raise
        self._episode: str | None = None
        self._running = False
        self._transcript: list[str] = []

    @property
    def task_ids(self) -> Sequence[str]:
        """The ids of the split, in the order of `options={"index": ...}`."""
        return tuple(self._tasks)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, Info]:
        """Open a task: the one that `options` names, else a drawn one.

        ValueError or IndexError for options that name no task; ServiceError for a task
        that the service does not have.
        """
        super().reset(seed=seed)
        task_id = self._chosen(dict(options or {}))
        self._release()
        name = uuid.uuid4().hex
        opening = self._client.create(task_id, name, self._params)
        self._episode, self._running, self._transcript = name, True, []
        # The episode's name is drawn anew each time, and equal episodes must look equal.
        info = {key: value for key, value in opening["info"].items() if key != "instance_id"}
        return self._observed(opening["state"], {**info, "task_id": task_id})

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Send one assistant message; ResetNeeded after the end. Never truncated: the service ends episodes itself."""
        if not self._running or self._episode is None:
            raise ResetNeeded("The episode has ended, or none was opened: call reset() first.")
        if not self.action_space.contains(action):
            raise ValueError(f"An action is a text of at most {MAX_ACTION_CHARACTERS} characters.")
        answer = self._client.step(self._episode, action)
        self._transcript.append(f"[assistant]\n{action}")
        info = dict(answer["info"])
        if answer["is_terminated"]:
            self._running = False
            info["evaluation"] = self._client.evaluate(self._episode)
        observation, info = self._observed(answer["state"], info)
        return observation, answer["reward"], answer["is_terminated"], False, info

    def render(self) -> str | None:
        """The dialogue so far in mode `ansi`."""
        return "\n\n".join(self._transcript) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Release the episode; a service that this process started goes on until the process ends."""
        self._release()
        self._client.close()

    def _chosen(self, options: dict[str, Any]) -> str:
        named, index = options.pop("task_id", None), options.pop("index", None)
        if options:
            raise ValueError(f"option {min(options)!r} is unknown: use task_id or index.")
        if named is not None:
            return str(named)
        return choose(
            self._tasks, self._split, int(self.np_random.integers(len(self._tasks)) if index is None else index)
        )

    def _observed(self, messages: Sequence[Message], info: Info) -> tuple[str, Info]:
        self._transcript += [f"[{message['role']}]\n{message['content']}" for message in messages]
        info["messages"] = [{"role": message["role"], "content": message["content"]} for message in messages]
        return "\n\n".join(message["content"] for message in messages), info

    def _release(self) -> None:
        episode, self._episode, self._running = self._episode, None, False
        if episode is not None:
            self._client.release(episode)
