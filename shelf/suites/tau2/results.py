"""The official tool's files: finished simulations, and who caused a simulation without a verdict.

The tool rewrites its file after each simulation, so simulations are copied to our own file as they arrive. One that
raised is marked `skipped` and gets reward 0; the reason is only in the program's output. What the agent caused (text
where only calls are allowed, unreadable arguments, a dialogue beyond its context) stays its failure; a failure of the
simulated user or of an endpoint is not a verdict on the agent.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shelf.suites.journal import resumed
from shelf.suites.records import Fault, ItemRecord

SUITE = "tau2"
FILE = "simulations.jsonl"
SIMULATOR = "simulator"
OUT_OF_SCOPE = "###OUT-OF-SCOPE###"
"""The reply of the simulated user when it has no instruction for a situation."""

_LIST = re.compile(r'^  "simulations": \[', re.MULTILINE)
_GENERATION = re.compile(r"\[(?P<model>[^\]\s]+)\] Error during generation: (?P<text>.*)")
_TASK = re.compile(r"Error running task (?P<task>.+), trial \d+: (?P<text>.*)")
_KIND = re.compile(r"^litellm\.(?P<name>\w+?)(?:Error)?:")
_AGENTS = ("LLMSoloAgent only supports tool calls", "AssistantMessage must have either")
_USERS = ("UserMessage must have either",)
_UNREADABLE = re.compile(r"line \d+ column \d+ \(char \d+\)|validation errors? for ToolCall")


class Sides(NamedTuple):
    """The two models of a dialogue, as the tool names them.

    user: None without a simulated user. user_calls_tools: whether the domain's simulated user also has tools.
    """

    agent: str
    user: str | None
    user_calls_tools: bool = False


def read_simulations(path: Path) -> list[dict[str, Any]]:
    """The complete simulations in a file that the tool may still be writing or never finished."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    start = _LIST.search(text)
    return list(_objects(text, start.end())) if start else []


def read_faults(log: str, sides: Sides) -> dict[str, Fault]:
    """Why each skipped task raised, according to the program's output."""
    models = {match["text"]: match["model"] for match in _GENERATION.finditer(log)}
    return {match["task"]: _fault(match["text"], models.get(match["text"]), sides) for match in _TASK.finditer(log)}


def record_of(category: str, sample: int, simulation: Mapping[str, Any], fault: Fault | None) -> ItemRecord:
    """The record of a simulation. fault: why it raised, if it was skipped."""
    messages = simulation.get("messages") or []
    used = [message.get("usage") or {} for message in messages if message["role"] == "assistant"]
    reason = simulation["termination_reason"]
    infra, message = None, ""
    if simulation.get("skipped"):
        fault = fault or Fault("unknown", "the tool skipped it and did not say why")
        reason = fault.cause
        infra, message = (fault.cause, fault.message) if fault.technical else (None, fault.message)
    elif reason == "user_error":
        infra, message = f"{SIMULATOR}_protocol", "the simulated user broke the protocol"
    elif reason == "user_stop" and OUT_OF_SCOPE in _last_said(messages):
        reason = "user_out_of_scope"
    return ItemRecord(
        suite=SUITE,
        category=category,
        item=simulation["task_id"],
        sample=sample,
        score=float((simulation.get("reward_info") or {}).get("reward", 0.0)),
        cluster=f"{category.removesuffix('_solo')}-{simulation['task_id']}",
        stop=reason,
        infra=infra,
        infra_message=message,
        input_tokens=sum(each.get("prompt_tokens") or 0 for each in used),
        output_tokens=sum(each.get("completion_tokens") or 0 for each in used),
        seconds=round(float(simulation["duration"]), 3),
    )


def _fault(text: str, model: str | None, sides: Sides) -> Fault:
    short, agent, user = text[:300], sides.agent, sides.user
    kind = _KIND.match(text)
    if kind is None:
        unreadable = _UNREADABLE.search(text) is not None
        if text.startswith(_AGENTS) or (unreadable and not sides.user_calls_tools):
            return Fault("agent_error", short, technical=False)
        if text.startswith(_USERS):
            return Fault(f"{SIMULATOR}_empty", short)
        return Fault("unreadable_call" if unreadable else "unknown", short)
    cause = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind["name"]).lower()
    if model == user != agent:
        return Fault(f"{SIMULATOR}_{cause}", short)
    if kind["name"].startswith("ContextWindow") and (user is None or model == agent != user):
        return Fault("context", short, technical=False)
    return Fault(f"endpoint_{cause}", short)


def _objects(text: str, position: int) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    while True:
        while position < len(text) and text[position] in " \n\r\t,":
            position += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            return
        yield value


def _last_said(messages: list[dict[str, Any]]) -> str:
    said = [message.get("content") or "" for message in messages if message["role"] == "user"]
    return said[-1] if said else ""


class Key(NamedTuple):
    """The identity of a simulation."""

    domain: str
    task: str
    trial: int


class Simulations:
    """The simulations with a verdict by key, and the technical faults since the program began."""

    def __init__(self, out: Path):
        self._path = out / FILE
        self.records: dict[Key, ItemRecord] = {}
        self.faults: dict[Key, ItemRecord] = {}
        for line in resumed(self._path):
            self._keep(ItemRecord(**line["record"]))

    def add(self, domain: str, trial: int, simulations: list[dict[str, Any]], faults: Mapping[str, Fault]) -> None:
        """Keep the new simulations."""
        with self._path.open("a", encoding="utf-8") as stream:
            for simulation in simulations:
                key = Key(domain, simulation["task_id"], trial)
                if key in self.records:
                    continue
                record = record_of(domain, trial, simulation, faults.get(key.task))
                self._keep(record)
                if record.infra is None:
                    stream.write(json.dumps({"record": asdict(record), "simulation": simulation}) + "\n")

    def _keep(self, record: ItemRecord) -> None:
        key = Key(record.category, record.item, record.sample)
        (self.records if record.infra is None else self.faults)[key] = record
        if record.infra is None:
            self.faults.pop(key, None)


class Watch:
    """Reads the results and the log of a program while it runs, whenever they have changed."""

    def __init__(self, kept: Simulations, domain: str, trial: int, folder: Path, sides: Sides):
        self._kept, self._domain, self._trial, self._sides = kept, domain, trial, sides
        self._results = folder / "r.json"
        self.log = folder / "tau2.log"
        self._mark: list[tuple[int, int]] = []

    def __call__(self) -> int:
        """Return the number of known simulations, including those with technical faults."""
        states = [path.stat() for path in (self._results, self.log) if path.is_file()]
        mark = [(state.st_size, state.st_mtime_ns) for state in states]
        if mark != self._mark:
            self._mark = mark
            log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""
            self._kept.add(self._domain, self._trial, read_simulations(self._results), read_faults(log, self._sides))
        return len(self._kept.records) + len(self._kept.faults)
