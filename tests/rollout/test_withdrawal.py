"""The tasks of a withdrawal, played with and without cues against the real service."""

import pytest

from seal.interface.cues import Omega
from seal.records.trajectory import EVERY_CUE
from seal.rollout.row import OMEGA, withdrawn_cue
from tests.support.rollout_play import ScriptedEngine, reference_texts, roll_out, running_service

CUES = ("schema_required", "feedback_error", "caution")


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def played(url, shown, omega=None, **columns):
    columns |= {OMEGA: omega.to_json()} if omega else {}
    extra = {"task_id": "multi_turn_base_0", "split": "train", "category": "base", "turns": -1}
    engine = ScriptedEngine(reference_texts())
    ((_, record),) = roll_out([url], engine, training=False, shown=shown, extra_info=extra, **columns)
    assert record.infra is None, record.infra_message
    return record


def test_each_row_sees_its_part_of_the_interface(url):
    omega = Omega.of(CUES, version=3)
    shown = played(url, "all", omega)
    plain = played(url, "none", omega)
    assert (shown.withdrawn, shown.omega_version, plain.withdrawn, plain.omega_version) == ("", 3, EVERY_CUE, None)
    assert "Required: " in shown.messages[0]["content"] and "Required: " not in plain.messages[0]["content"]
    without = [played(url, "without_one", omega, index=index) for index in (1, 4, 7)]
    assert {record.withdrawn for record in without} == set(CUES)
    for record in without:
        assert ("Required: " in record.messages[0]["content"]) == (record.withdrawn != "schema_required")
        assert record.omega_version == 3 and record.passed


def test_cues_take_turns_over_tasks_and_over_steps():
    omega = Omega.of({"*": CUES, "miss_func": ["caution"]})
    rows = [{"index": 10 + 3 * task, "global_steps": step} for step in (0, 8) for task in range(3)]
    cues = [withdrawn_cue(omega, "base", row) for row in rows]
    assert set(cues[:3]) == set(cues[3:]) == set(CUES) and cues[:3] != cues[3:]
    assert {withdrawn_cue(omega, "miss_func", row) for row in rows} == {"caution"}
    assert withdrawn_cue(Omega(), "base", rows[0]) == ""
