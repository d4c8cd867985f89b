"""Files of other programs: BFCL results, chats, ATIF, verifiers, NeMo Gym, verl's dumps, tau2-bench's simulations."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from seal.records.source import WHOLE
from seal.records.trajectory import CUTS
from shelf.lab.foreign.atif import RESULT, Agent, Own, Step, error_text, messages_of, number_of
from shelf.lab.foreign.chat import ChatMessage, as_given, dialogue_of, messages_of_items
from shelf.lab.foreign.normal import CUT_ENDS, end_of
from shelf.lab.foreign.results import read_result
from shelf.lab.foreign.rollout import STEP_LIMIT, Rollout
from shelf.lab.foreign.template import dialogues, tools_in
from shelf.lab.foreign.tools import tools_of

FAILED = "Error during inference"
"""The start of the official tool's result for a task that it could not play."""
TRIAL = "agent/trajectory.json"
"""Where Harbor puts the trajectory of a trial."""
NOT_THE_POLICY = ("user_error", "infrastructure_error", "unexpected_error", "context_window_exceeded")
"""tau2-bench's reasons for an end that the policy did not cause, or that tau2-bench counts in no rate."""
CUT = {"max_steps": STEP_LIMIT, "max_turns": STEP_LIMIT, "timeout": STEP_LIMIT, "max_": "message_length"}
"""The budget that ended a rollout, by the first of these words with which its program's reason starts."""


def _within(*path: str) -> Any:
    """A field nested in another one; None if it is missing."""
    return Field(None, validation_alias=AliasPath(*path))


def _cut(reason: str | None) -> str:
    """The budget that a program names as the reason for the end, "" if it names none."""
    return next((budget for word, budget in CUT.items() if reason and reason.startswith(word)), "")


class Foreign(BaseModel):
    """One object of a file."""

    model_config = ConfigDict(extra="allow")

    def rollout(self, place: str, task_id: str) -> Rollout:
        """The rollout at a place; ValueError if it cannot be used."""
        raise NotImplementedError


