"""An OpenAI-compatible endpoint that answers the items of official suites from their references, with chosen faults.

``python suite_endpoint.py PORT [--bfcl DATA] [--tau2 DATA] [--flaky N] [--delay S]``, with the
data folders of the two packages. The item's number in its category chooses what happens:
see `fault_of`. ``POST /control`` sets ``down_after`` (after so many further requests
everything is answered 503; null: nothing is) and ``solo_plan`` (the telecom tasks whose
dialogues come next: their tickets do not tell them apart). A chat without tools gets "Done.".
"""

import argparse
import asyncio
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse

FAULTS = ("none", "wrong", "none", "malformed_once", "none", "refused", "bad_call", "none")


def fault_of(number: int) -> str:
    """Return the endpoint's fault on the item of this number."""
    return FAULTS[number % len(FAULTS)]


def passes(number: int) -> bool | None:
    """Return whether the item passes; None if it never gets an answer."""
    fault = fault_of(number)
    return None if fault == "refused" else fault in ("none", "malformed_once")


# BFCL: raw completions of prompts in Qwen's format.


class Bfcl:
    """The items of bfcl-eval by the text of their question."""

    def __init__(self, data: Path):
        self.items: dict[str, list[tuple[str, int, set[str], str]]] = defaultdict(list)
        self.broken: set[str] = set()
        for path in sorted(data.glob("BFCL_v4_*.json")):
            category = path.stem.removeprefix("BFCL_v4_")
            if category.startswith(("multi_turn", "format", "web")):
                continue
            answers = data / "possible_answer" / path.name
            truths = {each["id"]: each["ground_truth"] for each in _lines(answers)} if answers.is_file() else {}
            for number, entry in enumerate(_lines(path)):
                names = {function["name"] for function in entry.get("function", [])}
                truth = truths.get(entry["id"])
                right = _answer(category, truth) if category == "memory" else _calls(truth, names, category)
                question = entry["question"][0][-1]["content"]
                self.items[question].append((category, number, names, right))

    def answer(self, prompt: str) -> Any:
        """The text that answers a prompt, or a response that is not an answer."""
        question = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", prompt, re.DOTALL)[-1]
        offered = set(re.findall(r'"name": "([^"]+)", "description"', prompt))
        for category, number, names, right in self.items.get(question, ()):
            if names <= offered:
                return self._faulty(f"{category}_{number}", category, number, right, names)
        return "Understood."  # a dialogue that fills a memory

    def _faulty(self, key: str, category: str, number: int, right: str, names: set[str]) -> Any:
        fault = fault_of(number)
        if fault == "refused":
            return JSONResponse({"error": {"message": "overloaded"}}, 503, {"retry-after-ms": "1"})
        if fault == "malformed_once" and key not in self.broken:
            self.broken.add(key)
            return PlainTextResponse("<html>gateway</html>")
        if fault == "bad_call" or (fault == "wrong" and "irrelevance" in category):
            return (
                _call(min(names), {}) if names else '<tool_call>\n{"name": "archival_memory_list_keys"}\n</tool_call>'
            )
        return "I do not know." if fault == "wrong" else right


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _answer(category: str, truth: list[str]) -> str:
    return json.dumps({"answer": truth[0], "context": "It was said."})


def _calls(truth: list[dict] | None, names: set[str], category: str) -> str:
    if truth is None:
        return _call(min(names), {}) if category == "live_relevance" else "No tool fits."
    return "\n".join(_call(name, _first(given)) for each in truth for name, given in each.items())


def _first(given: dict[str, list]) -> dict[str, Any]:
    """The first accepted value of each parameter; optional ones are left out."""
    return {name: _plain(values[0]) for name, values in given.items() if values and "" not in values}


