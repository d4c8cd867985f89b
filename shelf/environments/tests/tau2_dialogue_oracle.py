"""The package's own verdict on dialogues with a user, from its evaluators over its own environments."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from tau2.data_model.message import AssistantMessage, Message, ToolCall, UserMessage
from tau2.data_model.tasks import RewardType, Task
from tau2.environment.environment import Environment
from tau2.evaluator.evaluator_action import ActionEvaluator
from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
from tau2.evaluator.evaluator_env import EnvironmentEvaluator

from env_service.environments.base import Guard
from env_service.environments.kit.tool_calls import entry, write_message
from env_service.environments.registry import get_environment, register
from shelf.environments.tau2.package import AIRLINE, RETAIL, Domain, unpickled
from shelf.environments.tests import tau2_oracle

DIALOGUES = "shelf.environments.tau2.dialogues"
for _name, _class in (("airline", "Airline"), ("retail", "Retail"), ("telecom_user", "TelecomUser")):
    register(f"tau2_{_name}", f"{DIALOGUES}:{_class}Environment")


class Event(NamedTuple):
    """What one side does: a call, or a text to the other side."""

    who: Literal["assistant", "user"]
    text: str = ""
    name: str = ""
    arguments: Mapping[str, Any] = MappingProxyType({})


STOP = Event("user", "Thanks! ###STOP###")
Run = Sequence[Event]


@cache
def _parsed(domain: Domain) -> bytes:
    return pickle.dumps(domain.database.load(domain.files[0]))


def _records(domain: Domain, solo_mode: bool = False) -> Environment:
    return Environment(domain.name, "", domain.tools(unpickled(_parsed(domain))))


CONSTRUCTORS: dict[str, Callable[..., Environment]] = {
    "tau2_airline": partial(_records, AIRLINE),
    "tau2_retail": partial(_records, RETAIL),
    "tau2_telecom_user": tau2_oracle.fresh,
}


def data(name: str, task_id: str) -> dict[str, Any]:
    """The task as the package's file has it."""
    return get_environment(name)._task(task_id).data


def package_verdict(name: str, task_id: str, run: Run) -> bool:
    """Return whether the package gives reward 1 to a dialogue that its user ended."""
    task, constructor = Task.model_validate(data(name, task_id)), CONSTRUCTORS[name]
    environment, messages = constructor(), list[Message]()
    if state := task.initial_state:
        environment.set_state(state.initialization_data, state.initialization_actions, [])
    for number, event in enumerate(run):
        said = AssistantMessage if event.who == "assistant" else UserMessage
        if not event.name:
            messages.append(said(role=event.who, content=event.text))
            continue
        call = ToolCall(id=str(number), name=event.name, arguments=dict(event.arguments), requestor=event.who)
        messages += [said(role=event.who, tool_calls=[call]), environment.get_response(call)]
    basis = set(task.evaluation_criteria.reward_basis)
    reward = EnvironmentEvaluator.calculate_reward(constructor, task, messages).reward
    for kind, evaluator in ((RewardType.COMMUNICATE, CommunicateEvaluator), (RewardType.ACTION, ActionEvaluator)):
        reward *= evaluator.calculate_reward(task, messages).reward if kind in basis else 1.0
    assert RewardType.NL_ASSERTION not in basis  # no task needs a judge
    return reward == 1.0


def evaluation(name: str, task_id: str, run: Run) -> dict[str, Any]:
    """Our evaluation of the same dialogue."""
    environment = get_environment(name)
    episode = environment.open(task_id, {"tool_prompt_mode": "compact", "user": True}, Guard())
    episode.start()
    for event in run:
        if event.who == "user":
            calls = [entry(event.name, event.arguments, "call")] if event.name else []
            episode.hear(write_message(event.text, calls))
        else:
            episode.step(environment.render("compact", event[2:]) if event.name else event.text, False)
    return episode.evaluate({})


def reference(name: str, task_id: str, told: bool = True) -> list[Event]:
    """A dialogue in which both sides do what the reference does; told: the agent tells what the user must learn."""
    criteria, events = data(name, task_id)["evaluation_criteria"], [Event("user", "Hello.")]
    for action in criteria["actions"] or ():
        who = action.get("requestor") or "assistant"
        does = Event(who, name=action["name"], arguments=action["arguments"])
        asked = [Event("assistant", "Please do."), does, Event("user", "I did.")]
        events += [does] if who == "assistant" else asked
    information = ", ".join(criteria.get("communicate_info") or ()) if told else ""
    return [*events, Event("assistant", f"That is all. {information}"), STOP]


def damaged(name: str, task_id: str) -> Iterator[list[Event]]:
    """The reference with one fault of each kind, and with each of its actions left out."""
    whole, draw = reference(name, task_id), random.Random(task_id)
    calls = [place for place, event in enumerate(whole) if event.name]
    yield reference(name, task_id, told=False)
    yield [whole[0], Event("assistant", "I cannot help."), STOP]
    for place in calls:
        yield [*whole[:place], *whole[place + 1 :]]
    for place in draw.sample(calls, min(2, len(calls))):
        yield [*whole[: place + 1], whole[place], *whole[place + 1 :]]
        texts = [key for key, value in whole[place].arguments.items() if isinstance(value, str)]
        if texts:
            wrong = {**whole[place].arguments, draw.choice(texts): "zz_nothing_zz"}
            yield [*whole[:place], whole[place]._replace(arguments=wrong), *whole[place + 1 :]]
            less = {key: value for key, value in whole[place].arguments.items() if key != texts[0]}
            yield [*whole[:place], whole[place]._replace(arguments=less), *whole[place + 1 :]]
    others = [task for task in get_environment(name).task_ids("") if task != task_id][:200]
    foreign = [event for event in reference(name, draw.choice(others)) if event.name and event.who == "assistant"]
    yield [*whole[:-2], *foreign[:3], *whole[-2:]]
    yield [whole[0], *(event for event in foreign[:9]), *whole[-2:]]


def text_of(name: str, task_id: str) -> str:
    """Everything that a policy is shown of a task before its user speaks."""
    episode = get_environment(name).open(task_id, {"tool_prompt_mode": "hermes", "user": True}, Guard())
    opening = episode.start()
    return json.dumps([opening["state"], opening["info"]])
