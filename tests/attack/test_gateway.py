"""The gateway of the harnesses: no rollout reaches another one, and nothing that a harness sends or starts stays."""

import asyncio
import json
import socket
import sys
import time
from contextlib import suppress
from types import SimpleNamespace
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seal.rollout.dialogue import Dialogue
from seal.rollout.harness.chains import OutOfBudget, Policy
from seal.rollout.harness.dialect import anthropic, chat, responses
from seal.rollout.harness.gateway import MAX_BODY_BYTES, shared_gateway
from seal.rollout.harness.sessions import Session
from seal.system.net import is_loopback
from tests.attack.odd import changed
from tests.support.rollout_play import ScriptedEngine, roll_out

FORKING = f"seal.rollout.harness=[{sys.executable},tests/support/forking.py]"
CHAT = {
    "model": "policy",
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "ls", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "a b"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "ls", "description": "", "parameters": {"type": "object"}}}],
    "max_tokens": 4,
    "n": 1,
    "stream": False,
}
WRONG = (
    {"messages": []},
    {"messages": [{"role": 3, "content": ""}]},
    {"messages": [{"role": "user", "content": 0}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
    {"messages": [{"role": "assistant", "tool_calls": 0}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1, "arguments": "{}"}}]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "ls", "arguments": "{"}}]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "ls", "arguments": '"\\ud800"'}}]}]},
    {"tools": {}},
    {"tools": [{"type": "function", "function": {"name": "ls", "description": 0}}]},
    {"tools": [{"type": "function", "function": {"name": "ls", "parameters": {"properties": []}}}]},
    {"n": 2},
    {"max_tokens": 0},
    {"max_completion_tokens": True},
    {"stream": "no"},
    {"model": "a-judge"},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
    {"response_format": {"type": "json_object"}},
    {"functions": [{"name": "ls"}]},
    {"messages": [{"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}}]},
    {"messages": [{"role": "assistant", "content": None, "refusal": "No."}]},
    {"messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]},
    {"messages": [{"role": "assistant", "audio": {"id": "a"}}]},
    {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "a"}}]}]},
    {"tools": [{"type": "custom", "custom": {"name": "ls"}}]},
    {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
    {"web_search_options": {}},
    {"audio": {"voice": "a", "format": "wav"}, "modalities": ["text", "audio"]},
    {"logprobs": 1},
)
LS = {"type": "object", "properties": {}}
MESSAGES = {
    "model": "policy",
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "ls", "input": {"a": True}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "a"}],
                    "is_error": True,
                },
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "tools": [{"type": "custom", "name": "ls", "description": "", "input_schema": LS}],
    "tool_choice": {"type": "auto"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "max_tokens": 4,
    "stream": False,
}
WRONG_MESSAGES = (
    {"messages": []},
    {"messages": [{"role": "user", "content": 0}]},
    {"messages": [{"role": "tool", "content": "a"}]},
    {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]}]},
    {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "b"}]}]},
    {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": "{}"}]}]},
    {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    {"tools": [{"name": "ls"}]},
    {"system": 3},
    {"max_tokens": 0},
    {"model": "claude-sonnet"},
    {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "none"}},
    {"tool_choice": {"type": "tool", "name": "ls"}},
    {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    {"output_format": {"type": "json_schema", "schema": {}}},
    {"messages": [{"role": "user", "content": []}], "system": ""},
    {"mcp_servers": [{"type": "url", "url": "http://a", "name": "a"}]},
    {"context_management": {"edits": [{}]}},
    {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
    {"thread": {"type": "continue", "previous_message_id": "msg_1"}},
    {"compaction": {"instructions": ""}},
    {"compaction": {}},
    {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{}]}]}]},
    {"messages": [{"role": "user", "content": [{"type": "compaction", "content": "a"}]}]},
)
RESPONSES = {
    "model": "policy",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "id": "f", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "a b"},
    ],
    "tools": [{"type": "function", "name": "ls", "description": "", "parameters": LS, "strict": True}],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "include": ["message.output_text.logprobs"],
    "max_output_tokens": 4,
    "store": True,
    "stream": False,
}
WRONG_RESPONSES = (
    {"input": [], "instructions": None},
    {"input": 0},
    {"input": [{"role": "tool", "content": "a"}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": ""}]}]},
    {"input": [{"type": "computer_call"}]},
    {"input": [{"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{"}]},
    {"input": [{"type": "item_reference", "id": "msg_1"}]},
    {"previous_response_id": "resp_1"},
    {"tools": [{"type": "web_search"}]},
    {"max_output_tokens": 0},
    {"model": "gpt-5"},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "name": "ls"}},
    {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}}}},
    {"background": True},
    {"conversation": "conv_1"},
    {"prompt": {"id": "p"}},
)
DIALECTS = {
    "chat/completions": (chat.Request, CHAT, WRONG),
    "messages": (anthropic.Request, MESSAGES, WRONG_MESSAGES),
    "responses": (responses.Request, RESPONSES, WRONG_RESPONSES),
}
TOOLS = [[{"name": "ls", "description": "Lists.", "parameters": {"type": "dict", "properties": {}}}]]


