"""One trajectory as spans: the episode, its user turns, the policy's messages and the calls that they made.

Names follow OpenInference (openinference.span.kind and others), which Phoenix, Langfuse,
Weave and Arize show as dialogues; what is SEAL's own starts with `seal.`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seal.records.trajectory import MET, TrajectoryRecord

Value = str | bool | int | float | Sequence[str]
"""What an attribute may hold."""

NANO = 1_000_000_000


@dataclass(frozen=True)
class Span:
    """One span. start, end: seconds since the epoch. error: what went wrong, "" if nothing did."""

    name: str
    kind: str
    start: float
    end: float
    parent: str = ""
    error: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    trace: str = ""
    id: str = ""


def spans(record: TrajectoryRecord, run: str) -> Iterator[Span]:
    """The spans of a trajectory, parents first; the same trajectory of the same run gives the same ids.

    Times are those of the rollout if the record has them (from format 2 on), else the
    messages share the trajectory's duration.
    """
    key = f"{run}/{'step' if record.group is not None else 'validation'}/{record.step}/{record.data_source}"
    key += f"/{record.task_id}/{record.sample}"
    trace, moments = _hex(key, 32), _moments(record)
    root = _hex(f"{key}/episode", 16)
    yield Span(
        name=f"{record.task_id} #{record.sample}",
        kind="AGENT",
        start=moments[0][0],
        end=moments[-1][2],
        error=record.infra_message if record.infra else "",
        attributes=_of_episode(record, run),
        trace=trace,
        id=root,
    )
    evidence = {turn["turn"]: turn for turn in record.evidence}
    diagnosis = {turn["turn"]: turn for turn in record.diagnosis}
    turns = [turn for turn, _, _ in record.spans] or [0] * len(moments)
    messages = _messages(record)
    said: dict[int, int] = {}
    for turn in sorted(set(turns[: len(messages)])):
        own = [number for number, at in enumerate(turns[: len(messages)]) if at == turn]
        label = diagnosis.get(turn, {})
        parent = _hex(f"{key}/turn/{turn}", 16)
        yield Span(
            name=f"turn {turn}",
            kind="CHAIN",
            start=moments[own[0]][0],
            end=moments[own[-1]][2],
            parent=root,
            error=label.get("reason", "") if label and label["label"] not in MET else "",
            attributes=_of_turn(label, messages[own[0]][0]),
            trace=trace,
            id=parent,
        )
        for number in own:
            asked, sampled, answered = moments[number]
            before, text = messages[number]
            place = f"{key}/message/{number}"
            yield Span(
                name="policy",
                kind="LLM",
                start=asked,
                end=sampled,
                parent=parent,
                error="cut by a token limit" if number in record.truncated else "",
                attributes=_of_message(record, number, before, text),
                trace=trace,
                id=_hex(place, 16),
            )
            actions = evidence.get(turn, {}).get("actions", ())
            position = said[turn] = said.get(turn, -1) + 1
            action = actions[position] if position < len(actions) else {}
            for index, call in enumerate(action.get("calls", ())):
                yield Span(
                    name=call["name"],
                    kind="TOOL",
                    start=sampled,
                    end=answered,
                    parent=parent,
                    error=f"{call['error']}: {call['result']}" if call.get("error") else "",
                    attributes=_of_call(call),
                    trace=trace,
                    id=_hex(f"{place}/{index}", 16),
                )


def _messages(record: TrajectoryRecord) -> list[tuple[list[Mapping[str, Any]], str]]:
    """Each of the policy's messages: what it was shown since the one before, and what it said."""
    found: list[tuple[list[Mapping[str, Any]], str]] = []
    before: list[Mapping[str, Any]] = []
    for message in record.messages:
        if message["role"] == "assistant":
            found.append((before, str(message["content"])))
            before = []
        else:
            before.append(message)
    return found


def _moments(record: TrajectoryRecord) -> list[tuple[float, float, float]]:
    """When each message was asked for, sampled and answered; one triple for a trajectory without messages."""
    number = len(_messages(record))
    times = record.times
    if len(times) < number or not number:
        share = record.seconds / max(1, number)
        times = tuple((share * n, share * (n + 1), share * (n + 1)) for n in range(max(1, number)))
    return [tuple(record.began + moment for moment in moments) for moments in times]


def _of_episode(record: TrajectoryRecord, run: str) -> dict[str, Value]:
    messages = _messages(record)
    known: dict[str, Value | None] = {
        "session.id": f"{run}/{record.step}",
        "input.value": next((str(m["content"]) for m in record.messages if m["role"] == "user"), ""),
        "output.value": messages[-1][1] if messages else "",
        "seal.run": run,
        "seal.step": record.step,
        "seal.validation": record.group is None,
        "seal.task": record.task_id,
        "seal.data_source": record.data_source,
        "seal.split": record.split,
        "seal.sample": record.sample,
        "seal.group": record.group,
        "seal.reward": record.score,
        "seal.passed": record.passed,
        "seal.turns": record.turns,
        "seal.turns_passed": record.turns_passed,
        "seal.labels": list(record.labels),
        "seal.stop": record.stop,
        "seal.excluded": record.excluded,
        "seal.infra": record.infra,
        "seal.advantage": record.advantage,
        "seal.w": record.w,
        "seal.omega_version": record.omega_version,
        "seal.prompt_mode": record.prompt_mode,
        "seal.tokens": record.tokens,
    }
    tags = [*sorted(set(record.labels)), "passed" if record.passed else "failed", record.category]
    return {name: value for name, value in known.items() if value is not None} | {"tag.tags": tags}


def _of_turn(label: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    found: dict[str, Value] = {"input.value": str(before[-1]["content"]) if before else ""}
    for name in ("label", "rule", "reason", "blame"):
        if label.get(name):
            found[f"seal.{name}"] = str(label[name])
    if label.get("signals"):
        found["seal.signals"] = list(label["signals"])
    return found


def _of_message(
    record: TrajectoryRecord, number: int, before: Sequence[Mapping[str, Any]], text: str
) -> dict[str, Value]:
    found: dict[str, Value] = {"seal.message": number}
    for index, message in enumerate(before):
        found[f"llm.input_messages.{index}.message.role"] = str(message["role"])
        found[f"llm.input_messages.{index}.message.content"] = str(message["content"])
    found |= {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": text}
    if number < len(record.spans):
        _, start, end = record.spans[number]
        found["llm.token_count.completion"] = end - start
        if record.prompt_tokens:
            found["llm.token_count.prompt"] = record.prompt_tokens + start
    return found


def _of_call(call: Mapping[str, Any]) -> dict[str, Value]:
    arguments = json.dumps(call.get("arguments", {}), ensure_ascii=False)
    found: dict[str, Value] = {
        "tool.name": str(call["name"]),
        "tool.parameters": arguments,
        "input.value": arguments,
        "input.mime_type": "application/json",
        "output.value": str(call.get("result", "")),
        "seal.available": bool(call.get("available", True)),
    }
    if call.get("error"):
        found["seal.error"] = str(call["error"])
    if call.get("violations"):
        found["seal.violations"] = [str(each.get("message", "")) for each in call["violations"]]
    return found


def _hex(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:digits]