class BfclResult(Foreign):
    """A line of the official tool's result files: per turn and step, a text or a list of calls."""

    result: list[list[str | list[dict[str, Any] | str]]]
    inference_log: Any = None
    failure: str = ""

    @model_validator(mode="before")
    @classmethod
    def _failed(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        text = value["result"]
        failed = isinstance(text, str) and text.startswith(FAILED)
        return {**value, "result": [] if failed else text, "failure": text if failed else ""}

    def rollout(self, place: str, task_id: str) -> Rollout:
        turns, mode = read_result(self.result, self.inference_log, Path(place.rpartition(":")[0]), task_id)
        return Rollout(place, task_id, turns, steps=True, mode=mode, failure=self.failure)


class Chat(Foreign):
    """Messages of OpenAI's or Anthropic's API, with `tools` and `reward` (or `score`) if known."""

    messages: list[ChatMessage]
    system: Any = None
    tools: Any = Field(
        None, validation_alias=AliasChoices("tools", "tool_defs", "functions", AliasPath("info", "oai_tools"))
    )
    reward: FiniteFloat | None = Field(None, validation_alias=AliasChoices("reward", "score"))
    error: Any = None
    is_truncated: bool | None = None
    stop_condition: str | None = None
    apart: str = ""
    """The name of a field beside the messages that looks like an answer and is not read."""

    def rollout(self, place: str, task_id: str, cut: str = "") -> Rollout:
        if failure := error_text(self.error):
            return Rollout(place, task_id, [], reward=self.reward, failure=failure)
        first = [ChatMessage(role="system", content=self.system)] if self.system else []
        cut = cut or (_cut(self.stop_condition) or "message_length" if self.is_truncated else "")
        found = dialogue_of([*first, *self.messages], bool(cut))
        unread = (*found.unread, *filter(None, [self.apart]))
        tools = tools_of(self.tools)
        return Rollout(place, task_id, found.turns, found.system, tools, self.reward, cut=cut, unread=unread)


class Completion(Chat):
    """A prompt, which the policy did not write, and its completion: messages, or texts as in verl's rollout_data_dir.

    Such a text is the output of a chat template without its special tokens.
    """

    messages: list[ChatMessage] = []
    prompt: list[ChatMessage] | str = Field([], validation_alias=AliasChoices("prompt", "input"))
    completion: list[ChatMessage] | str = Field([], validation_alias=AliasChoices("completion", "output", "response"))

    def rollout(self, place: str, task_id: str, cut: str = "") -> Rollout:
        prompt, own = dialogues(self.prompt, self.completion, "step" in (self.model_extra or ()))
        tools = self.tools or (tools_in(self.prompt) if isinstance(self.prompt, str) else None)
        whole = Chat(**{**dict(self), "messages": [*as_given(prompt), *own], "tools": tools})
        return whole.rollout(place, task_id, cut)


class _Tau2Message(ChatMessage):
    id: str | None = None
    requestor: str | None = None
    tool_messages: "list[_Tau2Message] | None" = None


class Simulation(Foreign):
    """One of tau2-bench's `simulations`: the orchestrator greets, and the user has its own tools.

    world: the file's `info`, under another name because each simulation also has an `info`.
    """

    termination_reason: str
    messages: list[_Tau2Message] = []
    reward: FiniteFloat | None = _within("reward_info", "reward")
    skipped: bool = False
    policy: str | None = _within("world", "environment_info", "policy")
    tool_defs: dict[str, Any] | None = _within("world", "environment_info", "tool_defs")

    def rollout(self, place: str, task_id: str) -> Rollout:
        every = [each for message in self.messages for each in message.tool_messages or [message]]
        every = [each for each in every if each.requestor != "user" and (each.role != "user" or each.content)]
        greets = bool(every) and every[0].role == "assistant" and not every[0].calls
        messages = [
            each.model_copy(update={"given": greets and at == 0} | ({"tool_call_id": each.id} if each.id else {}))
            for at, each in enumerate(every)
        ]
        reason = self.termination_reason
        chat = Chat(
            messages=messages,
            system=self.policy,
            tools=self.tool_defs,
            reward=self.reward,
            error=reason if self.skipped or reason in NOT_THE_POLICY else None,
        )
        return chat.rollout(place, task_id, _cut(reason))


class _Reward(BaseModel):
    score: FiniteFloat
    weight: FiniteFloat = 1.0


class _Node(BaseModel):
    parent: int | None = None
    message: ChatMessage
    tools: list[Any] | None = None
    sampled: bool | None = None
    finish_reason: str | None = None


class VerifiersTrace(Foreign):
    """A line of verifiers' traces.jsonl; if it has several branches, the last one is read."""

    nodes: list[_Node]
    calls: list[dict[str, Any]] = []
    rewards: dict[str, _Reward | None] | None = None
    task: Any = Field(None, validation_alias=AliasChoices(AliasPath("task", "data", "id"), AliasPath("task", "key")))
    tools: list[Any] | None = None
    ok: bool | None = None
    errors: Any = None
    stop_condition: str | None = None

    def rollout(self, place: str, task_id: str) -> Rollout:
        found = [reward.score * reward.weight for reward in (self.rewards or {}).values() if reward]
        nodes = self._branch()
        tools = [tool for node in nodes for tool in node.tools or ()] or self.tools
        for node in nodes:
            node.message.given = node.message.role == "assistant" and node.sampled is False  # its harness wrote it
            node.message.cut |= bool(CUT_ENDS.search(node.finish_reason or ""))
        lost = self.ok is False or (self.ok is None and self.errors)
        error = (error_text(self.errors) or self.stop_condition or "ok is false") if lost else None
        messages = [node.message for node in nodes]
        chat = Chat(messages=messages, tools=tools, reward=sum(found) if found else None, error=error)
        full = bool(self.calls) and CUT_ENDS.search(end_of(self.calls[-1]))
        cut = _cut(self.stop_condition) or ("message_length" if full else "")
        parents = {node.parent for node in self.nodes} - {None}
        branches = len(self.nodes) - len(parents) - 1 if parents else 0
        return replace(chat.rollout(place, str(self.task or task_id), cut), subagents=branches)

    def _branch(self) -> list[_Node]:
        """The path of nodes to the last one; all nodes if none names its parent."""
        if all(node.parent is None for node in self.nodes):
            return self.nodes
        path: list[_Node] = []
        at: int | None = len(self.nodes) - 1
        while at is not None:
            path.append(self.nodes[at])
            if (parent := path[-1].parent) is not None and not 0 <= parent < at:
                raise ValueError(f"nodes.{at}.parent is {parent}: an earlier node is expected")
            at = parent
        return path[::-1]


class NemoRollout(Foreign):
    """A line of NeMo Gym's rollouts: the request and the response of the Responses API."""

    input: str | list[dict[str, Any]] | None = _within("responses_create_params", "input")
    tools: list[Any] | None = _within("responses_create_params", "tools")
    output: list[dict[str, Any]] | None = _within("response", "output")
    status: str | None = _within("response", "status")
    error: Any = _within("response", "error")
    ended_by: str | None = _within("response", "incomplete_details", "reason")
    reward: FiniteFloat | None = None
    mask_sample: bool | None = None
    failure_reason: Any = None

    def rollout(self, place: str, task_id: str) -> Rollout:
        items = self.input if isinstance(self.input, list) else [{"role": "user", "content": self.input or ""}]
        prompt, (own, unread) = messages_of_items(items)[0], messages_of_items(self.output or ())
        lost = error_text(self.failure_reason) or "mask_sample is true" if self.mask_sample else ""
        if self.output is None or self.status in ("failed", "cancelled"):
            lost = lost or f"the response is {self.status or 'missing'}"
        error = error_text(self.error) or lost
        chat = Chat(messages=[*as_given(prompt), *own], tools=self.tools, reward=self.reward, error=error)
        found = chat.rollout(place, task_id, "message_length" if self.ended_by or self.status == "incomplete" else "")
        return replace(found, unread=(*found.unread, *unread))


class Atif(Foreign):
    """A trajectory in ATIF. trial: what the result of its trial says."""

    agent: Agent
    steps: list[Step]
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[Any] | None = None
    trial: dict[str, Any]

    def rollout(self, place: str, task_id: str) -> Rollout:
        extra = self.extra or {}
        own = Own.model_validate(extra["seal"]) if isinstance(extra.get("seal"), dict) else Own()
        reward = number_of(extra.get("reward"))
        reward = self.trial.get("reward") if reward is None else reward
        task = str(extra.get("task_id") or self.trial.get("task_id") or task_id)
        if failure := self.trial.get("failure"):
            return Rollout(place, task, [], reward=reward, failure=failure)
        cut = own.stop if own.stop in (*CUTS, STEP_LIMIT) else ""
        found = dialogue_of(list(messages_of(self.steps)), bool(cut))
        referred = sum(
            len(result.subagent_trajectory_ref or ()) for step in self.steps for result in step.results or ()
        )
        return Rollout(
            place,
            task,
            found.turns,
            found.system,
            tools_of(self.agent.tool_definitions),
            reward,
            own.turns or WHOLE,
            cut,
            own.truncated,
            subagents=max(referred, len(self.subagent_trajectories or ())),
            unread=found.unread,
        )


class Trial(Foreign):
    """The result of a trial of Harbor that left no trajectory."""

    task_name: str | None = None
    exception_info: Any

    def rollout(self, place: str, task_id: str) -> Rollout:
        if not (failure := error_text(self.exception_info)):
            raise ValueError(f"is a trial without {TRIAL}")
        among = place.replace(f"/{RESULT}:", f"/{TRIAL}:")  # so that it is in the category of the other trials
        return Rollout(among, self.task_name or task_id, [], failure=failure)


FORMATS: Mapping[str, type[Foreign]] = {
    "schema_version": Atif,
    "responses_create_params": NemoRollout,
    "nodes": VerifiersTrace,
    "termination_reason": Simulation,
    "prompt": Completion,
    "messages": Chat,
    "output": Completion,
    "response": Completion,
    "result": BfclResult,
    "exception_info": Trial,
}
"""The formats by the key that identifies them, checked in this order."""
