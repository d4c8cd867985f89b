"""Dialogues with a user that the package's own orchestrator plays, records and judges over its own environments."""

import json
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from unittest.mock import MagicMock

if find_spec("litellm") is None:  # the package's orchestrator imports it; sides that follow a run ask no model
    sys.modules |= dict.fromkeys(
        (f"litellm{name}" for name in ("", ".caching", ".caching.caching", ".main")), MagicMock()
    )

from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage
from tau2.data_model.simulation import SimulationRun
from tau2.data_model.tasks import Task
from tau2.environment.environment import Environment
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.orchestrator.orchestrator import Orchestrator
from tau2.registry import registry
from tau2.utils.utils import get_now

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
for _name, _constructor in CONSTRUCTORS.items():
    registry.register_domain(_constructor, _name)


def data(name: str, task_id: str) -> dict[str, Any]:
    """The task as the package's file has it."""
    return get_environment(name)._task(task_id).data


class _Side:
    """An agent or a user of the package that says its part of a run, which both share."""

    def __init__(self, who: str, run: Iterator[Event]) -> None:
        self._who, self._run = who, run

    def get_init_state(self, message_history: object = None) -> None:
        """None: the run is the state."""

    def generate_next_message(self, message: object, state: None) -> tuple[AssistantMessage | UserMessage, None]:
        event = next(self._run)
        assert event.who == self._who, event
        said = {"assistant": AssistantMessage, "user": UserMessage}[event.who]
        if not event.name:
            return said(role=event.who, content=event.text, timestamp=get_now()), None
        number = str(random.getrandbits(64))
        call = ToolCall(id=number, name=event.name, arguments=dict(event.arguments), requestor=event.who)
        return said(role=event.who, tool_calls=[call], timestamp=get_now()), None

    def is_stop(self, message: object) -> bool:
        """A language model as agent ends no dialogue of the package either."""
        return False

    def stop(self, message: object, state: None) -> None:
        """Nothing to end."""


def recorded(name: str, task_id: str, run: Run) -> SimulationRun:
    """The package's record of a dialogue, after which its user has ended it."""
    events, task = iter(run), Task.model_validate(data(name, task_id))
    sides = _Side("assistant", events), _Side("user", events)
    simulation = Orchestrator(name, *sides, CONSTRUCTORS[name](), task, max_steps=200).run()
    assert next(events, None) is None and simulation.termination_reason == "user_stop"
    return simulation


def package_verdict(name: str, task_id: str, simulation: SimulationRun) -> bool:
    """Return whether the package gives reward 1 to a dialogue; ValueError if that needs a judge."""
    task = Task.model_validate(data(name, task_id))
    return evaluate_simulation(simulation, task, EvaluationType.ALL, solo_mode=False, domain=name).reward == 1.0


def evaluation(name: str, task_id: str, simulation: SimulationRun) -> dict[str, Any]:
    """Our evaluation of the same dialogue."""
    environment = get_environment(name)
    episode = environment.open(task_id, {"tool_prompt_mode": "compact", "user": True}, Guard())
    episode.start()
    for message in simulation.messages[1:]:  # an agent's greeting comes first
        if isinstance(message, ToolMessage):
            continue
        call = next(((call.name, call.arguments) for call in message.tool_calls or ()), None)
        if message.role == "user":
            episode.hear(write_message(message.content or "", [entry(*call, "call")] if call else []))
        else:
            episode.step(environment.render("compact", call) if call else message.content, False)
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


def drawn(name: str, task_id: str) -> list[Event]:
    """The reference with calls of other tasks in places of the agent, often one call less, and any of the ends."""
    draw, run = random.Random(f"{task_id}/drawn"), reference(name, task_id)
    tasks = draw.sample([*get_environment(name).task_ids("")], 3)
    calls = [each for task in tasks for each in reference(name, task) if each.name and each.who == "assistant"]
    for event in calls[:4]:
        run.insert(draw.choice([place for place, each in enumerate(run) if each.who == "assistant"]), event)
    if draw.random() < 0.5:
        run.remove(draw.choice([event for event in run if event.name] or run[-2:-1]))
    end = draw.choice(("###STOP###", "I'd better ask a human. ###TRANSFER###", "###OUT-OF-SCOPE###"))
    return [*run[:-1], Event("user", end)]


def text_of(name: str, task_id: str) -> str:
    """Everything that a policy is shown of a task before its user speaks."""
    episode = get_environment(name).open(task_id, {"tool_prompt_mode": "hermes", "user": True}, Guard())
    opening = episode.start()
    return json.dumps([opening["state"], opening["info"]])
