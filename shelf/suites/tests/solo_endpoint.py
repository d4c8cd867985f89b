"""An OpenAI-compatible endpoint that solves the tickets of `tau2_telecom` from the references, or does not.

``python solo_endpoint.py PORT [--answers oracle|silent|mixed] [--delay S] [--down-from N]``. A
request is recognised by its X-Request-Id ``task/sample/message``. `silent` ends each ticket at
once; `mixed` solves the attempts that `solves` names. From the N-th request on everything is
answered 503.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from zlib import crc32

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from env_service.environments.registry import get_environment

ANSWERS = ("oracle", "silent", "mixed")


def solves(answers: str, task: str, sample: int) -> bool:
    """Whether the endpoint solves an attempt at a ticket."""
    return answers == "oracle" or (answers == "mixed" and crc32(f"{task}/{sample}".encode()) % 3 > 0)


def make_app(answers: str, delay: float, down_from: int | None) -> FastAPI:
    """The endpoint."""
    app = FastAPI()
    environment = get_environment("tau2_telecom")
    served: dict[str, int] = {}
    requests = 0

    @app.get("/health")
    def health() -> str:
        return "OK"

    @app.get("/v1/models")
    def models() -> dict:
        return {"data": [{"id": "scripted"}]}

    @app.get("/served")
    def counts() -> dict:
        return served

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> JSONResponse:
        nonlocal requests
        requests += 1
        body = json.loads(await request.body())
        if down_from is not None and requests >= down_from:
            return JSONResponse({"error": {"message": "overloaded"}}, 503, {"retry-after-ms": "10"})
        await asyncio.sleep(delay)
        task, sample, message = request.headers["x-request-id"].split("/")
        if message == "0":
            served[f"{task}/{sample}"] = served.get(f"{task}/{sample}", 0) + 1
        calls = environment.reference(task)[0] if solves(answers, task, int(sample)) else ()
        texts = [environment.render("hermes", call) for call in calls]
        text = (*texts, environment.closing("hermes"))[int(message)]
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        read = sum(len(each["content"]) // 4 for each in body["messages"])
        usage = {"completion_tokens": len(text) // 4, "prompt_tokens": read}
        return JSONResponse({"choices": [choice], "usage": usage})

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--answers", choices=ANSWERS, default="mixed")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--down-from", type=int)
    options = parser.parse_args()
    app = make_app(options.answers, options.delay, options.down_from)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)
