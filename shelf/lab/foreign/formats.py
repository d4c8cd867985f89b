"""Files of other programs: the official BFCL results, OpenAI chats, ATIF, verifiers' traces, NeMo Gym's rollouts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, model_validator

from seal.method.diagnosis.categories import parse_task_id
from seal.records.source import WHOLE
from seal.records.trajectory import CUTS
from seal.system.jsonl import BadLine, Line, parse_lines, read_jsonl
from shelf.lab.foreign.atif import Agent, Own, Step, continued, messages_of, number_of, trial_of
from shelf.lab.foreign.rollout import STEP_LIMIT, Action, ChatMessage, Rollout, Turn, documents_of, turns_of

SUFFIXES = (".json", ".jsonl")
IDS = ("task_id", "id", "session_id", "trajectory_id")
"""The keys under which a file may name the task, the first one that it has."""
FAILED = "Error during inference"
"""The start of the official tool's result for a task that it could not play."""
TRIAL = "agent/trajectory.json"
"""Where Harbor puts the trajectory of a trial."""


class Foreign(BaseModel):
    """One object of a file."""

    model_config = ConfigDict(extra="allow")

    def rollout(self, place: str, task_id: str) -> Rollout:
        """The rollout at a place; ValueError if it cannot be used."""
        raise NotImplementedError


