"""One telecom episode: the provider's systems and the customer's phone, and the package's two evaluators over them."""

import inspect
import json
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from env_service.environments.kit.tasks import Check, Outcome, ToolTask
from seal.method.diagnosis.evidence import CallEvidence
from shelf.environments.tau2.package import Response, State, Telecom, pristine, signatures, unmatched


class TelecomWorld:
    """The package's environment in the initial state of a task. solo: the agent also has the phone's tools."""

    solo = True

    def __init__(self, task: ToolTask) -> None:
        """Start from a copy of the task's state."""
        self._criteria = task.data["evaluation_criteria"]
        actions = task.data["initial_state"]["initialization_actions"] or ()
        self._telecom = Telecom(_initial(json.dumps(actions)), self.solo)

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run a tool of either side."""
        return self._outcome(name, arguments, "assistant")

    def _outcome(self, name: str, arguments: dict[str, Any], who: str) -> Outcome:
        return outcome(self._telecom.respond(name, arguments, who), signatures()[name], arguments)

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        """Combine the package's assertions with its comparison of actions, if the task's reward includes it."""
        state = Telecom(self._telecom.state(), self.solo).holds(self._criteria["env_assertions"] or ())
        if "ACTION" not in self._criteria["reward_basis"]:
            return Check(state_match=state)
        absent = unmatched(self._criteria["actions"], ((call.name, call.arguments) for call in calls))
        return Check(state_match=state, response_match=not absent, absent=absent)


@lru_cache(maxsize=512)
def _initial(actions: str) -> State:
    """The state that a task's initial actions, given as JSON, leave: made once per process while it is in use."""
    telecom = Telecom(pristine())
    telecom.prepare(json.loads(actions))
    return telecom.state()


def outcome(answer: Response, method: Callable[..., Any], arguments: dict[str, Any]) -> Outcome:
    """The outcome of a call of a tool with this method; the package flags errors explicitly."""
    if not answer.error:
        return Outcome(answer.text)
    try:
        _signature(method).bind(**arguments)
    except TypeError:
        return Outcome(answer.text, "signature")
    return Outcome(answer.text, "execution")


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)
