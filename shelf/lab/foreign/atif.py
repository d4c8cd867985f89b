"""Trajectories in ATIF v1.8, the Agent Trajectory Interchange Format of Harbor, which NeMo Gym also writes."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasPath, BaseModel, Field

from env_service.answers import COMPLETED
from env_service.environments.bfcl.catalog import available_tools, load_tasks
from env_service.environments.registry import get_environment
from seal import __version__
from seal.method.diagnosis.schema import with_json_types
from seal.records.source import WHOLE
from seal.records.trajectory import TrajectoryRecord
from seal.system.files import write_json
from shelf.error_marks import states_error
from shelf.lab.foreign.chat import ChatMessage
from shelf.lab.foreign.rollout import Call
from shelf.lab.rescore import Rescoring

VERSION = "ATIF-v1.8"
RESULT = "result.json"
"""Harbor's result of a trial."""
AGENT_TIMEOUT = "AgentTimeoutError"
"""Harbor's exception when the policy runs out of time."""


class Agent(BaseModel):
    """The agent that acted, and its tools."""

    tool_definitions: list[Any] | None = None


class Result(BaseModel):
    """The answer of a tool."""

    source_call_id: str | None = None
    content: Any = None
    subagent_trajectory_ref: list[Any] | None = None


class Step(BaseModel):
    """A message; that of an agent with its calls and their results."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: Any
    tool_calls: list[Call] | None = None
    results: list[Result] | None = Field(None, validation_alias=AliasPath("observation", "results"))
    is_copied_context: bool | None = None
    llm_call_count: int | None = None


class Own(BaseModel):
    """The content of `extra.seal` in our own files: the prefix that was played, and the budget that cut it."""

    turns: int | None = None
    stop: str = ""
    truncated: tuple[int, ...] = ()


def messages_of(steps: Sequence[Step]) -> Iterator[ChatMessage]:
    """The steps of a trajectory as a chat, without those copied from another trajectory.

    An agent's step without an inference (`llm_call_count` 0) comes from its harness, so it is marked as given.
    """
    for step in steps:
        if step.is_copied_context:
            continue
        role = "assistant" if step.source == "agent" else step.source
        yield ChatMessage(role=role, content=step.message, tool_calls=step.tool_calls, given=step.llm_call_count == 0)
        for result in step.results or ():
            seen = not (result.source_call_id or step.tool_calls)  # it is not the result of a call
            yield ChatMessage(role="tool", content=result.content, tool_call_id=result.source_call_id, given=seen)


def number_of(value: Any) -> float | None:
    """A reward from a field that may hold anything; None if it is not a finite number."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def trial_of(path: Path) -> dict[str, Any]:
    """Task, reward and failure from Harbor's `result.json` beside a trial's trajectory; without that file, no values.

    An exception is a failure, except for the agent's own timeout if the verifier judged its work. ValueError if the
    file cannot be read.
    """
    file = (path.parent.parent if path.parent.name == "agent" else path.parent) / RESULT
    value = beside(file) if file.is_file() and file != path else {}
    found = value.get("verifier_result")
    rewards = found.get("rewards") if isinstance(found, dict) else None
    rewards = rewards if isinstance(rewards, dict) else {}
    reward = number_of(next(iter(rewards.values())) if len(rewards) == 1 else rewards.get("reward"))
    fault = value.get("exception_info")
    failure = error_text(fault) if not (reward is not None and error_text(fault).startswith(AGENT_TIMEOUT)) else ""
    return {"task_id": value.get("task_name"), "reward": reward, "failure": failure}


def error_text(fault: Any) -> str:
    """An error of another program as text: its type and message if it has them; "" for none."""
    if not states_error(fault):
        return ""
    if isinstance(fault, list):
        return "; ".join(map(error_text, fault))
    if not isinstance(fault, Mapping):
        return str(fault)
    names = ("type", "exception_type", "code", "message", "exception_message", "error_chain_str")
    return ": ".join(str(fault[name]) for name in names if fault.get(name)) or json.dumps(fault)


