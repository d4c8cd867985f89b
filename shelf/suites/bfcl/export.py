"""A validation log as the official tool's result files.

``bfcl evaluate`` must give the same verdicts on them. Logs in the prompt mode of the official handler keep the
model's own text; the handler could not read other modes, so for these, calls are written as that handler writes them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.kit.tool_calls import MODE, read_message
from seal.records.benchmark import CATEGORIES
from seal.records.folder import RunFolder
from seal.records.source import WHOLE
from seal.records.trajectory import TrajectoryRecord
from seal.system.files import write_jsonl
from seal.system.jsonl import read_records, step_files
from seal.system.text import without_thoughts
from shelf.statistics.log import has_validations, read_line
from shelf.suites import OFFICIAL_MODEL, OFFICIAL_TOOL_CALLS
from shelf.suites.benchmark import STEP

PROMPT_MODE = "bfcl_qwen_fc"
"""The prompt mode of the official handler."""

PREFIXES = "rollouts of prefixes (the official tool plays whole tasks)"
MADE = "rollouts of synthesised tasks or of another environment (the official tool does not know them)"
FAULTS = "failed rollouts (they say nothing about the model)"


class Export(NamedTuple):
    """The exported files. tasks: count by category. left_out: count of lines without official counterpart, by kind."""

    folder: Path
    model: str
    tasks: Mapping[str, int]
    left_out: Mapping[str, int]


def export_bfcl(log: Path | str, out: Path | str, model: str | None = None, sample: int = 0) -> Export:
    """Write one sample per task of a log under ``out/result/<model>/multi_turn/``.

    model: one that the official tool knows, by default one whose handler reads the log's format. Prefixes, tasks
    that the tool does not know, and rollouts that failed for reasons other than the policy are left out (so the tool
    needs ``--partial-eval``). Raises ValueError for bad lines and for logs without evidence (those of other programs).
    """
    entries: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    left_out: Counter[str] = Counter()
    records, bad = read_records(log, _exportable)
    if bad:
        raise ValueError(f"The log cannot be exported: {bad[0]}")
    for record in records:
        if record.prefix != WHOLE:
            left_out[PREFIXES] += 1
        elif record.category not in CATEGORIES:
            left_out[MADE] += 1
        elif record.infra is not None:
            left_out[FAULTS] += 1
        elif record.sample == sample:
            entries[record.category][record.scenario] = {"id": record.task_id, "result": list(_turns(record))}
    if not entries:
        only = "".join(f"; left out: {count} {what}" for what, count in left_out.items())
        raise ValueError(f"{log} holds no rollout of a whole task of the benchmark to export (sample {sample}){only}.")
    modes = {record.prompt_mode for record in records if record.category in CATEGORIES}
    model = model or (OFFICIAL_TOOL_CALLS if MODE in modes else OFFICIAL_MODEL)
    folder = Path(out) / "result" / model.replace("/", "_") / "multi_turn"
    for category in CATEGORIES:
        if category in entries:
            write_jsonl((entry for _, entry in sorted(entries[category].items())), folder / result_file(category))
    return Export(folder, model, {name: len(tasks) for name, tasks in entries.items()}, left_out)


def find_log(run_or_log: Path, step: int | None) -> Path:
    """The named log, or that of a run's validation (the last by default); ValueError if it is missing."""
    log = run_or_log
    if log.is_dir():
        folder = RunFolder(log)
        if not has_validations(folder):
            raise ValueError(f"{log} holds no validation_log/<step>.jsonl: name a run or one log.")
        log = step_files(folder.validations)[-1][1] if step is None else folder.validations / f"{step}.jsonl"
    if not log.is_file():
        raise ValueError(f"{log} does not exist: name a run and one of its validation steps, or one log.")
    return log


def result_file(category: str) -> str:
    """The official name of a category's result file."""
    return f"BFCL_v4_multi_turn_{category}_result.json"


def _exportable(value: Mapping[str, Any]) -> TrajectoryRecord:
    record, _ = read_line(value, STEP)
    if record.category in CATEGORIES and record.prefix == WHOLE and record.infra is None and not record.evidence:
        raise ValueError("has no evidence")
    return record


def _turns(record: TrajectoryRecord) -> Iterator[list[Any]]:
    """The assistant messages of each finished turn, as the official tool stores them."""
    said = iter([message["content"] for message in record.messages if message["role"] == "assistant"])
    own_text = record.prompt_mode == PROMPT_MODE
    render = get_format(PROMPT_MODE).render_call
    last = len(load_tasks()[record.task_id].users) - 1
    for turn in record.evidence:
        messages = []
        for action in turn["actions"]:
            text = next(said, "")
            if record.prompt_mode == MODE:
                text = _answer(text)
            elif not own_text:
                text = "\n".join(render(call["name"], call["arguments"]) for call in action["calls"])
            elif "</think>" in text:
                text = without_thoughts(text).lstrip("\n")  # the part that the official handler keeps
            messages.append(text)
        if turn["stop"] == "answered" or (turn["stop"] == "step_limit" and turn["turn"] == last):
            yield messages
        else:
            # The official runner stops here and fails the task for its missing turns.
            return


def _answer(text: str) -> list[dict[str, Any]] | str:
    """A message with tool calls as the official handler keeps it: its calls, or its content if one is not a call."""
    content, calls = read_message(text)
    try:
        kept = [{call["function"].get("name"): call["function"].get("arguments")} for call in calls]
    except (KeyError, TypeError, AttributeError):
        return content
    return kept or content