def _plain(value: Any) -> Any:
    """An accepted value; the fields of an object have accepted values of their own."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    accepted = {name: values if isinstance(values, list) else [values] for name, values in value.items()}
    return {name: _plain(values[0]) for name, values in accepted.items() if values and "" not in values}


def _call(name: str, arguments: dict) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


# tau2: chat completions with native tool calls, of the agent and of the simulated user.


class Tau2:
    """The tasks of tau2 by domain, and the agent's and the user's next message."""

    def __init__(self, data: Path):
        self.tasks: dict[str, list[dict]] = {}
        for domain in ("airline", "retail", "telecom"):
            folder = data / "tau2" / "domains" / domain
            base = set(json.loads((folder / "split_tasks.json").read_text())["base"])
            tasks = json.loads((folder / "tasks.json").read_text())
            self.tasks[domain] = [task for task in tasks if task["id"] in base]
        self.plan: list[str] = []
        self.current = ""

    def answer(self, messages: list[dict], tools: list[dict]) -> dict[str, Any]:
        """The next message of whoever asks."""
        system = messages[0]["content"]
        names = {tool["function"]["name"] for tool in tools}
        if not names and "<scenario>" not in system:
            return {"content": "Done."}
        if "done" in names and "<ticket>" in system:
            return self._solo(messages)
        if "<scenario>" in system:
            return self._user(system, messages)
        return self._agent(messages)

    def _solo(self, messages: list[dict]) -> dict[str, Any]:
        made = [message for message in messages if message["role"] == "assistant"]
        if not made:
            self.current = self.plan.pop(0)
        number, task = self._find("telecom", self.current)
        actions = task["evaluation_criteria"]["actions"] if passes(number) else []
        if fault_of(number) == "bad_call":
            return {"content": "I would rather talk."}
        if len(made) < len(actions):
            return _tool_call(actions[len(made)])
        return _tool_call({"name": "done", "arguments": {}})

    def _user(self, system: str, messages: list[dict]) -> dict[str, Any]:
        if len(messages) > 2:
            return {"content": "###STOP###"}
        system = " ".join(system.split())
        for domain, tasks in self.tasks.items():
            for task in tasks:
                told = task["user_scenario"]["instructions"]
                if all(" ".join(text.split()) in system for name, text in told.items() if text and name != "domain"):
                    return {"content": f"Hello. TASK<{domain}/{task['id']}>"}
        raise ValueError("an unknown user")

    def _agent(self, messages: list[dict]) -> dict[str, Any]:
        said = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
        domain, identity = re.findall(r"TASK<(\w+)/(.+?)>", said)[-1]
        number, task = self._find(domain, identity)
        criteria = task["evaluation_criteria"]
        actions = [each for each in criteria["actions"] or [] if each.get("requestor", "assistant") == "assistant"]
        done = sum(len(message.get("tool_calls") or ()) for message in messages if message["role"] == "assistant")
        if fault_of(number) == "bad_call":
            return {"tool_calls": [{**_tool_call(actions[0])["tool_calls"][0], "function": _BAD_FUNCTION}]}
        if passes(number) and done < len(actions):
            return _tool_call(actions[done])
        told = ", ".join(criteria.get("communicate_info") or []) if passes(number) else ""
        return {"content": f"That is all. {told}"}

    def _find(self, domain: str, identity: str) -> tuple[int, dict]:
        return next(each for each in enumerate(self.tasks[domain]) if each[1]["id"] == identity)

    def refuses(self, messages: list[dict]) -> bool:
        """Return whether the item of a dialogue never gets an answer from the agent."""
        said = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
        marks = re.findall(r"TASK<(\w+)/(.+?)>", said)
        return bool(marks) and "<scenario>" not in messages[0]["content"] and passes(self._find(*marks[-1])[0]) is None


_BAD_FUNCTION = {"name": "get_user_details", "arguments": "{not json"}


def _tool_call(action: dict) -> dict[str, Any]:
    function = {"name": action["name"], "arguments": json.dumps(action["arguments"])}
    return {"content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": function}]}


def make_app(bfcl: Bfcl | None, tau2: Tau2 | None, flaky: int, delay: float) -> FastAPI:
    """The endpoint; every flaky-th request is answered 503, each after delay seconds."""
    app = FastAPI()
    state: dict[str, Any] = {"requests": 0, "down_at": None}
    overloaded = JSONResponse({"error": {"message": "overloaded"}}, 503, {"retry-after-ms": "1"})

    def down() -> bool:
        return state["down_at"] is not None and state["requests"] >= state["down_at"]

    @app.get("/v1/models")
    def models() -> JSONResponse:
        return overloaded if down() else JSONResponse({"data": [{"id": "scripted"}]})

    @app.get("/health")
    def health() -> dict:
        return state

    @app.post("/control")
    async def control(request: Request) -> dict:
        values = json.loads(await request.body())
        if "down_after" in values:
            after = values["down_after"]
            state["down_at"] = None if after is None else state["requests"] + after
        if tau2 and "solo_plan" in values:
            tau2.plan = values["solo_plan"]
        return state

    async def faulty() -> bool:
        was_down = down()
        state["requests"] += 1
        await asyncio.sleep(delay)
        return was_down or bool(flaky and state["requests"] % flaky == 0)

    @app.post("/v1/completions")
    async def complete(request: Request) -> Any:
        body = json.loads(await request.body())
        if await faulty() or bfcl is None:
            return overloaded
        assert body["model"] == "scripted", body["model"]
        answer = bfcl.answer(body["prompt"])
        if not isinstance(answer, str):
            return answer
        choice = {"index": 0, "text": answer, "finish_reason": "stop", "logprobs": None}
        return {"id": "c", "object": "text_completion", "created": 0, "model": "scripted", "choices": [choice], **USAGE}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Any:
        body = json.loads(await request.body())
        if await faulty() or tau2 is None or tau2.refuses(body["messages"]):
            return overloaded
        message = {"role": "assistant", **tau2.answer(body["messages"], body.get("tools") or [])}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice], **USAGE}

    return app


USAGE = {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--bfcl", type=Path)
    parser.add_argument("--tau2", type=Path)
    parser.add_argument("--flaky", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    app = make_app(
        options.bfcl and Bfcl(options.bfcl), options.tau2 and Tau2(options.tau2), options.flaky, options.delay
    )
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)
