"""An OpenAI-compatible endpoint that plays AgentDojo's user tasks from their references, with chosen faults.

``python dojo_endpoint.py PORT REFERENCES [--answers oracle|silent|mixed] [--delay S]``. A request is
recognised by its X-Request-Id ``suite/task/sample/message``. `mixed` follows `fault_of`. ``POST
/control`` sets ``down_after``: after so many further requests everything is answered 503; null:
nothing is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

FAULTS = ("none", "silent", "none", "bad_call", "none", "context", "none", "no_tool")
USAGE = {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}


def fault_of(task: str) -> str:
    """What `mixed` does with a task, by its number."""
    return FAULTS[int(task.rsplit("_", 1)[1]) % len(FAULTS)]


def passes(task: str) -> bool:
    """Whether a task passes at `mixed`, unless doing nothing passes it."""
    return fault_of(task) == "none"


def message_of(reference: dict[str, Any], fault: str, number: int) -> dict[str, Any] | None:
    """The message of this number (from 0); None for a dialogue that does not fit the context."""
    if fault == "context":
        return None
    if fault == "bad_call":
        return _call("any", "{not json")
    calls = {"none": reference["calls"], "silent": [], "no_tool": [["no_such_tool", {}]]}[fault]
    if number < len(calls):
        name, arguments = calls[number]
        return _call(name, json.dumps(arguments))
    return {"role": "assistant", "content": reference["output"] if fault == "none" else "Done."}


def _call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


def make_app(references: dict[str, Any], answers: str, delay: float) -> FastAPI:
    """The endpoint."""
    app = FastAPI()
    state: dict[str, Any] = {"requests": 0, "down_at": None, "first": {}}
    overloaded = JSONResponse({"error": {"message": "overloaded"}}, 503, {"retry-after-ms": "1"})

    def down() -> bool:
        return state["down_at"] is not None and state["requests"] >= state["down_at"]

    @app.get("/health")
    def health() -> dict:
        return state

    @app.get("/v1/models")
    def models() -> JSONResponse:
        return overloaded if down() else JSONResponse({"data": [{"id": "scripted"}]})

    @app.post("/control")
    async def control(request: Request) -> dict:
        after = json.loads(await request.body())["down_after"]
        state["down_at"] = None if after is None else state["requests"] + after
        return state

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Any:
        body = json.loads(await request.body())
        if down():
            return overloaded
        state["requests"] += 1
        await asyncio.sleep(delay)
        assert body["model"] == "scripted" and body["messages"][0]["role"] == "system" and "temperature" in body
        suite, task, sample, number = request.headers["x-request-id"].split("/")
        if number == "0":
            key = f"{suite}/{task}/{sample}"
            state["first"][key] = state["first"].get(key, 0) + 1
        fault = {"oracle": "none", "silent": "silent", "mixed": fault_of(task)}[answers]
        message = message_of(references[f"{suite}/{task}"], fault, int(number))
        if message is None:
            return JSONResponse({"error": {"message": "This model's maximum context length is 100 tokens."}}, 400)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice], **USAGE}

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("references", type=Path)
    parser.add_argument("--answers", choices=("oracle", "silent", "mixed"), default="mixed")
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    known = json.loads(options.references.read_text(encoding="utf-8"))
    uvicorn.run(
        make_app(known, options.answers, options.delay),
        host="127.0.0.1",
        port=options.port,
        log_level="warning",
        access_log=False,
    )
