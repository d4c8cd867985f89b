"""The official runner's verdict on raw model texts, by the package's own handler and checker."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import long_context
from bfcl_eval.model_handler.local_inference.qwen_fc import QwenFCHandler

from env_service.environments.bfcl.catalog import Task, data_folder

_HANDLER = QwenFCHandler("Qwen/Qwen2.5-7B-Instruct", 0.0, "Qwen2.5-7B-Instruct", True)
_SHARED = {name: value for name, value in vars(long_context).items() if isinstance(value, dict) and name.isupper()}
_PRISTINE = copy.deepcopy(_SHARED)
_RUNS = itertools.count()
_ENTRIES: dict[str, dict[str, Any]] = {}


def entry(task: Task) -> dict[str, Any]:
    """The data file's own line of a task."""
    if task.id not in _ENTRIES:
        for line in (data_folder() / f"BFCL_v4_multi_turn_{task.category}.json").open(encoding="utf-8"):
            item = json.loads(line)
            _ENTRIES[item["id"]] = item
    return copy.deepcopy(_ENTRIES[task.id])


def decode(texts: Sequence[str]) -> list[list[str]]:
    """The executable calls of a turn's messages, as the official runner keeps them."""
    decoded, usage = [], SimpleNamespace(prompt_tokens=0, completion_tokens=0)
    for text in texts:
        answer = SimpleNamespace(choices=[SimpleNamespace(text=text)], usage=usage)
        text = _HANDLER._parse_query_response_prompting(answer)["model_responses"]
        try:
            calls = _HANDLER.decode_execute(text, has_tool_call_tag=False)
        except Exception:  # the runner ignores whatever cannot be decoded
            continue
        if not multi_turn_utils.is_empty_execute_response(calls):
            decoded.append(calls)
    return decoded


def verdict(task: Task, texts: Sequence[Sequence[str]]) -> bool:
    """Valid or not, as in a fresh process: shared dictionaries restored, instances new."""
    for name, value in _PRISTINE.items():
        _SHARED[name].clear()
        _SHARED[name].update(copy.deepcopy(value))
    if len(texts) != len(task.reference):
        return False
    model = f"oracle_{next(_RUNS)}"
    try:
        result = multi_turn_checker.multi_turn_checker(
            [decode(turn) for turn in texts], [list(c) for c in task.reference], entry(task), task.category, model
        )
        return result["valid"]
    except RecursionError:
        return False
    finally:
        for key in [key for key in vars(multi_turn_utils) if key.startswith(model)]:
            del vars(multi_turn_utils)[key]
