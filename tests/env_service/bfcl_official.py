"""The official runner's verdict on raw model texts, by the package's own handlers and checker."""

import copy
import itertools
import json
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.model_handler.base_handler import BaseHandler
from bfcl_eval.model_handler.local_inference.llama import LlamaHandler
from bfcl_eval.model_handler.local_inference.qwen_fc import QwenFCHandler

from env_service.environments.bfcl.catalog import Task, data
from shelf.authoring.tests.bfcl_official import check

HANDLERS: dict[str, BaseHandler] = {
    "bfcl_qwen_fc": QwenFCHandler("Qwen/Qwen2.5-7B-Instruct", 0.0, "Qwen2.5-7B-Instruct", True),
    "toolace_official_prompt": LlamaHandler("Team-ACE/ToolACE-2-8B", 0.0, "ToolACE-2-8B", False),
}
"""The package's handler of each prompt mode that has one."""

STEP_LIMIT = 20

_ENTRIES: dict[str, dict[str, Any]] = {}


def entry(task: Task) -> dict[str, Any]:
    """The data file's own line of a task; what the checker reads of one, for a task of no data file."""
    if task.id.startswith("synth_"):
        config = copy.deepcopy(dict(task.initial_config))
        return {"id": task.id, "initial_config": config, "involved_classes": list(task.involved_classes)}
    if task.id not in _ENTRIES:
        for line in (data() / f"BFCL_v4_multi_turn_{task.category}.json").open(encoding="utf-8"):
            item = json.loads(line)
            _ENTRIES[item["id"]] = item
    return copy.deepcopy(_ENTRIES[task.id])


def _answer(text: str) -> SimpleNamespace:
    usage = SimpleNamespace(prompt_tokens=0, completion_tokens=0)
    return SimpleNamespace(choices=[SimpleNamespace(text=text)], usage=usage)


def _decoded(handler: BaseHandler, text: str) -> list[str]:
    """The executable calls of a parsed message; none when the runner gives up on it."""
    try:
        calls = handler.decode_execute(text, has_tool_call_tag=False)
        return [] if multi_turn_utils.is_empty_execute_response(calls) else calls
    except Exception:  # the runner ignores whatever cannot be decoded
        return []


def generate(task: Task, messages: Iterable[str], mode: str = "bfcl_qwen_fc") -> list[list[str]] | None:
    """The result that `bfcl generate` would write for a model that says these messages and then "Done.".

    The prompt is rendered ahead of every message, as the runner does; None when that fails
    ("Error during inference"). The observations are placeholders, which no verdict depends on.
    """
    handler, script = HANDLERS[mode], itertools.chain(messages, itertools.repeat("Done."))
    data: dict[str, Any] = {"message": []}
    result: list[list[str]] = []
    for user in task.users:
        data["message"].append({"role": "user", "content": user or "More functions."})
        result.append([])
        for step in itertools.count(1):
            try:
                handler._format_prompt(data["message"], []).encode()
                response = handler._parse_query_response_prompting(_answer(next(script)))
                handler._add_assistant_message_prompting(data, response)
            except Exception:  # the runner writes every failure down as the task's result
                return None
            result[-1].append(response["model_responses"])
            calls = _decoded(handler, response["model_responses"])
            if not calls:
                break
            response["model_responses_decoded"] = calls
            handler._add_execution_results_prompting(data, ["result"] * len(calls), response)
            if step > STEP_LIMIT:
                return result
    return result


def verdict(task: Task, texts: Sequence[Sequence[str]], mode: str = "bfcl_qwen_fc") -> bool:
    """The official verdict: the package's handler writes the result, its checker judges it."""
    turns = generate(task, (text for turn in texts for text in turn), mode)
    if turns is None or len(turns) != len(task.reference):
        return False
    handler = HANDLERS[mode]
    return check(task, [[calls for text in turn if (calls := _decoded(handler, text))] for turn in turns]).valid
