"""The files of other programs: which files of a folder are read, their objects, and what is left out."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import EllipsisType
from typing import Any

from seal.system.jsonl import PACKING, BadLine, Line, flaw, opened, parse_lines, read_jsonl
from shelf.lab.foreign.atif import RESULT, beside, join_continued, trial_of
from shelf.lab.foreign.formats import FORMATS, TRIAL, Atif
from shelf.lab.foreign.normal import holds
from shelf.lab.foreign.rollout import Rollout
from shelf.lab.foreign.rows import row_of
from shelf.lab.foreign.seen import require_text, unread_call
from shelf.lab.foreign.tools import is_padded

SUFFIXES = (".json", ".jsonl", ".traj")
_ENDS = tuple(f"{suffix}{packed}" for suffix in SUFFIXES for packed in ("", ".gz"))
IDS = ("task_id", "id", "example_id", "session_id", "trajectory_id")
"""The keys under which a file may name the task; the first one present counts."""
OWN_NAMES = ("schema_version", "responses_create_params", "nodes", "termination_reason")
"""Keys of formats that define all their keys themselves, so that no other program's names apply."""
ELSEWHERE = {
    "resourceSpans": "an export of OpenTelemetry",
    "observations": "a trace of Langfuse",
    "run_type": "a run of LangSmith",
    "trajectory": "a trajectory of SWE-agent, DSPy or another agent",
    "context.span_id": "a span of Phoenix",
    "attributes": "a span of OpenTelemetry or OpenInference",
}
"""Kinds of files that are not read, by a key that identifies them."""
SIMULATIONS = "simulations"
"""The folder beside `results.json` in the second layout in which tau2-bench saves."""
_QUOTED = re.compile(r"""['"].*(?=: write)|(['"]).*?(?:\1|$)""")
"""A text quoted from a row in a reason, maybe truncated."""
FEW = 5
"""Up to this many files with the same fault are named one by one."""


def read_files(paths: Sequence[Path]) -> tuple[list[Rollout], list[BadLine]]:
    """The rollouts of files, or of the .json and .jsonl files of folders, and the lines that cannot be used.

    In a folder with Harbor's trials, only their trajectories and the results of trials without one are read.
    ValueError for a path without files.
    """
    rollouts: list[Rollout] = []
    bad: list[BadLine] = []
    known: set[Path] = set()
    for path in paths:
        files = sorted(path.rglob(TRIAL) if path.is_dir() else [path])
        if files and path.is_dir():
            files += sorted(file for file in path.rglob(RESULT) if not any(file.parent.rglob(TRIAL)))
        files = files or sorted(file for file in path.rglob("*") if file.name.endswith(_ENDS))
        if not files or not path.exists():
            lacks = "holds no rollouts" if path.exists() else "does not exist"
            raise ValueError(f"{path} {lacks}: name a file, or a folder with {' or '.join(SUFFIXES)} files.")
        files = [each for file in files for each in (file, *_simulations(file))]
        for file in dict.fromkeys(files):
            if file.resolve() in known:
                continue
            known.add(file.resolve())
            found, problems = parse_lines(_objects(file), rollout_of)
            rollouts += found
            bad += problems
    joined = {file for rollout in rollouts for file in rollout.continued}
    return [each for each in rollouts if Path(each.place.rpartition(":")[0]) not in joined], bad


def _objects(path: Path) -> Iterator[Line | BadLine]:
    """The objects of a file that is one JSON value or has one per line; one bad line if it is neither."""
    try:
        with opened(path) as stream:
            raw = stream.read()
        value = json.loads(raw, parse_int=_number)
    except PACKING as error:
        yield BadLine(path, 1, f"cannot be unpacked: {error}")
        return
    except (ValueError, RecursionError) as error:
        if not json.detect_encoding(raw).startswith("utf-8"):
            yield BadLine(path, 1, "is text of 16 or 32 bits: write it as UTF-8")
            return
        lines = list(read_jsonl(path))
        one = BadLine(path, getattr(error, "lineno", 1), f"neither JSON nor JSON lines: {flaw(error)}")
        yield from lines if any(isinstance(line, Line) for line in lines) else [one]
        return
    if isinstance(value, dict) and "simulations" not in value and _simulations(path):
        value = []
    if isinstance(value, dict) and isinstance(value.get("simulations"), list):
        world = {"world": value.get("info") or {}}
        value = [each | world if isinstance(each, dict) else each for each in value["simulations"]]
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        line = Line(path, number, item)
        yield line if isinstance(item, dict) else line.bad(f"a {type(item).__name__} where an object is expected")


