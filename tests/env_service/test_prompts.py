"""The policy's prompts equal, byte for byte, those of the benchmark's own handlers."""

import copy
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
from bfcl_eval.model_handler.base_handler import BaseHandler
from bfcl_eval.model_handler.local_inference.llama import LlamaHandler
from bfcl_eval.model_handler.local_inference.qwen_fc import QwenFCHandler
from bfcl_eval.utils import load_dataset_entry

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import CATEGORIES, Task, all_tools, available_tools, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.registry import get_environment
from tests.env_service.bfcl_perturbations import reference_calls
from tests.support.samples import in_steps

QWEN = QwenFCHandler("Qwen/Qwen2.5-7B-Instruct", 0.0, "Qwen2.5-7B-Instruct", True)
TOOLACE = LlamaHandler("Team-ACE/ToolACE-2-8B", 0.0, "ToolACE-2-8B", False)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return {item["id"]: item for category in CATEGORIES for item in load_dataset_entry(f"multi_turn_{category}")}


def official_prompts(handler: BaseHandler, task: Task, mode: str) -> Iterator[str]:
    """Every prompt that the package's handler sends while the reference is played, one call a message."""
    entry = copy.deepcopy(_entries()[task.id])
    data = handler._pre_query_processing_prompting(entry)
    toolbox, render = Toolbox(task), get_format(mode).render_call
    for turn, (message, calls) in enumerate(zip(entry["question"], reference_calls(task), strict=True)):
        if str(turn) in entry.get("missed_function", {}):
            functions = entry["missed_function"][str(turn)]
            content = DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=functions)
            message = [{"role": "user", "content": content}]
        add = handler.add_first_turn_message_prompting if turn == 0 else handler._add_next_turn_user_message_prompting
        data = add(data, message)
        for text in [*(render(*call) for call in calls), "Done."]:
            yield handler._format_prompt(data["message"], data["function"])
            usage = SimpleNamespace(prompt_tokens=0, completion_tokens=0)
            response = handler._parse_query_response_prompting(
                SimpleNamespace(choices=[SimpleNamespace(text=text)], usage=usage)
            )
            data = handler._add_assistant_message_prompting(data, response)
            if text == "Done.":
                break
            response["model_responses_decoded"] = handler.decode_execute(text, has_tool_call_tag=False)
            result = toolbox.call(*calls.pop(0)).text
            data = handler._add_execution_results_prompting(data, [result], response)


def our_messages(task: Task, mode: str) -> Iterator[list[dict[str, str]]]:
    """The dialogue before each assistant message of the same walk, as an episode gives it."""
    episode = get_environment("bfcl").open(task.id, {"tool_prompt_mode": mode, "max_steps": 100}, Guard())
    dialogue = list(episode.start()["state"])
    for calls in reference_calls(task):
        for text in [*(get_format(mode).render_call(*call) for call in calls), "Done."]:
            yield dialogue
            dialogue.append({"role": "assistant", "content": text})
            dialogue += episode.step(text, False)["state"]


def chatml(messages: list[dict[str, str]]) -> str:
    """Qwen's rendering of plain messages."""
    body = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return body + "<|im_start|>assistant\n"


@in_steps
@pytest.mark.parametrize("category", CATEGORIES)
def test_qwen_prompts_are_those_of_the_packages_handler(category: str, step: int) -> None:
    checked = 0
    for task in [task for task in load_tasks().values() if task.category == category][::step]:
        theirs, ours = official_prompts(QWEN, task, "bfcl_qwen_fc"), our_messages(task, "bfcl_qwen_fc")
        for expected, messages in zip(theirs, ours, strict=True):
            assert chatml(messages) == expected, task.id
            checked += 1
    assert checked > 200 // step * 3


def headers(messages: list[dict[str, str]]) -> str:
    """Plain Llama headers."""
    parts = [f"<|start_header_id|>{m['role']}<|end_header_id|>\n\n{m['content']}<|eot_id|>" for m in messages]
    return "<|begin_of_text|>" + "".join(parts) + "<|start_header_id|>assistant<|end_header_id|>\n\n"


def test_toolace_prompts_are_those_of_the_packages_handler() -> None:
    mode = "toolace_official_prompt"
    for task in list(load_tasks().values())[::20]:
        theirs, ours = official_prompts(TOOLACE, task, mode), our_messages(task, mode)
        for expected, messages in zip(theirs, ours, strict=True):
            assert headers(messages) == expected, task.id


def test_a_prefix_shows_the_tools_that_the_whole_task_shows() -> None:
    hidden = 0
    for task in load_tasks().values():
        for turns in range(1, len(task.users)):
            for turn in range(turns):
                assert available_tools(task.prefix(turns), turn) == available_tools(task, turn), task.id
                hidden += len(available_tools(task, turn)) < len(all_tools(task))
    assert hidden > 300