class BfclResult(Foreign):
    """A line of the official tool's result files: per turn and step, a text, or calls as {name: arguments}."""

    result: list[list[str | list[dict[str, Any] | str]]]
    failure: str = ""

    @model_validator(mode="before")
    @classmethod
    def _failed(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        text = value["result"]
        failed = isinstance(text, str) and text.startswith(FAILED)
        return {**value, "result": [] if failed else text, "failure": text if failed else ""}

    def rollout(self, place: str, task_id: str) -> Rollout:
        parse_task_id(task_id)
        turns = [Turn("", [_step(step) for step in turn]) for turn in self.result]
        return Rollout(place, task_id, turns, steps=True, failure=self.failure)


class Chat(Foreign):
    """OpenAI's messages, with `tools` and `reward` (or `score`) if known; also verifiers' prompt and completion."""

    messages: list[ChatMessage]
    tools: list[Any] | None = None
    reward: FiniteFloat | None = None
    score: FiniteFloat | None = None

    def rollout(self, place: str, task_id: str) -> Rollout:
        system, turns = turns_of(self.messages)
        reward = self.score if self.reward is None else self.reward
        return Rollout(place, task_id, turns, system, documents_of(self.tools), reward)


class _Reward(BaseModel):
    score: FiniteFloat
    weight: FiniteFloat = 1.0


class _Node(BaseModel):
    message: ChatMessage
    tools: list[Any] | None = None


class VerifiersTrace(Foreign):
    """A line of verifiers' traces.jsonl without branches."""

    nodes: list[_Node]
    rewards: dict[str, _Reward | None] | None = None
    task: dict[str, Any] | None = None

    def rollout(self, place: str, task_id: str) -> Rollout:
        found = [reward.score * reward.weight for reward in (self.rewards or {}).values() if reward]
        named = self.task or {}
        data = named.get("data")
        task = (data.get("id") if isinstance(data, dict) else None) or named.get("key") or task_id
        tools = [tool for node in self.nodes for tool in node.tools or ()]
        chat = Chat(messages=[node.message for node in self.nodes], tools=tools, reward=sum(found) if found else None)
        return chat.rollout(place, str(task))


class _Asked(BaseModel):
    input: str | list[dict[str, Any]] | None = None
    tools: list[Any] | None = None


class _Answered(BaseModel):
    output: list[dict[str, Any]]


class NemoRollout(Foreign):
    """A line of NeMo Gym's rollouts: the request and the response of the Responses API."""

    responses_create_params: _Asked
    response: _Answered
    reward: FiniteFloat | None = None

    def rollout(self, place: str, task_id: str) -> Rollout:
        first = self.responses_create_params.input
        items = first if isinstance(first, list) else [{"role": "user", "content": first or ""}]
        messages = list(_messages([*items, *self.response.output]))
        chat = Chat(messages=messages, tools=self.responses_create_params.tools, reward=self.reward)
        return chat.rollout(place, task_id)


class Atif(Foreign):
    """A trajectory in ATIF; trial: what its trial's result says."""

    agent: Agent
    steps: list[Step]
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[Any] | None = None
    trial: dict[str, Any]

    def rollout(self, place: str, task_id: str) -> Rollout:
        system, turns = turns_of(messages_of(self.steps))
        extra = self.extra or {}
        own = Own.model_validate(extra["seal"]) if isinstance(extra.get("seal"), dict) else Own()
        reward = number_of(extra.get("reward"))
        referred = sum(len(result.subagent_trajectory_ref or ()) for step in self.steps for result in step.results)
        return Rollout(
            place,
            str(extra.get("task_id") or self.trial.get("task_id") or task_id),
            turns,
            system,
            documents_of(self.agent.tool_definitions),
            self.trial.get("reward") if reward is None else reward,
            own.turns or WHOLE,
            own.stop if own.stop in (*CUTS, STEP_LIMIT) else "",
            own.truncated,
            subagents=max(referred, len(self.subagent_trajectories or ())),
        )


FORMATS: Mapping[str, type[Foreign]] = {
    "schema_version": Atif,
    "responses_create_params": NemoRollout,
    "nodes": VerifiersTrace,
    "messages": Chat,
    "result": BfclResult,
}
"""By the key that tells them apart, in this order."""


def read_files(paths: Sequence[Path]) -> tuple[list[Rollout], list[BadLine]]:
    """The rollouts of files, or of the .json and .jsonl files of folders, and the lines that cannot be used.

    Of a folder with Harbor's trials only their trajectories are read. ValueError for a path without files.
    """
    rollouts: list[Rollout] = []
    bad: list[BadLine] = []
    for path in paths:
        files = sorted(path.rglob(TRIAL) if path.is_dir() else [path])
        files = files or sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        if not files or not path.exists():
            raise ValueError(f"{path} holds no rollouts: name a file, or a folder with {' or '.join(SUFFIXES)} files.")
        for file in files:
            found, problems = parse_lines(_objects(file), _read)
            rollouts += found
            bad += problems
    joined = {file for rollout in rollouts for file in rollout.continued}
    return [each for each in rollouts if Path(each.place.rpartition(":")[0]) not in joined], bad


def _objects(path: Path) -> Iterator[Line | BadLine]:
    """The objects of a file that is one JSON value, or has one a line; one bad line if it is neither."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        lines = list(read_jsonl(path))
        one = BadLine(path, getattr(error, "lineno", 1), f"neither JSON nor JSON lines: {error}")
        yield from lines if any(isinstance(line, Line) for line in lines) else [one]
        return
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        line = Line(path, number, item)
        yield line if isinstance(item, dict) else line.bad(f"a {type(item).__name__} where an object is expected")


def _read(line: Line) -> Rollout:
    value = dict(line.value)
    if isinstance(value.get("prompt"), list) and isinstance(value.get("completion"), list):
        value = {**value, "messages": [*value["prompt"], *value["completion"]]}
    model = next((model for key, model in FORMATS.items() if key in value), None)
    if model is None:
        raise ValueError(f"is no rollout: expected one of the keys {', '.join(FORMATS)}")
    task = next((str(value[key]) for key in IDS if value.get(key)), f"{line.path.stem}:{line.line}")
    files: tuple[Path, ...] = ()
    if model is Atif:
        value["steps"], files = continued(value, line.path)
        value["trial"] = trial_of(line.path)
    return replace(model.model_validate(value).rollout(f"{line.path}:{line.line}", task), continued=files)


def _step(step: str | Sequence[Mapping[str, Any] | str]) -> Action:
    if isinstance(step, str):
        return Action(step)
    calls = [named for call in step if isinstance(call, Mapping) for named in call.items()]
    return Action("\n".join(call for call in step if isinstance(call, str)), tuple(calls))


def _messages(items: Iterable[Mapping[str, Any]]) -> Iterator[ChatMessage]:
    """The items of the Responses API as messages; calls that follow each other are one message's."""
    calls: list[Mapping[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(item)
            continue
        if kind not in ("message", "function_call_output"):
            continue
        if calls:
            yield ChatMessage(role="assistant", tool_calls=calls)
            calls = []
        if kind == "function_call_output":
            yield ChatMessage(role="tool", content=str(item.get("output", "")), tool_call_id=item.get("call_id"))
        else:
            yield ChatMessage(role=item.get("role", ""), content=item.get("content"))
    if calls:
        yield ChatMessage(role="assistant", tool_calls=calls)
