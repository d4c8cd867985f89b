"""The checks of the conformance suite, one function per check, each with its requirement and its first violation."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
from referencing.exceptions import Unresolvable

from env_service.encoding import encode
from env_service.environments.base import Environment, Guard
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import TaskSource
from env_service.environments.kit.worlds import MethodWorld, method_name
from seal.method.diagnosis.schema import broken, judges
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.schema_cue import arguments_of, lists_all, required
from seal.method.interface.secrets import clauses, normal, scalars
from seal.settings.data import BENCHMARK
from shelf.authoring import runs as scripted
from shelf.authoring.runs import RUBBISH, Run, play, refuses
from shelf.patient_user import opened
from shelf.replay.differences import as_text, difference

STEP_SECONDS = 5.0
"""Processor time of one answer, equal to the service's default for a call."""
EPISODES_PER_SECOND = 5.0
FAULTS_FAIL = 0.9


class Nonconforming(Exception):
    """A requirement does not hold; the message gives an example."""


@dataclass(frozen=True)
class Subject:
    """The environment under test, the tasks used for the test, and where another process finds the environment.

    floor: episodes per second of processor time that it must reach.
    """

    environment: Environment
    location: str
    tasks: tuple[str, ...]
    floor: float = EPISODES_PER_SECOND

    @property
    def mode(self) -> str:
        """The format in which runs are written."""
        return self.environment.formats[0]

    @cached_property
    def references(self) -> tuple[Run, ...]:
        return tuple(scripted.reference_run(self.environment, task, self.mode) for task in self.tasks)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """References, idle runs and runs with mistakes."""
        makers = (scripted.idle_run, scripted.stumbling_run)
        return (*self.references, *(make(self.environment, task, self.mode) for task in self.tasks for make in makers))

    def played(self, run: Run, guard: Guard | None = None) -> list[Any]:
        """The answers to a run; Nonconforming for an exception."""
        try:
            return play(self.environment, run, guard)
        except (Exception, SystemExit) as error:  # the check looks for any exception of an environment
            raise Nonconforming(f"{run.task_id}, {run.kind}: {type(error).__name__} is raised: {error}") from error

    @cached_property
    def answers(self) -> list[list[Any]]:
        return [self.played(run) for run in self.runs]


def tasks_and_splits(subject: Subject) -> str:
    """Every task is known, splits cover tasks, and no group is on both sides of the first split."""
    environment = subject.environment
    sides = {side: set(environment.task_ids(side)) for side in ("train", "eval")}
    every = list(environment.task_ids(""))
    if not every:
        raise Nonconforming("no task is listed")
    if len(set(every)) != len(every):
        raise Nonconforming(f"{len(every)} task ids are listed, {len(set(every))} of them different")
    for side, ids in sides.items():
        if wrong := [task for task in ids if environment.task(task).side != side]:
            raise Nonconforming(f"{wrong[0]} is listed under {side}, but its side is {environment.task(wrong[0]).side}")
    groups = {side: {environment.task(task).group for task in ids} for side, ids in sides.items()}
    name = next(iter(environment.splits()))
    if shared := groups["train"] & groups["eval"]:
        raise Nonconforming(f"the split {name} holds nothing out: tasks of the group {min(shared)!r} are on both sides")
    if not environment.version().get("data_hash"):
        raise Nonconforming("version() lacks data_hash")
    return f"{len(every)} tasks: {len(sides['train'])} to train on, {len(sides['eval'])} held out"


def documents(subject: Subject) -> str:
    """Each tool has a unique name, a schema that can judge calls, and a method that accepts the listed arguments."""
    environment = subject.environment
    for task in subject.tasks if isinstance(environment, ToolEnvironment) and environment.name != BENCHMARK else ():
        world, names = environment.scene(task, {"user": True}).world(), set()
        for tool in environment.documents(task):
            name, schema = tool.get("name"), tool["parameters"]
            if not isinstance(name, str) or name in names:
                raise Nonconforming(f"{task}: {as_text(tool)} has no `name` of its own: give it one")
            if not judges(schema) or tool.keys() & {"inputSchema", "input_schema"}:
                raise Nonconforming(f"{task}: {name} needs `parameters` in JSON Schema, not {as_text(schema or tool)}")
            for pointer in re.findall(r'"\$ref":"(#/[^"]*)', orjson.dumps(schema).decode()):
                try:
                    broken({}, {**schema, "$ref": pointer})
                except Unresolvable as error:
                    raise Nonconforming(f"{task}: {name} refers to {pointer}, which its `parameters` lack") from error
            is_method = getattr(type(world), "call", None) is MethodWorld.call and name != environment.stop_tool
            if is_method and method_name(name) in map(method_name, names):
                raise Nonconforming(f"{task}: {name} and another tool share {method_name(name)}: rename one of the two")
            if is_method and not hasattr(world, method_name(name)):
                raise Nonconforming(f"{task}: {name} has a document, but {type(world).__name__} no {method_name(name)}")
            names.add(name)
            for given in (required(tool), arguments_of(schema)) if is_method and lists_all(schema) else ():
                try:
                    world.bound(name, dict.fromkeys(given))
                except TypeError as error:
                    fault = f"{task}: the document of {name} permits {[*given]}, its method does not: {error}"
                    raise Nonconforming(fault) from error
        if environment.stop_tool not in (None, *names):
            raise Nonconforming(f"{task}: no document tells of the stop tool {environment.stop_tool!r}: add one")
    return f"documents of {len(subject.tasks)} tasks"


