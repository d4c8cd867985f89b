"""A validation log as the official tool's result files.

``bfcl evaluate`` run on them must give the same verdicts. Logs in the prompt
mode of the official handler keep the model's own text; in logs of other modes,
which it could not read, calls are written as that handler writes them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.splits import CATEGORIES, parse_task_id
from seal.files import write_text
from seal.jsonl import BadLine, Line, read_jsonl, step_files
from seal.records.source import WHOLE, parse_data_source

PROMPT_MODE = "bfcl_qwen_fc"
"""The prompt mode of the official handler."""
OFFICIAL_MODEL = "Qwen/Qwen3-8B-FC"
"""A model that the official tool knows and reads in that mode; the name of the exported folder."""

FILE_PREFIX = "BFCL_v4"


@dataclass(frozen=True)
class Export:
    """What was written: tasks by category, and the lines that have no official counterpart."""

    folder: Path
    tasks: Mapping[str, int]
    prefixes: int
    made: int
    failed: int


def export_bfcl(log: Path | str, out: Path | str, model: str = OFFICIAL_MODEL, sample: int = 0) -> Export:
    """Write one sample per task of a log under ``out/result/<model>/multi_turn/``.

    Prefix tasks and synthesised ones are left out, because they have no official counterpart; so are
    rollouts that failed for reasons other than the policy (the official tool's
    ``--partial-eval`` leaves them out of the accuracy). Raises ValueError for bad
    lines and for logs without evidence (those of other programs).
    """
    folder = Path(out) / "result" / model.replace("/", "_") / "multi_turn"
    entries: dict[str, dict[int, str]] = defaultdict(dict)
    prefixes = made = failed = 0
    for line in read_jsonl(log):
        if isinstance(line, BadLine):
            raise ValueError(f"The log cannot be exported: {line}")
        value = line.value
        category, scenario = parse_task_id(_field(line, "task_id"))
        if parse_data_source(str(value.get("data_source", category)))[1] != WHOLE:
            prefixes += 1
        elif category not in CATEGORIES:
            made += 1
        elif value.get("infra") is not None:
            failed += 1
        elif int(value.get("sample", 0)) == sample:
            result = [list(turn) for turn in _turns(line)]
            entry = {"id": value["task_id"], "result": result}
            entries[category][scenario] = json.dumps(entry, ensure_ascii=False)
    if not entries:
        raise ValueError(f"{log} holds no rollout of a whole task to export (sample {sample}).")
    for category in CATEGORIES:
        if category in entries:
            ordered = (entries[category][scenario] for scenario in sorted(entries[category]))
            write_text("".join(text + "\n" for text in ordered), folder / result_file(category))
    return Export(folder, {name: len(found) for name, found in entries.items()}, prefixes, made, failed)


def find_log(run_or_log: Path, step: int | None) -> Path:
    """The log that is named, or the one of a run's validation (the last by default); ValueError if it is missing."""
    log = run_or_log
    if log.is_dir():
        logs = step_files(log / "validation_log")
        if not logs:
            raise ValueError(f"{log} holds no validation_log/<step>.jsonl: name a run or one log.")
        log = log / "validation_log" / f"{step}.jsonl" if step is not None else logs[-1][1]
    if not log.is_file():
        raise ValueError(f"{log} does not exist: name a run and one of its validation steps, or one log.")
    return log


def result_file(category: str) -> str:
    """The official name of a category's result file."""
    return f"{FILE_PREFIX}_multi_turn_{category}_result.json"


def _turns(line: Line) -> Iterator[list[str]]:
    """The assistant messages of each finished turn, as the official tool stores them."""
    evidence = _field(line, "evidence")
    said = iter([message["content"] for message in _field(line, "output") if message["role"] == "assistant"])
    own_text = line.value.get("prompt_mode") == PROMPT_MODE
    last = len(load_tasks()[line.value["task_id"]].users) - 1
    for turn in evidence:
        messages = [_without_reasoning(next(said, "")) if own_text else _rendered(action) for action in turn["actions"]]
        if turn["stop"] == "answered" or (turn["stop"] == "step_limit" and turn["turn"] == last):
            yield messages
        else:
            # The official runner stops here and fails the task for its missing turns.
            return


def _without_reasoning(text: str) -> str:
    """The part of a message that the official handler keeps."""
    return text.split("</think>")[-1].lstrip("\n") if "</think>" in text else text


def _rendered(action: Mapping[str, Any]) -> str:
    render = get_format(PROMPT_MODE).render_call
    return "\n".join(render(call["name"], call["arguments"]) for call in action["calls"])


def _field(line: Line, name: str) -> Any:
    if name not in line.value:
        raise ValueError(f"The log cannot be exported: {line.bad(f'has no {name}')}")
    return line.value[name]
