"""The package's own verdict on telecom runs, from its evaluators over its own environment."""

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tau2.data_model.message import AssistantMessage, Message, ToolCall
from tau2.data_model.tasks import RewardType, Task
from tau2.domains.telecom.data_model import TelecomDB
from tau2.domains.telecom.environment import TelecomEnvironment
from tau2.domains.telecom.tools import TelecomTools
from tau2.domains.telecom.user_data_model import TelecomUserDB
from tau2.domains.telecom.user_tools import TelecomUserTools
from tau2.domains.telecom.utils import TELECOM_DB_PATH, TELECOM_USER_DB_PATH
from tau2.evaluator.evaluator_action import ActionEvaluator
from tau2.evaluator.evaluator_env import EnvironmentEvaluator

from env_service.environments.base import Call, Guard
from env_service.environments.registry import get_environment
from seal.method import labels
from shelf.authoring.tests.confusion import Judged

NAME = "tau2_telecom"
Calls = Sequence[Call]

_PARSED = pickle.dumps((TelecomDB.load(TELECOM_DB_PATH), TelecomUserDB.load(TELECOM_USER_DB_PATH)))


class Unvalidated(TelecomEnvironment):
    """Skips the check of tool names, which takes 30 ms an environment."""

    def validate_solo_mode(self) -> None:
        pass


def fresh(solo_mode: bool = False) -> TelecomEnvironment:
    """The package's environment over databases that are parsed once."""
    database, phone = pickle.loads(_PARSED)
    environment = Unvalidated("telecom", "", TelecomTools(database), TelecomUserTools(phone))
    environment.set_solo_mode(solo_mode)
    return environment


def package_verdict(task_id: str, calls: Calls) -> bool:
    """Return whether the package gives reward 1 to a run that makes these calls one by one and then stops."""
    task = Task.model_validate(get_environment(NAME)._task(task_id).data)
    environment, messages = fresh(solo_mode=True), list[Message]()
    state = task.initial_state
    environment.set_state(state.initialization_data, state.initialization_actions, [])
    for number, (name, arguments) in enumerate(calls):
        call = ToolCall(id=str(number), name=name, arguments=arguments, requestor="assistant")
        messages += [AssistantMessage(role="assistant", tool_calls=[call]), environment.get_response(call)]
    basis = set(task.evaluation_criteria.reward_basis)
    reward = EnvironmentEvaluator.calculate_reward(fresh, task, messages, solo_mode=True).reward
    if RewardType.ACTION in basis:
        reward *= ActionEvaluator.calculate_reward(task, messages).reward
    assert basis <= {RewardType.ENV_ASSERTION, RewardType.ACTION}
    return reward == 1.0


def evaluation(task_id: str, calls: Calls, done: bool = True) -> dict[str, Any]:
    """Our evaluation of the same run."""
    environment = get_environment(NAME)
    episode = environment.open(task_id, {"tool_prompt_mode": "compact"}, Guard())
    for call in calls:
        if episode.step(environment.render("compact", call), False)["is_terminated"]:
            return episode.evaluate({})
    episode.step(environment.closing("compact") if done else "I am finished.", False)
    return episode.evaluate({})


def with_one_left_out(calls: Calls) -> Iterator[Calls]:
    """The calls without each of them in turn."""
    for place in range(len(calls)):
        yield [*calls[:place], *calls[place + 1 :]]


@dataclass(frozen=True)
class FaultyRun:
    """A run with one fault. broken: the label that its definition gives it, "" where the state decides."""

    kind: str
    task_id: str
    calls: Calls
    broken: str = ""
    done: bool = True


def faults(task_id: str, seed: int) -> Iterator[FaultyRun]:
    """One fault of each kind that the task's reference has a place for."""
    environment, rng = get_environment(NAME), random.Random(f"{task_id}/{seed}")
    calls = list(environment.reference(task_id)[0])
    place = rng.randrange(len(calls))
    name, arguments = calls[place]
    before, after = calls[:place], calls[place + 1 :]
    yield FaultyRun("nothing", task_id, [], labels.MISSING_TOOL_CALL)
    yield FaultyRun("dropped", task_id, [*before, *after])
    yield FaultyRun("twice", task_id, [*before, (name, arguments), (name, arguments), *after])
    yield FaultyRun("invented tool", task_id, [*before, (f"{name}_now", arguments), *after], labels.INVALID_TOOL_CALL)
    unknown = (name, {**arguments, "verbosity": 2})
    yield FaultyRun("unknown argument", task_id, [*before, unknown, *after], labels.ARGUMENT_MISMATCH)
    yield FaultyRun("not ended", task_id, calls, labels.MISSING_TOOL_CALL, done=False)
    other = rng.choice(sorted(environment.writes - {name}))
    if not next(d for d in environment.documents(task_id) if d["name"] == other)["parameters"].get("required"):
        yield FaultyRun("other write", task_id, [*before, (other, {}), *after])
    texts = [key for key, value in arguments.items() if isinstance(value, str)]
    if texts:
        missing = (name, {key: value for key, value in arguments.items() if key != texts[0]})
        yield FaultyRun("missing argument", task_id, [*before, missing, *after], labels.ARGUMENT_MISMATCH)
        yield FaultyRun("error, given up", task_id, [*before, (name, {**arguments, texts[0]: "zz_nothing_zz"})])


def judged(fault: FaultyRun) -> Judged:
    """The label of a faulty run, beside the one that it must get."""
    found = evaluation(fault.task_id, fault.calls, fault.done)
    expected = fault.broken or _by_state(found)
    if fault.done and package_verdict(fault.task_id, fault.calls):
        expected = labels.PASS
    return Judged(fault.task_id, 0, fault.kind, expected, found["labels"][0], found["diagnosis"][0].reason)


def _by_state(found: dict[str, Any]) -> str:
    """The definition's label for a run whose calls are well formed and which misses the state."""
    writes = get_environment(NAME).writes
    (turn,) = found["evidence"]
    if turn.state_match is not False:
        return labels.MISSING_TOOL_CALL
    if any(call.name in writes and call.error is None for call in turn.calls):
        return labels.STATE_MISMATCH
    return labels.RECOVERY_FAILURE if any(call.error for call in turn.calls) else labels.MISSING_TOOL_CALL
