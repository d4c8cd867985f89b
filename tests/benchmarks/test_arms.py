"""The arms of a probe by kinds of cue: what is asked where, and a control that no cue of the own failure enters."""

from benchmarks.arms import OTHER, OWN, arms
from seal.data.rows import TaskRow
from seal.interface.cues import Omega, catalogue
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.system.paths import HOME
from shelf.lab.probe.rollouts import Job, Played, Tokens
from tests.support.recipes import composed

LABELS = ("argument_mismatch", "recovery_failure", "state_mismatch", "pass")
TASKS = [TaskRow(f"multi_turn_base_{n}", "base", n, "train") for n in range(len(LABELS))]


def rollout(task: int, label: str) -> Played:
    known = {"task_id": TASKS[task].task_id, "data_source": "base", "category": "base", "split": "train", "sample": 0}
    record = TrajectoryRecord(**known, score=float(label == "pass"), labels=(label,))
    return Played(Job(task, 0), record, Tokens([0, 1], [1]), None)


def labels_of(omega: Omega, kind: str) -> set[str]:
    cues = [catalogue()[name] for name in omega.for_category("base")]
    assert {cue.kind for cue in cues} == {kind}
    return {cue.label for cue in cues}


def test_own_guidelines_answer_a_tasks_failures_and_other_guidelines_answer_none_of_them():
    settings = SealSettings.of(composed(HOME / "exp" / "pretrained_cpu.yaml"))
    plain = {task: [rollout(task, label)] for task, label in enumerate(LABELS)}
    shown = {each.cue: each.shown for each in arms(settings, TASKS, plain)}
    assert set(shown[OWN]) == set(shown[OTHER]) == set(shown["schema"]) == set(shown["all"]) == {0, 1, 2}
    for task in shown[OWN]:
        assert labels_of(shown[OWN][task], "guideline") == {LABELS[task]}
        assert LABELS[task] not in labels_of(shown[OTHER][task], "guideline")
    assert set(shown["feedback"]) == {1}  # feedback answers failed calls