def determinism(subject: Subject) -> str:
    """The same messages get the same answers."""
    for run, before in zip(subject.runs, subject.answers, strict=True):
        _same(run, before, subject.played(run), "played again")
    return f"{len(subject.runs)} runs, {sum(map(len, subject.answers))} answers"


def replay(subject: Subject) -> str:
    """An episode that is rebuilt from its messages in another process continues as before."""
    try:
        elsewhere = scripted.play_elsewhere(subject.environment, subject.location, subject.runs)
    except ValueError as error:
        raise Nonconforming(str(error)) from error
    for run, here, there in zip(subject.runs, subject.answers, elsewhere, strict=True):
        _same(run, here, there, "played in another process")
    return f"{len(elsewhere)} episodes in another process"


def isolation(subject: Subject) -> str:
    """Episodes that take turns in one process do not see each other."""
    pairs = list(zip(subject.runs, subject.answers, strict=True))
    episodes = [opened(subject.environment, run.task_id, run.params, Guard()) for run, _ in pairs]
    answers: list[list[Any]] = [[episode.start()] for episode in episodes]
    for number in range(max(len(run.messages) for run, _ in pairs)):
        for (run, _), episode, got in zip(pairs, episodes, answers, strict=True):
            over = len(got) > 1 and got[-1]["is_terminated"]
            if number < len(run.messages) and not over:
                got.append(episode.step(run.messages[number], False))
    for (run, expected), episode, got in zip(pairs, episodes, answers, strict=True):
        _same(run, expected, orjson.loads(encode([*got, episode.evaluate({})])), "interleaved with other episodes")
    return f"{len(pairs)} episodes interleaved"


def idempotence(subject: Subject) -> str:
    """start, evaluate and describe change nothing."""
    for run, expected in zip(subject.runs, subject.answers, strict=True):
        episode = opened(subject.environment, run.task_id, run.params, Guard())
        answers: list[Any] = [episode.start()]
        for message in run.messages:
            for name, given in (("start", ()), ("evaluate", ({},)), ("describe", ())):
                if len({encode(getattr(episode, name)(*given)) for _ in range(2)}) > 1:
                    raise Nonconforming(f"{run.task_id}, {run.kind}: {name} differs when it is asked twice")
            answers.append(episode.step(message, False))
            if answers[-1]["is_terminated"]:
                break
        answers.append(episode.evaluate({}))
        _same(run, expected, orjson.loads(encode(answers)), "evaluated after every message")
    return f"{len(subject.runs)} runs, asked twice after every message"


def bad_input(subject: Subject) -> str:
    """Bad input from a caller is refused in one sentence."""
    environment, task = subject.environment, subject.tasks[0]

    def asked(**params: Any) -> Callable[[], Any]:
        return lambda: opened(environment, task, {"tool_prompt_mode": subject.mode, **params}, Guard())

    def after_the_end() -> None:
        run = subject.references[0]
        episode = opened(environment, run.task_id, run.params, Guard())
        for message in (*run.messages, "again"):
            episode.step(message, False)

    wrong: Mapping[str, Callable[[], Any]] = {
        "an unknown task": lambda: opened(environment, "no such task", {}, Guard()),
        "facts of an unknown task": lambda: environment.task("no such task"),
        "an unknown split": lambda: environment.task_ids("no such split"),
        "an unknown format": asked(tool_prompt_mode="no such format"),
        "too many turns": asked(turns=10**6),
        "no turns": asked(turns=0),
        "an interface that cannot be read": asked(omega={"version": "x"}),
        "an interface in evaluation": asked(split="eval", omega=Omega.of().to_json()),
        "a message after the end": after_the_end,
    }
    for what, call in wrong.items():
        if problem := refuses(call):
            raise Nonconforming(f"{what}: {problem}")
    return f"{len(wrong)} wrong requests refused"


