"""Scripted runs of an environment: what the conformance suite plays, and how."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from env_service.encoding import encode
from env_service.environments.base import Call, Environment, EnvironmentEpisode, Guard
from env_service.environments.bfcl.catalog import Task
from env_service.environments.kit.dialogue import ToolEpisode
from seal.method.interface.schema_cue import arguments_of
from seal.system.grouping import grouped
from shelf.patient_user import opened, said

PROCESS_SECONDS = 600.0
"""Seconds that another process has to play all runs."""


@dataclass(frozen=True)
class Run:
    """Messages for a task. kind: `reference`, or what is wrong with the messages."""

    kind: str
    task_id: str
    messages: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


def play(environment: Environment, run: Run, guard: Guard | None = None) -> list[Any]:
    """Open the task of a run and return the answers (`played`)."""
    return played(opened(environment, run.task_id, run.params, guard or Guard()), run.messages)


def played(episode: EnvironmentEpisode, messages: Sequence[str]) -> list[Any]:
    """The opening, the answer to each message until the end, and the evaluation, as they arrive over the wire."""
    answers: list[Any] = [episode.start()]
    for message in messages:
        answers.append(episode.step(message, False))
        if answers[-1]["is_terminated"]:
            break
    answers.append(episode.evaluate({}))
    return orjson.loads(encode(answers))


def dialogue(messages: Sequence[str], answers: Sequence[Any]) -> list[dict[str, str]]:
    """Return the messages that a policy reads and writes: its own, and the answers to them (`played`)."""
    opening, *steps, _ = answers
    told = list(opening["state"])
    for message, step in zip(messages, steps, strict=False):
        told += [{"role": "assistant", "content": message}, *(() if step["is_terminated"] else step["state"])]
    return [{"role": message["role"], "content": message["content"]} for message in told]


def sample(environment: Environment, count: int) -> tuple[str, ...]:
    """`count` tasks of the training side, evenly spread over its categories; of all tasks if it has none."""
    ids = list(environment.task_ids("train")) or list(environment.task_ids(""))
    by_category = grouped((environment.task(task_id).category, task_id) for task_id in ids)
    found = []
    for group in by_category.values():
        share = min(max(1, count // len(by_category)), len(group))
        found += [group[place * len(group) // share] for place in range(share)]
    return tuple(found)


def reference_run(environment: Environment, task_id: str, mode: str, without: tuple[int, int] | None = None) -> Run:
    """Every call of the reference in a separate message; `without` leaves out the one at (turn, place)."""
    kept = [
        [call for place, call in enumerate(calls) if (turn, place) != without]
        for turn, calls in enumerate(environment.reference(task_id))
    ]
    kind = "reference" if without is None else "a write left out"
    return Run(kind, task_id, said(environment, kept, mode), {"tool_prompt_mode": mode})


def open_episode(task: Task, params: Mapping[str, Any]) -> ToolEpisode:
    """Start an episode, without deadlines, of a task that the environment does not have to know."""
    from env_service.environments.bfcl.environment import BfclEnvironment  # needs the benchmark's package

    return ToolEpisode(BfclEnvironment().task_scene(task, params), Guard())


def idle_run(environment: Environment, task_id: str, mode: str) -> Run:
    """No call at all."""
    turns = len(environment.reference(task_id))
    return Run("nothing done", task_id, (environment.closing(mode),) * turns, {"tool_prompt_mode": mode})


def stumbling_run(environment: Environment, task_id: str, mode: str) -> Run:
    """Return a run that makes a policy's mistakes first and then follows the reference."""
    wrong = tuple(environment.render(mode, call) for call in wrong_calls(environment, task_id))
    whole = reference_run(environment, task_id, mode)
    return Run("mistakes first", task_id, (*wrong, *whole.messages), {**whole.params, "parse_errors": "feedback"})


def wrong_calls(environment: Environment, task_id: str) -> Iterator[Call]:
    """An unknown tool, then the first tools without arguments, with an unknown one, and with wrong types."""
    yield "no_such_tool", {"value": 1}
    for document in list(environment.documents(task_id))[:4]:
        names = list(arguments_of(document["parameters"]))
        yield document["name"], {}
        yield document["name"], {"no_such_argument": "x"}
        if names:
            yield document["name"], {name: [["deep"], {"text": 3}] for name in names}


def rare_calls(environment: Environment, task_id: str) -> Iterator[Call]:
    """A call of each tool of the reference with values that its document permits and a world may not expect."""
    called = {name for turn in environment.reference(task_id) for name, _ in turn}
    for tool in environment.documents(task_id):
        if tool["name"] in called:
            yield tool["name"], {name: _rare(schema) for name, schema in arguments_of(tool["parameters"]).items()}


def _rare(schema: Mapping[str, Any]) -> Any:
    """A value that the schema of an argument permits and that a world may not expect: 2.0 is an integer too."""
    values = {"string": "", "integer": float(schema.get("minimum", -1)), "number": -0.5, "array": [], "object": {}}
    return (schema.get("enum") or [values.get(str(schema.get("type")))])[0]


RUBBISH = (
    "",
    "plain text",
    "<tool_call>",
    "<tool_call>{}</tool_call>",
    '<tool_call>{"name": 3, "arguments": []}</tool_call>',
    '<tool_call>{"name": "no_such_tool", "arguments": {"": null}}</tool_call>',
    "<tool_call>" + "[" * 3000 + "</tool_call>",
    '<tool_call>{"name": "x", "arguments": {"n": ' + "9" * 5000 + "}}</tool_call>",
    "\ud800 \x00 \u202e",
    "[x(y=1)]",
)
"""Messages that must not break any parser."""


def play_elsewhere(environment: Environment, location: str, runs: Sequence[Run]) -> list[list[Any]]:
    """The answers of a new process with another hash seed; ValueError if it fails (with its last line) or hangs."""
    job = {"name": environment.name, "location": location, "runs": [asdict(run) for run in runs]}
    path = os.pathsep.join(filter(None, sys.path))
    seeded = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": path}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shelf.authoring.runs"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            env=seeded,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"another process did not play {len(runs)} runs within {PROCESS_SECONDS:g} s") from None
    if done.returncode:
        raise ValueError(f"another process failed: {''.join(done.stderr.strip().splitlines()[-1:])}")
    return orjson.loads(done.stdout.removesuffix("\n").rpartition("\n")[2])  # an answer may hold U+2028


def main() -> None:
    """Play the runs of the job on stdin; write the answers to stdout as one line."""
    from env_service.environments.registry import get_environment, register

    job = json.load(sys.stdin)
    register(job["name"], job["location"])
    environment = get_environment(job["name"])
    answers = [play(environment, Run(**{**run, "messages": tuple(run["messages"])})) for run in job["runs"]]
    sys.stdout.write(orjson.dumps(answers).decode() + "\n")


def refuses(call: Callable[[], Any]) -> str | None:
    """None if the call raises ValueError with one sentence, else what happens instead."""
    try:
        call()
    except ValueError as error:
        text = str(error)
        return f"the refusal is not one sentence: {text!r}" if not text or "\n" in text else None
    except (Exception, SystemExit) as error:  # third-party code raises what the contract forbids
        return f"{type(error).__name__} is raised: {error}"
    return "it is accepted"


if __name__ == "__main__":
    main()
