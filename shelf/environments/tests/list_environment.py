"""An environment of the kit whose world is an MCP server."""

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from mcp import StdioServerParameters

from env_service.environments.base import Document
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import Check, ToolTask
from seal.method.diagnosis.evidence import CallEvidence
from shelf.environments.mcp_world import McpWorld


def started(*items: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("list_server.py")), *items])


class ListWorld(McpWorld):
    def __init__(self, items: Sequence[str], wanted: Sequence[str], seconds: float = 5.0) -> None:
        super().__init__(started(*items), seconds)
        self._wanted = ", ".join(sorted(wanted))

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        return Check(state_match=self.read("show_list") == self._wanted)


class ListEnvironment(ToolEnvironment):
    name = "mcp_list"
    writes = frozenset({"add_item", "remove_item"})
    rule = "One task is on each side."

    def load(self) -> Sequence[ToolTask]:
        calls = (("remove_item", {"item": "milk"}), ("add_item", {"item": "tea"}))
        data = {"items": ["milk", "salt"], "wanted": ["salt", "tea"]}
        users = ("Replace milk by tea.",)
        return [ToolTask(side, "replace", side, side, users, (calls,), data) for side in ("train", "eval")]

    @cached_property
    def _documents(self) -> Sequence[Document]:
        return ListWorld([], []).documents()

    def tools(self, task: ToolTask) -> Sequence[Document]:
        return self._documents

    def world(self, task: ToolTask) -> ListWorld:
        return ListWorld(**task.data)

    def data_hash(self) -> str:
        return "0"
