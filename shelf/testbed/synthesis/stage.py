"""The live simulators on which a path is sampled: operations look at them, call, and note what messages are about."""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import Toolbox, owners
from env_service.environments.kit.tasks import Outcome
from seal.method.diagnosis.results import reports_failure
from seal.records.benchmark import Category
from shelf.testbed.synthesis.path import Known, Login, PathCall, Slot, Style
from shelf.testbed.synthesis.values import Values

_NEEDS_LOGIN = re.compile("authenticat|logged in|log in")


class RejectedDraw(Exception):
    """The simulators, or the shape of the task, do not allow what was drawn: draw again."""


class Stage:
    """One task while it is sampled.

    kinds: what the task practises so far. finished: the classes from which the user has logged out.
    """

    def __init__(self, values: Values, category: Category, config: Mapping[str, Any]) -> None:
        task = Task("synthesis", category, 0, (), config, tuple(config), frozenset(), {}, ())
        self.values = values
        self.kinds: set[str] = set()
        self.finished: set[str] = set()
        self.login: Login | None = None
        self._toolbox = Toolbox(task)
        self._calls: list[PathCall] = []
        self._focus: dict[str, Any] = {}
        self._new: dict[str, Any] = {}

    def simulator(self, class_name: str) -> Any:
        """The live simulator of a class; operations only read it."""
        return self._toolbox.instances[class_name]

    # --- calls --------------------------------------------------------------------

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Make a call that must succeed and return its result; a login that it needs comes first."""
        outcome = self._run(tool, arguments)
        if _failed(tool, outcome) and self.login is None and _NEEDS_LOGIN.search(outcome.text):
            login = self._log_in(owners()[tool])
            self._calls += [PathCall(tool, arguments, succeeded=False), login]
            self.kinds.add("login")
            outcome = self._run(tool, arguments)
        if _failed(tool, outcome):
            raise RejectedDraw(outcome.text)
        self._calls.append(PathCall(tool, arguments))
        try:
            return json.loads(outcome.text)
        except ValueError:
            return outcome.text

    def fail(self, kind: str, tool: str, /, **arguments: Any) -> None:
        """Make the natural call that must fail; the task then practises `kind`."""
        if not _failed(tool, self._run(tool, arguments)):
            raise RejectedDraw(f"{tool} succeeded")
        self._calls.append(PathCall(tool, arguments, succeeded=False))
        self.kinds.add(kind)

    def take_calls(self) -> tuple[PathCall, ...]:
        """The calls since the last time."""
        calls, self._calls = tuple(self._calls), []
        return calls

    @property
    def called(self) -> bool:
        """True if calls were made since the last :meth:`take_calls`."""
        return bool(self._calls)

    def _run(self, tool: str, arguments: Mapping[str, Any]) -> Outcome:
        return self._toolbox.call(tool, copy.deepcopy(dict(arguments)))  # two tools change the list that they receive

    def credentials(self, class_name: str) -> tuple[Login, PathCall]:
        """Return the login of a user of a simulator, and the call that uses it; RejectedDraw without a login."""
        values, simulator = self.values, self.simulator(class_name)
        if class_name == "MessageAPI":
            login = Login(class_name, values.pick(simulator.user_map.values()))
            return login, PathCall("message_login", {"user_id": login.user})
        if class_name not in _LOGIN_TOOLS:
            raise RejectedDraw(f"{class_name} has no login")
        own = class_name == "TwitterAPI"
        user, password = (simulator.username, simulator.password) if own else (values.user_name(), values.secret())
        call = PathCall(_LOGIN_TOOLS[class_name], {"username": user, "password": password})
        return Login(class_name, user, password), call

    def _log_in(self, class_name: str) -> PathCall:
        self.login, call = self.credentials(class_name)
        if _failed(call.name, self._run(call.name, call.arguments)):
            raise RejectedDraw("login")
        return call

    # --- what messages are about --------------------------------------------------

    def focus(self, thing: str) -> Any:
        """Return the subject of the last clause about this kind of thing, or None."""
        return self._focus.get(thing)

    def mention(self, thing: str, value: Any, style: Style = "name") -> Slot:
        """Return a slot for a thing, which is in focus from now on."""
        known: Known = "new" if self._new.get(thing) == value else "before" if self._focus.get(thing) == value else ""
        if known == "new":
            self.kinds.add("results")
        self._focus[thing] = value
        return Slot(value, style, thing, known)

    def put_in_focus(self, thing: str, value: Any) -> None:
        """Let later clauses refer to this value."""
        self._focus[thing] = value

    def drop_focus(self, thing: str) -> None:
        """Later clauses must not refer to such a thing without naming it."""
        self._focus.pop(thing, None)

    def created(self, thing: str, identifier: Any) -> None:
        """Note that a result gave the id of a new thing, which no message has mentioned."""
        self._focus[thing] = self._new[thing] = identifier


_LOGIN_TOOLS = {"TwitterAPI": "authenticate_twitter", "TicketAPI": "ticket_login", "TradingBot": "trading_login"}


def _failed(tool: str, outcome: Outcome) -> bool:
    return bool(outcome.error) or reports_failure(tool, outcome.text)
