"""The official client plays episodes over the adapter: what the service answers, and its verdict to the letter."""

import json
import sys
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.types import ToolListChangedNotification
from seal_mcp import __main__ as command
from seal_mcp.episode import ENDED, episode
from seal_mcp.server import RESULT_URI, USER, server

from env_service.client import ServiceClient
from env_service.environments import registry
from env_service.environments.base import Call
from env_service.local_service import local_service
from seal.system.paths import HOME
from shelf.authoring.scaffold import write_package

TOKEN = "a-token"
CASES = [("bfcl", f"multi_turn_{kind}_1") for kind in ("base", "miss_func", "miss_param", "long_context")]
CASES += [("chores", "train-0")]
REVEALING = "multi_turn_miss_func_1"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A guarded service of the benchmark and an environment of the kit."""
    folder = tmp_path_factory.mktemp("environments") / "chores"
    write_package("chores", folder)
    location = "chores_env.environment:ChoresEnvironment"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BFCL_TOKEN", TOKEN)
        patch.syspath_prepend(str(folder))
        registry.register("chores", location)
        path = f"{HOME}:{folder}"
        with local_service(BFCL_WORKERS="1", BFCL_ENVIRONMENTS=f"chores={location}", PYTHONPATH=path) as running:
            yield running
        registry._ADDED.pop("chores")


def reference(environment: str, task: str) -> Sequence[Sequence[Call]]:
    return registry.get_environment(environment).reference(task)


@asynccontextmanager
async def agent(url: str, environment: str, task: str, **options: Any) -> AsyncIterator[Client]:
    """The official client of an episode's server, in this process."""
    with ServiceClient(url, environment) as service, episode(service, task, {"split": "train"}) as played:
        async with Client(server(played), **options) as client:
            yield client


async def played(client: Client, turns: Sequence[Sequence[Call]]) -> tuple[list[str], dict[str, Any]]:
    """Return the tools' answers to the calls, turn by turn, and the result."""
    texts = [(await client.call_tool(USER)).content[0].text]
    for calls in turns:
        texts += [(await client.call_tool(*call)).content[0].text for call in calls]
        texts.append((await client.call_tool(USER, {"answer": "Done."})).content[0].text)
    (content,) = (await client.read_resource(RESULT_URI)).contents
    return texts, json.loads(content.text)


def direct(url: str, environment: str, task: str) -> tuple[list[str], dict[str, Any]]:
    """The same episode by the service's own protocol."""
    rules, name = registry.get_environment(environment), uuid.uuid4().hex
    with ServiceClient(url, environment) as service:
        texts = [service.create(task, name, {"split": "train"})["state"][-1]["content"]]
        for calls in rules.reference(task):
            for message in (*(rules.render(rules.formats[0], call) for call in calls), "Done."):
                texts.append(service.step(name, message)["state"][0]["content"])
        evaluation = service.evaluate(name)
        service.release(name)
    return texts, evaluation


@pytest.mark.parametrize(("environment", "task"), CASES)
def test_the_reference_passes_and_every_answer_is_the_service_s(url, environment, task):
    async def play():
        async with agent(url, environment, task) as client:
            return await played(client, reference(environment, task))

    texts, result = anyio.run(play)
    expected, evaluation = direct(url, environment, task)
    assert (result["reward"], result["ended"], result["valid"]) == (1.0, True, True)
    assert {name: result[name] for name in evaluation} == json.loads(json.dumps(evaluation))
    assert texts[0].endswith(expected[0]) and texts[-1] == ENDED
    for text, whole in zip(texts[1:-1], expected[1:-1], strict=True):
        assert whole in (text, f"<tool_response>\n{text}\n</tool_response>")


@pytest.mark.parametrize(
    ("environment", "task", "turns", "label"),
    [
        ("bfcl", "multi_turn_base_1", lambda turns: [[], *turns[1:]], "missing_tool_call"),
        ("bfcl", "multi_turn_base_1", lambda turns: [[("nope", {"a": 1})], *turns[1:]], "invalid_tool_call"),
        ("chores", "train-0", lambda turns: [[("add_item", {"item": "</tool_call>"})], turns[1]], "state_mismatch"),
        ("chores", "train-0", lambda turns: [[("add_item", {"things": 1})], turns[1]], "argument_mismatch"),
    ],
)
def test_a_wrong_play_fails_with_its_label(url, environment, task, turns, label):
    async def play():
        async with agent(url, environment, task) as client:
            return await played(client, turns(reference(environment, task)))

    _, result = anyio.run(play)
    assert result["reward"] == 0.0 and any(found.startswith(label) for found in result["labels"])


def test_the_user_waits_for_an_answer_and_a_call_without_one_ends_no_turn(url):
    async def play():
        async with agent(url, "chores", "train-0") as client:
            await client.call_tool(USER)
            waits = await client.call_tool(USER)
            return waits, await played(client, reference("chores", "train-0"))

    waits, (_, result) = anyio.run(play)
    assert waits.is_error and result["reward"] == 1.0


