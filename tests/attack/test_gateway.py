"""The gateway of the harnesses: no rollout reaches another one, and nothing that a harness sends or starts stays."""

import asyncio
import json
import socket
import sys
import time
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp
import psutil
from hypothesis import given, settings

from seal.rollout.chains import OutOfBudget, Policy
from seal.rollout.dialogue import Dialogue
from seal.rollout.gateway import MAX_BODY_BYTES, Session
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
TOOLS = [[{"name": "ls", "description": "Lists.", "parameters": {"type": "dict", "properties": {}}}]]


class Refusing:
    """In the place of a chain's speaker: the policy has no budget left."""

    limit = "max_steps"
    sampled = ()

    async def say(self, dialogue: Dialogue) -> None:
        json.dumps(dialogue.messages)


async def opened() -> Session:
    """A rollout whose policy has no budget left."""
    session = Session(Policy(lambda number: Refusing(), "hermes", None))
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    native = {"tools": TOOLS, "instructions": "", "cues": ""}
    await session.open(Dialogue(messages=messages, info={"native": native}), 60)
    return session


async def status(method: str, url: str, key: str | None = None, **options: object) -> int:
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
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
        for key in (None, "", "x", forged, "ключ", f"{one.key} {other.key}", one.key.split("-")[0]):
            assert await status("GET", models, key.encode("utf-8").decode("latin-1") if key else key) == 401, key
            assert await status("GET", f"{base.removesuffix('/v1')}/{key}/task") in (401, 404)
        assert [await status("GET", models, each.key) for each in (one, other)] == [200, 200]
        assert [await status("GET", each.task.task_url) for each in (one, other)] == [200, 200]
        await one.close()
        assert await status("GET", models, one.key) == 410
        assert await status("GET", one.task.task_url) == 410
        assert await status("POST", one.task.mcp_url, json={}) == 410
        assert await status("GET", models, other.key) == 200
        await other.close()

    asyncio.run(attack())


def test_a_body_of_any_size_or_shape_gets_a_sentence():
    async def attack() -> None:
        session = await opened()
        chat, key = f"{session.task.base_url}/chat/completions", session.key
        assert await status("POST", chat, key, data=b"x" * 50_000_000) == 413
        assert await status("POST", chat, key, data=b"[" * (MAX_BODY_BYTES - 1)) == 400
        assert await status("POST", session.task.task_url, json={"text": 3}) == 400
        assert await status("PUT", chat, key, json=CHAT) == 404
        assert await status("POST", chat, key, json=CHAT) == 400  # out of budget, which is said once
        assert session.events.get_nowait().value == "max_steps"
        await session.close()

    asyncio.run(attack())


@settings(max_examples=400, deadline=None)
@given(body=changed(CHAT))
def test_no_request_breaks_the_policy(body):
    async def attack() -> None:
        session = Session(Policy(lambda number: Refusing(), "hermes", None))
        with suppress(ValueError, OutOfBudget):
            await session.model.complete(body)

    if isinstance(body, dict):
        asyncio.run(attack())


def test_half_open_connections_hold_nobody_up():
    async def attack() -> None:
        session = await opened()
        parts = urlsplit(session.task.base_url)
        stuck = [socket.create_connection((parts.hostname, parts.port)) for _ in range(300)]
        for number, each in enumerate(stuck):
            each.send(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 90\r\n\r\n{"[: 3 + number])
        before = time.monotonic()
        assert await status("GET", f"{session.task.base_url}/models", session.key) == 200
        assert time.monotonic() - before < 5
        await session.close()
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
