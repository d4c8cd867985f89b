"""An OpenAI-compatible endpoint that answers from the references, with chosen faults.

``python scripted_endpoint.py PORT [--prompt-mode MODE] [--flaky N] [--delay S] [--tasks FILE] [--odd]
[--refuses FIELD...] [--environment NAME]``. It also knows the synthesised tasks of FILE, and plays an environment's
tasks by their references. A request is recognised by its X-Request-Id
``task/sample/message``, or by the user's first words where a harness sent it. The task's scenario chooses the fault, so
that verdicts are known beforehand: see FAULTS, or, with --odd, ODD.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import unquote

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.kit.tool_calls import MODE, read_message
from env_service.environments.registry import get_environment, register
from shelf.suites import FIXED

FAULTS = (
    "none",
    "none",
    "none",
    "last_turn_silent",
    "malformed",
    "spurious",
    "wrong_tool",
    "tool_loop",
    "cut",
    "context",
)
DONE = "Done."


def _choice(reason: str, **message: str | None) -> tuple[int, dict]:
    return 200, {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}]}


ODD = (
    None,
    _choice("stop", content=None, reasoning_content="Hm. <tool_call>\n{}\n</tool_call>"),
    _choice("error", content=""),
    _choice("stop", content=None, refusal="I cannot help with that."),
    (400, {"error": {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}}),
    (400, {"error": {"message": "request (9000 tokens) exceeds the available context size (8192 tokens)"}}),
    (422, {"error": {"message": "no"}}),
)
"""Answers that endpoints give for reasons of their own, by the remainder of the task's scenario."""


def fault_of(scenario: int) -> str:
    """The fault that this endpoint makes in every task of a scenario."""
    return FAULTS[scenario % len(FAULTS)]


def script(task: Task, prompt_mode: str, fault: str) -> list[str]:
    """The assistant messages of a task, turn after turn."""
    render = get_format(prompt_mode).render_call
    messages: list[str] = []
    for index, turn in enumerate(task.reference):
        calls = [render(*parse_reference(call)) for call in turn]
        last = index + 1 == len(task.reference)
        if fault == "spurious" and not calls:
            calls = [render(*parse_reference(task.reference[-1][0]))] if task.reference[-1] else []
        if fault == "malformed" and index == 0 and calls:
            calls[0] = calls[0].replace("arguments", "argument", 1)
        if fault == "wrong_tool" and last:
            calls = [render("no_such_tool", {"x": 1})]
        if fault == "last_turn_silent" and last:
            calls = []
        if fault == "tool_loop" and last:
            calls = calls[:1] * 40 or [render("no_such_tool", {})] * 40
        messages += [*calls, DONE]
    return messages


def reference_of(environment: str, task_id: str, prompt_mode: str) -> list[str]:
    """The messages of another environment's reference."""
    there = get_environment(environment)
    turns = there.reference(task_id)
    said = ([*(there.render(prompt_mode, call) for call in turn), there.closing(prompt_mode)] for turn in turns)
    return [message for turn in said for message in turn]


def by_words(tasks: dict[str, Task], messages: list[dict]) -> str:
    """What a harness asks for, whose requests have no name: the task by its user's first words."""
    words = next(message["content"] for message in messages if message["role"] == "user")
    task_id = next(name for name, task in tasks.items() if words.endswith(task.users[0]))
    return f"{task_id}/0/{sum(message['role'] == 'assistant' for message in messages)}"


def make_app(
    prompt_mode: str,
    flaky: int,
    delay: float,
    task_file: str | None,
    odd: bool,
    refuses: list[str],
    environment: str | None,
) -> FastAPI:
    """The endpoint; every flaky-th request is answered 503, each after delay seconds."""
    app = FastAPI()
    tasks = dict(load_tasks())
    if task_file:
        tasks |= {made.id: made.task for made in read_task_file(task_file)}
    scripts: dict[str, list[str]] = {}
    served = {"requests": 0, "by_task": {}}

    @app.get("/health")
    def health() -> str:
        return "OK"

    @app.get("/v1/models")
    def models() -> dict:
        return {"data": [{"id": "scripted", "owned_by": "vllm"}]}

    @app.get("/served")
    def counts() -> dict:
        return served

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> JSONResponse:
        body = json.loads(await request.body())
        served["requests"] += 1
        if body["model"] != "scripted":
            return JSONResponse({"error": {"message": "no such model"}}, 404)
        name = request.headers.get("x-request-id") or by_words(tasks, body["messages"])
        if "x-request-id" in request.headers and {**body, **FIXED} != body:
            return JSONResponse({"error": {"message": "the model's own generation_config.json would decide"}}, 400)
        if named := [field for field in refuses if field in body]:
            return JSONResponse({"error": {"message": "not supported", "param": named[0]}}, 400)
        if flaky and served["requests"] % flaky == 0:
            return JSONResponse({"error": {"message": "overloaded"}}, 503, {"retry-after-ms": "10"})
        if delay:
            await asyncio.sleep(delay)
        if name == "seal-evaluation-probe":
            return JSONResponse(_choice("stop", content="Hello!")[1])
        task_id, sample, message = unquote(name).rsplit("/", 2)
        if message == "0":
            key = f"{task_id}/{sample}"
            served["by_task"][key] = served["by_task"].get(key, 0) + 1
        fault = "none" if odd or environment else fault_of(tasks[task_id].scenario)
        if task_id not in scripts:
            played = reference_of(environment, task_id, prompt_mode) if environment else None
            scripts[task_id] = played or script(tasks[task_id], prompt_mode, fault)
        messages = scripts[task_id]
        index = int(message)
        text = messages[index] if index < len(messages) else DONE
        finish = "stop"
        if odd and index == 1 and (answer := ODD[tasks[task_id].scenario % len(ODD)]):
            return JSONResponse(answer[1], answer[0])
        if index == 1 and (fault == "context" or (fault == "cut" and "max_tokens" in body)):
            return JSONResponse({"error": {"message": "This model's maximum context length is 100 tokens."}}, 400)
        if index == 1 and fault == "cut":  # a few tokens were left
            text, finish = text[:10], "length"
        said = {"content": text}
        if prompt_mode == MODE:
            if not body.get("tools") or any(message["role"] == "system" for message in body["messages"]):
                return JSONResponse({"error": {"message": "the tools are not where they belong"}}, 404)
            content, calls = read_message(text)
            said = {"content": content or None, "tool_calls": calls or None}
        choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": finish}
        read = sum(len(each.get("content") or "") // 4 for each in body["messages"])
        return JSONResponse(
            {"choices": [choice], "usage": {"completion_tokens": len(text) // 4, "prompt_tokens": read}}
        )

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--prompt-mode", default="bfcl_qwen_fc")
    parser.add_argument("--flaky", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--tasks")
    parser.add_argument("--odd", action="store_true")
    parser.add_argument("--refuses", nargs="*", default=[])
    parser.add_argument("--environment")
    options = parser.parse_args()
    if "=" in (options.environment or ""):
        options.environment, _, location = options.environment.partition("=")
        register(options.environment, location)
    app = make_app(*(value for name, value in vars(options).items() if name != "port"))
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)
