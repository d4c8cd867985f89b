"""One trajectory or one group, read from its place in the log."""

import contextlib
import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.kit.tool_calls import UNREAD, read_message
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from shelf.view.index import parse
from shelf.view.query import group, key_of, parse_key


def raw_line(db: sqlite3.Connection, folder: RunFolder, key: str) -> tuple[dict[str, Any], sqlite3.Row]:
    """The object of a line, and its row; ValueError if the key names no line, or if its file has changed since."""
    log, step, line = parse_key(key)
    row = db.execute(
        "SELECT t.*, f.name AS file_name FROM trajectory t JOIN file f ON f.id = t.file "
        "WHERE t.log = ? AND t.step = ? AND t.line = ?",
        (log, step, line),
    ).fetchone()
    if row is None:
        raise ValueError(f"There is no trajectory {key}: the log of {log} has no line {line} at step {step}.")
    place = folder.trajectories if log == "train" else folder.validations
    with (place / row["file_name"]).open("rb") as stream:
        stream.seek(row["offset"])
        raw = stream.read(row["length"])
    value = None
    with contextlib.suppress(ValueError):
        value = parse(raw)
    if not isinstance(value, dict) or value.get("task_id") != row["task"]:
        raise ValueError(f"{key} has changed since it was indexed: load the page again.")
    return value, row


def trajectory(db: sqlite3.Connection, folder: RunFolder, key: str) -> dict[str, Any]:
    """All that the log holds of a trajectory. ValueError as in `raw_line`."""
    value, row = raw_line(db, folder, key)
    messages = place_messages(_messages(value), value.get("evidence"))
    for name in ("input", "output", "sampled"):  # earlier logs have the text of each token in `sampled`
        value.pop(name, None)
    return {
        "key": key,
        "file": f"{'seal_log/trajectories' if row['log'] == 'train' else 'validation_log'}/{row['file_name']}",
        "line": row["line"],
        "log": row["log"],
        "record": value,
        "figures": {name: row[name] for name in ("step", "source", "category", "score", "w", "advantage", "turns")},
        "messages": messages,
        "siblings": [
            {name: sibling[name] for name in ("key", "sample", "score", "labels", "infra")}
            for sibling in group(db, row["log"], row["step"], row["source"], row["task"], row["prompt"])
        ],
        "neighbours": _neighbours(db, row),
    }


def rollout(db: sqlite3.Connection, folder: RunFolder, line: TrajectoryRecord) -> dict[str, Any]:
    """Return `trajectory`'s view of a validated rollout."""
    place = (line.step, line.task_id, line.data_source, line.sample)
    given = "log = 'validation' AND step = ? AND task = ? AND source = ? AND sample = ?"
    found = db.execute(f"SELECT log, step, line FROM trajectory WHERE {given}", place).fetchone()
    return trajectory(db, folder, key_of(*found))


def _neighbours(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, str | None]:
    """The same task at the nearest earlier and later step, in the same log."""
    neighbours: dict[str, str | None] = {}
    for name, sign, order in (("earlier", "<", "DESC"), ("later", ">", "ASC")):
        other = db.execute(
            f"SELECT log, step, line FROM trajectory WHERE log = ? AND task = ? AND source = ? AND step {sign} ? "
            f"ORDER BY step {order}, sample LIMIT 1",
            (row["log"], row["task"], row["source"], row["step"]),
        ).fetchone()
        neighbours[name] = key_of(*other) if other else None
    return neighbours


def whole_group(
    db: sqlite3.Connection, folder: RunFolder, log: str, step: int, source: str, task: str, prompt: int | None
) -> dict[str, Any]:
    """The rollouts of a prompt (see `group`) with their evidence; ValueError if there are none.

    signal: as `groups` finds it.
    """
    rows = group(db, log, step, source, task, prompt)
    if not rows:
        raise ValueError(f"There is no group of {task} ({source}) at step {step} of the log {log}.")
    members, users = [], {}
    for row in rows:
        value, _ = raw_line(db, folder, row["key"])
        said = {name: value.get(name) for name in ("evidence", "diagnosis")}
        members.append(row | {name: found if isinstance(found, list) else [] for name, found in said.items()})
        for before, message in itertools.pairwise(place_messages(_messages(value), value.get("evidence"))):
            if message["action"] == 0 and message["turn"] is not None:
                users.setdefault(str(message["turn"]), before["content"])
    rewards = {row["score"] for row in rows if row["infra"] is None and not row["excluded"]}
    advantages = [row["advantage"] for row in rows if row["advantage"] is not None]
    signal = len(rewards) > 1 and (any(advantages) or not advantages)
    place = {"log": log, "step": step, "source": source, "task": task}
    return place | {"users": users, "members": members, "signal": signal}


def _messages(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Role and content of each message; damaged messages are shown as they are."""
    messages = []
    for name, role in (("input", "user"), ("output", "assistant")):
        said = value.get(name)
        for message in said if isinstance(said, list) else [said] if said else []:
            if isinstance(message, Mapping):
                messages.append({"role": str(message.get("role", "")), "content": _text(message.get("content"))})
            else:
                messages.append({"role": role, "content": _text(message)})
    return messages


def place_messages(messages: Sequence[Mapping[str, Any]], evidence: Any) -> list[dict[str, Any]]:
    """Each message with its turn and, if it is the policy's, its place among the turn's actions; null if unknown.

    The evidence has one action per message of the policy. What the environment says belongs to the turn of the
    policy's next message, or to the last turn. speaker: system, user, policy, tool (the answer to calls, whose role
    is `user` in most prompt modes) or environment (other messages that are not the user's: a refusal, the end).
    """
    turns = [turn for turn in evidence if isinstance(turn, Mapping)] if isinstance(evidence, Sequence) else []
    actions = [(number, at, action) for number, turn in enumerate(turns) for at, action in enumerate(_actions(turn))]
    shown, policy = [], 0
    for message in messages:
        turn, action, _ = actions[policy] if policy < len(actions) else (actions[-1][0] if actions else None, None, {})
        acts = message["role"] == "assistant"
        if acts:
            speaker, message = "policy", {**message, "content": _said(str(message["content"]))}
        elif message["role"] != "user" or policy == 0 or action == 0:
            speaker = message["role"]
        else:
            called = policy <= len(actions) and actions[policy - 1][2].get("calls")
            speaker = "tool" if called else "environment"
        shown.append({**message, "turn": turn, "action": action if acts else None, "speaker": speaker})
        policy += acts
    return shown


def _actions(turn: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [action if isinstance(action, Mapping) else {} for action in turn.get("actions") or ()]


def _said(content: str) -> str:
    """A message of the policy, with an API's tool calls written as calls."""
    text, calls = read_message(content)
    read = (call for call in calls if UNREAD not in call)  # unread calls are in the text
    made = (call["function"] if isinstance(call.get("function"), dict) else call for call in read)
    return "\n".join(filter(None, (text, *(f"{each.get('name')}({each.get('arguments')})" for each in made))))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "" if content is None else repr(content)