class Refusing:
    """In the place of a chain's speaker: the policy has no budget left."""

    limit = "max_steps"
    stream = SimpleNamespace(sampled=())

    async def say(self, dialogue: Dialogue, most: int | None) -> None:
        json.dumps(dialogue.messages)


async def opened() -> Session:
    """A rollout whose policy has no budget left."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    native = {"tools": TOOLS, "instructions": "", "cues": ""}
    dialogue = Dialogue(messages=messages, info={"native": native})
    return Session(shared_gateway().sessions, dialogue, Policy(lambda number: Refusing(), "hermes", None), 60)


async def status(method: str, url: str, key: str | None = None, **options: object) -> int:
    headers = {"Authorization": f"bearer {key}"} if key is not None else {}
    async with aiohttp.ClientSession(headers=headers) as client, client.request(method, url, **options) as answer:
        if answer.status >= 400:
            assert (await answer.json())["error"]["message"], "a refusal is a sentence"
        return answer.status


def test_only_a_rollouts_own_key_opens_it():
    async def attack() -> None:
        one, other = await opened(), await opened()
        base, models = one.task.base_url, f"{one.task.base_url}/models"
        assert is_loopback(urlsplit(base).hostname)
        forged = one.key[:-1] + ("0" if one.key[-1] != "0" else "1")
        for key in (None, "", "x", forged, "ключ", f"{one.key} {other.key}", one.key[:-1]):
            assert await status("GET", models, key.encode("utf-8").decode("latin-1") if key else key) == 401, key
            assert await status("GET", f"{base.removesuffix('/v1')}/{key}/task") in (401, 404)
        assert [await status("GET", models, each.key) for each in (one, other)] == [200, 200]
        assert await status("GET", models, headers={"x-api-key": one.key}) == 200
        assert await status("GET", f"{models}/policy", one.key) == 200
        assert await status("GET", f"{models}/another", one.key) == 404
        for path in ("v1/messages", "messages"):
            url = f"{one.task.anthropic_base_url}/{path}"
            assert await status("POST", url, json=MESSAGES, headers={"x-api-key": forged}) == 401
            assert await status("POST", url, json={}, headers={"x-api-key": one.key}) == 400
        assert [await status("GET", each.task.task_url) for each in (one, other)] == [200, 200]
        for method in ("GET", "DELETE"):  # as JavaScript's MCP client: a stream would break off with a traceback
            assert await status(method, one.task.mcp_url, headers={"Accept": "text/event-stream"}) == 405
        one.close()
        assert await status("GET", models, one.key) == 410
        assert await status("GET", one.task.task_url) == 410
        assert await status("POST", one.task.mcp_url, json={}) == 410
        assert await status("GET", models, other.key) == 200
        other.close()

    asyncio.run(attack())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_of_any_size_or_shape_gets_a_sentence(dialect):
    _, good, wrong = DIALECTS[dialect]

    async def attack() -> None:
        session = await opened()
        url, key = f"{session.task.base_url}/{dialect}", session.key
        assert await status("POST", url, key, data=b"x" * 50_000_000) == 413
        assert await status("POST", url, key, data=b"[" * (MAX_BODY_BYTES - 1)) == 400
        for changes in wrong:
            assert await status("POST", url, key, json=good | changes) == 400, changes
        assert await status("PUT", url, key, json=good) == 404
        assert await status("POST", session.task.task_url, json={"text": 3}) == 400
        assert session.task.events.empty()
        assert await status("POST", url, key, json=good) == 400  # out of budget, which is said once
        assert session.task.events.get_nowait().value == "max_steps"
        session.close()

    asyncio.run(attack())


@settings(max_examples=400)
@given(data=st.data(), dialect=st.sampled_from([*DIALECTS]), form=st.sampled_from(("hermes", "compact")))
def test_no_request_breaks_the_policy(data, dialect, form):
    read, good, _ = DIALECTS[dialect]
    with suppress(ValidationError, OutOfBudget):
        request = read.model_validate_json(json.dumps(data.draw(changed(good))), context={})
        asyncio.run(Policy(lambda number: Refusing(), form, None).complete(request.asked()))


def test_half_open_connections_hold_nobody_up():
    async def attack() -> None:
        session = await opened()
        parts = urlsplit(session.task.base_url)
        stuck = [socket.create_connection((parts.hostname, parts.port)) for _ in range(300)]
        for number, each in enumerate(stuck):
            each.send(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 90\r\n\r\n{"[: 3 + number])
        before = time.monotonic()
        assert await status("GET", f"{session.task.base_url}/models", session.key) == 200
        assert time.monotonic() - before < 30
        session.close()
        for each in stuck:
            each.close()

    asyncio.run(attack())


def test_what_a_command_starts_ends_with_its_rollout(url, tmp_path):
    before = {process.pid for process in psutil.process_iter()}
    ((_, record),) = roll_out(
        [url], ScriptedEngine(("Done.",)), FORKING, "seal.rollout.attempts=1", f"seal.run_dir={tmp_path}"
    )
    assert record.infra == "harness" and "exit code 1" in record.infra_message
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.pid not in before and "time.sleep(600)" in " ".join(process.info["cmdline"] or ())
    ]
    assert left == []
