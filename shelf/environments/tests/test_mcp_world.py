"""An MCP server as a world of the kit: its tools, its errors, its deadlines, and its verdict in the service."""

import gc
import time
from pathlib import Path

import psutil
import pytest
from mcp import StdioServerParameters

from env_service.client import ServiceClient, ServiceError
from env_service.environments.kit.tasks import Outcome
from env_service.local_service import local_service
from seal.system.paths import HOME
from shelf.environments.mcp_world import McpWorld
from shelf.environments.tests.list_environment import ListWorld
from tests.support.processes import commands

CALL = '<tool_call>{{"name": "{}", "arguments": {{"item": "{}"}}}}</tool_call>'


def servers() -> list[psutil.Process]:
    children = commands(psutil.Process().children())
    return [child for child, command, _ in children if "list_server.py" in " ".join(command)]


def nested(depth: int) -> list:
    return [nested(depth - 1)] if depth else []


def test_calls_reach_the_server_whose_faults_are_told_apart():
    world = ListWorld(["milk"], ["milk", "tea"], seconds=1.0)
    assert [tool["name"] for tool in world.documents()] == ["add_item", "remove_item", "show_list"]
    assert world.documents()[0]["parameters"]["required"] == ["item"]
    assert world.call("add_item", {"item": "tea"}) == Outcome("tea is on the list.")
    assert world.call("remove_item", {"item": "salt"}) == Outcome(
        "Error executing tool remove_item: that item is not on the list.", "execution"
    )
    for item in ("\ud83d", nested(300)):
        assert world.call("add_item", {"item": item}).error == "signature"
    assert world.check(0, []).passed and world.check(0, []).passed
    assert world.call("add_item", {"item": "wait"}) == Outcome("Error: add_item did not answer within 1 s.", "deadline")
    (process,) = servers()
    with pytest.raises(RuntimeError, match=r"The MCP server ended in a call of add_item\."):
        world.call("add_item", {"item": "end"})
    del world
    gc.collect()
    process.wait(timeout=60)
    deadline = time.monotonic() + 60
    while servers():
        assert time.monotonic() < deadline


def test_a_world_that_cannot_be_read_is_not_taken_for_one_in_another_state():
    with pytest.raises(RuntimeError, match="show_list"):
        ListWorld(["fog"], [], seconds=1.0).check(0, [])


class OtherWorld(McpWorld):
    def check(self, turn, calls):
        raise NotImplementedError


def test_a_world_without_a_check_cannot_be_made():
    with pytest.raises(TypeError, match="check"):
        McpWorld(StdioServerParameters(command="false"))


def test_a_server_that_does_not_start_is_one_sentence():
    for command in ("no-such-server", "false"):
        with pytest.raises(RuntimeError, match=f"^The MCP server {command} does not start: [^\n]+$"):
            OtherWorld(StdioServerParameters(command=command))


@pytest.mark.slow
def test_episodes_in_the_service_pass_fail_and_are_nobody_s_fault():
    path = f"{HOME}:{Path(__file__).parent}"
    location = "shelf.environments.tests.list_environment:ListEnvironment"
    reference = [CALL.format("remove_item", "milk"), CALL.format("add_item", "tea"), "Done."]

    def play(service: ServiceClient, name: str, messages: list[str]) -> dict:
        service.create("train", name)
        for message in messages:
            service.step(name, message)
        found = service.evaluate(name)
        service.release(name)
        return found

    with (
        local_service(BFCL_WORKERS="1", BFCL_ENVIRONMENTS=f"mcp_list={location}", PYTHONPATH=path) as url,
        ServiceClient(url, "mcp_list") as service,
    ):
        for number in range(2):
            assert play(service, f"right-{number}", reference)["labels"] == ["pass"]
        assert play(service, "left-out", reference[1:])["labels"] == ["state_mismatch"]
        assert play(service, "argument", [CALL.format("nope", 1), "Done."])["labels"] == ["invalid_tool_call"]
        with pytest.raises(ServiceError) as raised:
            play(service, "unread", [CALL.format("add_item", "fog"), "Done."])
        assert raised.value.cause == "environment_failed"
        assert play(service, "wait", [CALL.format("add_item", "wait"), *reference])["valid"]
        with pytest.raises(ServiceError, match="The MCP server ended in a call of add_item") as raised:
            play(service, "end", [CALL.format("add_item", "end")])
        assert raised.value.cause == "environment_failed"
        assert play(service, "after", reference)["valid"]