def _number(digits: str) -> int | EllipsisType:
    """An integer, or an ellipsis for one that Python refuses, so that everything else is read."""
    try:
        return int(digits)
    except ValueError:
        return ...


def _too_long(value: Any) -> bool:
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is ... or any(map(_too_long, within))


def _simulations(file: Path) -> list[Path]:
    """The files with the simulations of a tau2-bench `results.json`, if they are beside it."""
    return sorted((file.parent / SIMULATIONS).glob("*.json")) if file.name == "results.json" else []


@lru_cache(maxsize=8)
def _world(results: Path, _: int) -> Any:
    """The `info` of tau2-bench's results, which its simulations share; the second value distinguishes file versions."""
    return beside(results).get("info")


def rollout_of(line: Line) -> Rollout:
    """The rollout of a row; ValueError names what is not understood."""
    value: dict[str, Any] = dict(line.value)
    if any(map(_too_long, value.values())):
        raise ValueError("it holds a number of more digits than Python reads")
    others = [key for key in ELSEWHERE if key in value and not {"messages", "completion"} & value.keys()]
    if others and (others[0] != "attributes" or not {*FORMATS} & row_of(value).keys()):
        raise ValueError(f"is {ELSEWHERE[others[0]]}: write each rollout as one row with messages, tools and reward")
    own = any(key in value for key in OWN_NAMES)
    value = {key: found for key, found in value.items() if found is not None} if own else row_of(value)
    model = next((model for key, model in FORMATS.items() if key in value), None)
    if model is None:
        raise ValueError(f"is not a rollout: expected one of the keys {', '.join(FORMATS)}")
    task = next((str(value[key]) for key in IDS if value.get(key, "") != ""), f"{line.path.stem}:{line.line}")
    place, files = f"{line.path}:{line.line}", ()
    if model is Atif:
        value["steps"], files = join_continued(value, line.path)
        value["trial"] = trial_of(line.path)
    if line.path.parent.name == SIMULATIONS:
        results = line.path.parent.parent / "results.json"
        value["world"] = _world(results, results.stat().st_mtime_ns) if results.is_file() else None
        place = f"{results}:{line.path.stem}"  # so that they share one category
    rollout = replace(model.model_validate(value).rollout(place, task), continued=files)
    if is_padded(line.value):
        for action in (action for turn in rollout.turns for action in turn.actions):
            action.calls = tuple(call.model_copy(update={"padded": True}) for call in action.calls)
    require_text(rollout)
    kept = (
        [] if own else [key for key, each in line.value.items() if isinstance(each, str | list | dict) and holds(each)]
    )
    if not rollout.replays and (why := unread_call(rollout, kept)):
        raise ValueError(f"{why}: write calls as tool_calls, with arguments as JSON")
    return rollout


def left_out(bad: Sequence[BadLine]) -> Iterator[str]:
    """One sentence per reason and file, with its first line; one for all files if there are more than a few."""
    reasons: dict[str, dict[Path, list[BadLine]]] = {}
    for line in bad:
        reason = _QUOTED.sub("", re.sub(r" is .*?: ", " is: ", line.problem))
        reason = re.sub(r"\d+", "0", reason)  # equal for every value and place
        reasons.setdefault(reason, {}).setdefault(line.path, []).append(line)
    for files in reasons.values():
        for lines in files.values() if len(files) <= FEW else [list(chain.from_iterable(files.values()))]:
            among = f" of {len(files)} files" if len(files) > FEW else ""
            more = len(lines) - 1
            count = f" and {more} more line{'s' * (more > 1)}{among}" if more else ""
            yield f"Left out: {lines[0].path}:{lines[0].line}{count}: {lines[0].problem}"