def any_message(subject: Subject) -> str:
    """Every message of a policy is answered."""
    environment, mode = subject.environment, subject.mode
    for task in subject.tasks[:4]:
        rare = (environment.render(mode, call) for call in scripted.rare_calls(environment, task))
        for message in (*RUBBISH, *scripted.stumbling_run(environment, task, mode).messages, *rare):
            params = {"tool_prompt_mode": mode, "parse_errors": "feedback"}
            subject.played(Run(f"message {message[:120]!r}", task, (message,), params))
    return f"{len(RUBBISH)} unreadable messages, calls of every wrong kind, and rare values"


def deadlines(subject: Subject) -> str:
    """Calls go through the guard, a refused call is an error that the policy sees, and no answer takes long."""
    for run in subject.references:
        evaluation = subject.played(run, counting := _Counting())[-1]
        wanted = evaluation["calls"] - evaluation["errors"]
        if counting.calls < wanted:
            raise Nonconforming(f"{run.task_id}: {wanted} calls were made, {counting.calls} of them through guard.run")
        if counting.slowest > STEP_SECONDS:
            raise Nonconforming(f"{run.task_id}: a call takes {counting.slowest:.1f} s of processor time")
        answers = subject.played(run, _Refusing())
        over = answers[-1]["stop"] == "step_limit"  # an environment may end at its first error
        if wanted and not over and _REASON not in str([answer["state"] for answer in answers[1:-1]]):
            raise Nonconforming(f"{run.task_id}: a call that exceeded a limit is not answered with the reason")
    return f"{len(subject.references)} runs, every call guarded"


def reference_passes(subject: Subject) -> str:
    """Every reference meets the verifier, with the label `pass` in every turn that needs calls."""
    for run, (*_, last, evaluation) in zip(subject.references, subject.answers, strict=False):
        if not last.get("is_terminated") or not evaluation["valid"] or last["reward"] != 1.0:
            actions = [action for turn in evaluation["evidence"] for action in turn["actions"]]
            why = [f"; {call['result']}" for action in actions for call in action["calls"] if call["error"]]
            why += [f"; {each['reason']}" for each in evaluation["diagnosis"] if each["label"] != "pass"]
            said = f"reward {last.get('reward')}, stop {evaluation['stop']}{''.join(why[:1])}"
            raise Nonconforming(f"the reference of {run.task_id} does not pass: {said}")
        needed = subject.environment.reference(run.task_id)
        labels = [label for label, calls in zip(evaluation["labels"], needed, strict=True) if calls]
        if set(labels) - {"pass"}:
            raise Nonconforming(f"the reference of {run.task_id} passes, but is labelled {labels}")
    return f"{len(subject.references)} references"


def faults_fail(subject: Subject) -> str:
    """Doing nothing fails, and so does leaving out a write, in nearly all places; no other call changes the state."""
    environment, failed, tried = subject.environment, 0, 0
    if not any(any(environment.reference(task)) for task in (*subject.tasks, *environment.task_ids(""))):
        said = "no reference holds a call, so the verifier is never asked and every answer gets reward 1: "
        raise Nonconforming(f"{said}give each task the calls of one solution")
    for task in subject.tasks:
        calls = environment.reference(task)
        if not any(calls):
            continue
        if subject.played(scripted.idle_run(environment, task, subject.mode))[-1]["valid"]:
            raise Nonconforming(f"{task}: doing nothing passes")
        passes = subject.played(scripted.reference_run(environment, task, subject.mode))[-1]["valid"]
        for place, name in [((t, c), name) for t, turn in enumerate(calls) for c, (name, _) in enumerate(turn)]:
            evaluation = subject.played(scripted.reference_run(environment, task, subject.mode, without=place))[-1]
            if name in environment.writes:
                tried, failed = tried + 1, failed + (not evaluation["valid"])
                continue
            # A later write in the same turn may need what this call prepares, such as the folder that it enters.
            alone = passes and {*environment.writes}.isdisjoint(later for later, _ in calls[place[0]][place[1] :])
            if alone and evaluation["evidence"][place[0]]["state_match"] is False:
                fix = "add it to `writes`, or judge a result as `response_match`"
                raise Nonconforming(f"{task}: the state is wrong without the call of {name}: {fix}")
    if tried and failed < FAULTS_FAIL * tried:
        raise Nonconforming(f"of {tried} references without one write only {failed} fail: does the verifier look?")
    return f"nothing done fails everywhere; a write left out in {failed} of {tried} places"