def test_an_environment_whose_first_format_lists_no_documents_is_played_too(url):
    params = {"split": "train", "tool_prompt_mode": "compact"}
    with ServiceClient(url, "chores") as service, episode(service, "train-0", params) as played:
        first = played.next_message(None)
        assert first.text.endswith(registry.get_environment("chores").load()[0].users[0])
        assert [tool["name"] for tool in played.tools] == ["add_item", "remove_item", "show_list"]
        for calls in reference("chores", "train-0"):
            texts = [played.call(*call).text for call in calls]
            assert not any("tool_response" in text for text in texts)
            played.next_message("Done.")
        assert played.result()["reward"] == 1.0


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_tools_that_a_turn_reveals_are_announced_and_listed(url, mode):
    async def play():
        announced = anyio.Event()

        async def heard(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                announced.set()

        async def names(client: Client) -> set[str]:
            return {tool.name for tool in (await client.list_tools()).tools}

        async with agent(url, "bfcl", REVEALING, mode=mode, message_handler=heard) as client:
            async with anyio.create_task_group() as group:
                if mode == "auto":
                    await group.start(listen, client, announced)
                before = await names(client)
                turns = reference("bfcl", REVEALING)
                await played(client, turns)
                with anyio.fail_after(10):
                    await announced.wait()
                group.cancel_scope.cancel()
            return before, await names(client), {name for calls in turns for name, _ in calls}

    before, after, needed = anyio.run(play)
    assert not needed <= before and needed <= after and before < after


async def listen(client: Client, announced: anyio.Event, *, task_status: Any) -> None:
    async with client.listen(tools_list_changed=True) as events:
        task_status.started()
        async for _ in events:
            announced.set()


def test_schemas_are_json_schema_and_what_the_service_would_refuse_reaches_it(url):
    async def play():
        async with agent(url, "bfcl", "multi_turn_base_1") as client:
            tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            early = await client.call_tool(USER, {"answer": "Done."})
            with pytest.raises(MCPError, match="once the conversation has ended"):
                await client.read_resource(RESULT_URI)
            return tools, early, await client.call_tool("cd", {"folder": 1})

    tools, early, refused = anyio.run(play)
    assert tools["cd"]["type"] == "object" and "description" in tools["cd"]["properties"]["folder"]
    assert not {"dict", "float", "any"} & {part for text in tools.values() for part in json.dumps(text).split('"')}
    assert early.is_error and refused.is_error


def test_a_client_that_leaves_early_has_its_result_and_no_open_episode(url, tmp_path: Path):
    out, paths = tmp_path / "result.json", f"{HOME}:{Path(command.__file__).parents[1]}"
    variables = {"SEAL_URL": url, "BFCL_TOKEN": TOKEN, "PYTHONPATH": paths}
    arguments = ["-m", "seal_mcp", "--task", "multi_turn_base_1", "--out", str(out)]

    async def play():
        async with Client(StdioServerParameters(command=sys.executable, args=arguments, env=variables)) as client:
            assert (await client.call_tool(USER)).content[0].text
            return open_episodes(url)

    assert (anyio.run(play), open_episodes(url)) == (1, 0)
    result = json.loads(out.read_text())
    assert (result["reward"], result["ended"], result["stop"]) == (0.0, False, "open")


def open_episodes(url: str) -> int:
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return int(next(line for line in lines if "episodes_open " in line).split()[1])


@pytest.mark.parametrize(
    ("options", "token", "sentence"),
    [
        (["--task", "multi_turn_base_1"], "another", "Send the service's token: "),
        (["--task", "nope"], TOKEN, "task_id 'nope' is unknown; ids of bfcl look like multi_turn_base_0."),
        (["--task", "x", "--environment", "nope"], TOKEN, "env_type 'nope' is unknown; choose one of "),
        (["--task", "x", "--params", "[1]"], TOKEN, "--params is '[1]': write a JSON object"),
        (["--task", "x", "--params", '{"levels": 1}', "--environment", "chores"], TOKEN, "task_id 'x' is unknown"),
        (["--task", "multi_turn_base_1", "--params", '{"tool_prompt_mode": "toolace_fc"}'], TOKEN, "This format has"),
        (["--task", "x", "--url", "http://127.0.0.1:1"], TOKEN, "No environment service answers at "),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(url, options, token, sentence, monkeypatch, capsys):
    monkeypatch.setenv("SEAL_URL", url)
    monkeypatch.setenv("BFCL_TOKEN", token)
    monkeypatch.setattr(sys, "argv", ["seal-mcp", *options])
    assert command.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"seal-mcp: {sentence}")
    assert token != TOKEN or open_episodes(url) == 0