def join_continued(value: Mapping[str, Any], path: Path) -> tuple[list[Any], tuple[Path, ...]]:
    """The steps of a trajectory and of those that continue it, and the files of the latter.

    ValueError if a file is missing or cannot be read.
    """
    steps, files, following = list(_steps(value)), [], value.get("continued_trajectory_ref")
    while following:
        file = path.parent / str(following)
        if not file.is_file() or file in (path, *files):
            raise ValueError(f"continues in {following}, which is not beside it: put it there")
        more = beside(file)
        files.append(file)
        steps += _steps(more)
        following = more.get("continued_trajectory_ref")
    return steps, tuple(files)


def _steps(value: Mapping[str, Any]) -> list[Any]:
    if not isinstance(steps := value.get("steps") or [], list):
        raise ValueError(f"steps is {steps!r:.80}: a list is expected")
    return steps


def beside(file: Path) -> dict[str, Any]:
    """The object in a file beside another file; ValueError if it cannot be read."""
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file.name} beside it cannot be read: {error}") from error
    return value if isinstance(value, dict) else {}


def write_atif(found: Rescoring, folder: Path) -> None:
    """Write each rollout of a log that was judged again to STEP-LINE.json; `verified` says that nothing differed."""
    for line, (record, again) in enumerate(zip(found.log.records, found.rollouts, strict=True), start=1):
        if again.now is not None:
            written = atif(record)
            written["extra"]["seal"]["verified"] = again.reason is None
            write_json(written, folder / f"{found.log.step}-{line}.json")


def atif(record: TrajectoryRecord) -> dict[str, Any]:
    """A record in ATIF, as JSON values: calls and results from its evidence; `extra` has verdict and labels."""
    steps: list[dict[str, Any]] = []
    form = get_environment(record.environment).form(record.prompt_mode)
    actions = [(turn["turn"], action) for turn in record.evidence for action in turn["actions"]]
    said, answers_user = 0, True  # whether the next message of the environment is the user's
    for message in record.messages:
        role, content = message["role"], str(message["content"])
        if role != "assistant":
            if answers_user and content != COMPLETED:
                steps.append({"source": "system" if role == "system" else "user", "message": content})
            continue
        turn, action = actions[said]
        said += 1
        answers_user = said == len(actions) or actions[said][0] != turn
        steps.append({"source": "agent", "message": form.parse(content).text if action["calls"] else content})
        named = [(f"call_{said}_{number}", call) for number, call in enumerate(action["calls"], start=1)]
        if named:
            steps[-1]["tool_calls"] = [
                {"tool_call_id": name, "function_name": call["name"], "arguments": call["arguments"]}
                for name, call in named
            ]
            results = [{"source_call_id": name, "content": call["result"]} for name, call in named]
            steps[-1]["observation"] = {"results": results}
    name = f"{record.task_id}/{record.data_source}/{record.step}/{record.sample}"
    totals = {"total_completion_tokens": record.tokens, "total_steps": len(steps)}
    own = {name: getattr(record, name) for name in ("prompt_mode", "stop", "truncated", "labels", "diagnosis")}
    own |= {"turns": record.prefix} if record.prefix != WHOLE else {}
    return {
        "schema_version": VERSION,
        "session_id": name,
        "trajectory_id": name,
        "agent": {"name": "seal", "version": __version__, "tool_definitions": _tools(record.task_id)},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": totals | ({"total_prompt_tokens": record.prompted} if record.prompted else {}),
        "extra": {"task_id": record.task_id, "reward": record.score, "seal": own},
    }


def _tools(task_id: str) -> list[dict[str, Any]]:
    """The tools of a benchmark task, including those that it reveals later; none for other tasks."""
    task = load_tasks().get(task_id)
    return [
        {"type": "function", "function": {**document, "parameters": with_json_types(document["parameters"])}}
        for document in (available_tools(task, len(task.users)) if task else ())
    ]