def no_leak(subject: Subject) -> str:
    """No policy sees a call of the reference, nor in its opening the instructions of a model's user."""
    environment, every = subject.environment, Omega.of(tuple(catalogue()))
    users = ({}, {"user": True, "native": True}) if isinstance(environment, TaskSource) else ({},)
    cues = ({}, {"omega": every.to_json(), "leak_guard": True})
    for task in subject.tasks:
        starts = tuple({normal(f"{name}(") for calls in environment.reference(task) for name, _ in calls})
        secret = {word for word in environment.secrets(task).words if word.startswith(starts) or '"arguments"' in word}
        wrong = tuple(environment.render(subject.mode, call) for call in scripted.wrong_calls(environment, task))
        public = _words([*environment.documents(task)])
        for more in ({**user, **cue} for user in users for cue in cues):
            params = {"tool_prompt_mode": subject.mode, "parse_errors": "feedback", "split": "train", **more}
            opening, *answers, _ = subject.played(Run("mistakes only", task, wrong, params))
            told = opening.get("user", {"messages": [{"content": ""}]})["messages"][0]["content"]
            start = _words((opening["state"], opening["info"]))
            # What a tool says is not a leak, and the leak guard watches the cues.
            if seen := [clause for clause in clauses(told) if clause in start and clause not in public]:
                raise Nonconforming(f"{task}: a policy is shown {min(seen)!r} of the user's instructions")
            shown = start + _words([answer["state"] for answer in answers])
            if calls := [word for word in secret if not word.endswith(("()", "{}}")) and word in shown]:
                raise Nonconforming(f"{task}: a policy is shown {min(calls)!r}, which is a call of the reference")
    return f"{len(subject.tasks)} tasks, without cues and with all of them"


def _words(value: Any) -> str:
    return normal("\n".join(map(str, scalars(value))))


def throughput(subject: Subject) -> str:
    """Episodes are fast enough to train on."""
    began, played = time.process_time(), 0
    while played < 3 * len(subject.references) and time.process_time() - began < 10.0:
        play(subject.environment, subject.references[played % len(subject.references)])
        played += 1
    rate = played / (time.process_time() - began)
    if rate < subject.floor:
        raise Nonconforming(f"{rate:.1f} episodes per second of processor time are fewer than {subject.floor:g}")
    return f"{rate:.0f} episodes per second of processor time"


def _same(run: Run, before: list[Any], now: list[Any], how: str) -> None:
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        if one := difference(old, new):
            what = "the opening" if number == 0 else f"the answer to message {number}"
            what = "the evaluation" if number == len(before) - 1 else what
            values = f"{one.field or 'it'} was {as_text(one.written)} and is {as_text(one.found)}"
            raise Nonconforming(f"{run.task_id}, {run.kind}, {how}: {what} differs: {values}")
    if len(before) != len(now):
        raise Nonconforming(f"{run.task_id}, {run.kind}, {how}: {len(now)} answers instead of {len(before)}")


_REASON = "the call exceeded a limit of the check"


class _Counting(Guard):
    calls, slowest = 0, 0.0

    def run(self, call: Callable[[], Any], refused: Callable[[str], Any]) -> Any:
        self.calls += 1
        began = time.process_time()
        result = call()
        self.slowest = max(self.slowest, time.process_time() - began)
        return result


class _Refusing(Guard):
    """Refuses the first call of an episode, like the service does with a call that exceeded a limit before."""

    _first = True

    def run(self, call: Callable[[], Any], refused: Callable[[str], Any]) -> Any:
        first, self._first = self._first, False
        return refused(_REASON) if first else call()


_IN_ORDER = (
    *(tasks_and_splits, documents, determinism, replay, isolation, idempotence, bad_input, any_message, deadlines),
    *(reference_passes, faults_fail, no_leak, throughput),
)
CHECKS: Mapping[str, Callable[[Subject], str]] = {each.__name__.replace("_", " "): each for each in _IN_ORDER}
NEED_DETERMINISM = frozenset({"replay", "isolation", "idempotence"})
"""Checks that compare with earlier answers: without determinism they say nothing."""
NEED_OWN_USERS = frozenset({"reference passes", "faults fail"})
"""Checks of verdicts: a reference holds the policy's calls, but not what a model's user does or must hear."""
