"""Validate the diagnosis: play single faults and compare each label with the one that it must be."""

from collections.abc import Iterable, Iterator

from env_service.environments.bfcl.catalog import Task
from seal.method.diagnosis.evidence import TurnEvidence
from seal.method.diagnosis.rules import Diagnosis, diagnose
from shelf.authoring.runs import open_episode
from shelf.authoring.tests.bfcl_faults import STEP_LIMIT, InjectedFault, expected, faults
from shelf.authoring.tests.confusion import Judged


def play(task: Task, fault: InjectedFault) -> tuple[TurnEvidence, ...]:
    """Play a run with a fault as a training episode without cues; the evidence of every turn."""
    params = {"omega": {"version": 0, "cues": {}}, "tool_prompt_mode": fault.mode, "max_steps": STEP_LIMIT}
    params["enforce_available_tools"] = False  # as in the package, which one reference relies on
    episode = open_episode(task, params)
    for text, cut in (message for turn in fault.messages for message in turn):
        if episode.step(text, cut)["is_terminated"]:
            break
    return episode.evidence()


def validate(tasks: Iterable[Task], seed: int = 0) -> Iterator[Judged]:
    """Inject one fault of each kind into each task; yield the judgement of every faulty turn."""
    for task in tasks:
        for fault in faults(task, seed):
            found = _of_turn(diagnose(play(task, fault)), fault.turn)
            yield Judged(task.id, fault.turn, fault.kind, expected(task, fault), found.label, found.reason)


def _of_turn(diagnoses: Iterable[Diagnosis], turn: int) -> Diagnosis:
    return next(found for found in diagnoses if found.turn == turn)
