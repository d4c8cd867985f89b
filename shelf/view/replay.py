"""Plays a logged trajectory again on the simulators: the state that each call left, and what the cues had added.

The simulators are exact and deterministic, so a log needs to hold neither.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.catalog import Task, data_hash
from env_service.environments.bfcl.scene import open_episode
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.bfcl.verifier import reference
from seal.diagnosis.evidence import TurnEvidence
from seal.records.trajectory import read_line
from shelf.view.state import compare, leaves
from shelf.view.tasks import task_of

NOT_RUN = ("unavailable", "deadline")
"""Errors of calls that never reached a simulator."""


def replay(value: Mapping[str, Any], step: int, launches: Path | None = None) -> dict[str, Any]:
    """Play the calls of a logged line; ValueError for a task that is not there any more.

    launches: the log of the run's launches, which names the files of synthesised tasks.

    turns: by user turn the reference's calls, the results that differ from the log
    (pairs of position and result), and the rows of `state.compare`. plain: for each
    message that is not the policy's, the number of characters that the environment
    itself sent (what follows was added by cues), or null if the replay cannot tell.
    """
    record, _ = read_line(value, step)
    task = task_of(record.task_id, launches)
    task = task.prefix(record.prefix) if record.prefix > 0 else task
    evidence = [TurnEvidence.from_json(turn) for turn in record.evidence]
    return {
        "turns": _turns(task, evidence[: len(record.labels)] if record.labels else evidence),
        "plain": _plain(task, record.messages, evidence, record.prompt_mode, record.omega_version),
        "other_data": bool(record.data_hash) and record.data_hash != data_hash(),
    }


def _turns(task: Task, evidence: Sequence[TurnEvidence]) -> list[dict[str, Any]]:
    toolbox, expected, turns = Toolbox(task), reference(task), []
    after = leaves(toolbox.instances)
    for turn, wanted, calls in zip(evidence, expected, task.reference, strict=False):
        if turn.stop == "not_reached":
            break
        before, other = after, []
        for position, call in enumerate(turn.calls):
            if call.error in NOT_RUN:
                continue
            result = toolbox.call(call.name, call.arguments).text
            if result != call.result:
                other.append([position, result])
        after = leaves(toolbox.instances)
        turns.append(
            {
                "turn": turn.turn,
                "reference": list(calls),
                "other_results": other,
                "state": compare(before, after, leaves(wanted.instances)),
            }
        )
    return turns


def _plain(
    task: Task,
    messages: Sequence[Mapping[str, Any]],
    evidence: Sequence[TurnEvidence],
    prompt_mode: str,
    omega_version: int | None,
) -> list[int | None]:
    """Lengths of what the environment sends without cues, by playing the policy's messages without any."""
    nothing: list[int | None] = [None] * len(messages)
    if omega_version is None or not prompt_mode:
        return nothing
    cut = bool(evidence) and any(turn.actions and turn.actions[-1].truncated for turn in evidence)
    # Whether an unreadable message was answered depends on the cues: the way that explains more of the log is its own.
    ways = [_walk(task, messages, prompt_mode, way, cut) for way in ("feedback", "end_turn")]
    return max(ways, key=lambda lengths: sum(length is not None for length in lengths))


def _walk(
    task: Task, messages: Sequence[Mapping[str, Any]], prompt_mode: str, parse_errors: str, cut: bool
) -> list[int | None]:
    params = {
        "split": "train",
        "tool_prompt_mode": prompt_mode,
        "omega": {"version": 0, "cues": {}},
        "parse_errors": parse_errors,
    }
    episode = open_episode(task, params)
    sent = list(episode.start()["state"])
    last = max((i for i, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    lengths: list[int | None] = [None] * len(messages)
    ended = False
    for i, message in enumerate(messages):
        content = str(message.get("content", ""))
        if message.get("role") == "assistant":
            if ended:
                break
            answer = episode.step(content, cut and i == last)
            sent, ended = list(answer["state"]), bool(answer["is_terminated"])
        elif sent:
            plain = str(sent.pop(0)["content"])
            if content.startswith(plain):
                lengths[i] = len(plain)
    return lengths
