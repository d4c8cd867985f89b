"""The tasks of a withdrawal, played with the interface and without against the real service."""

import pytest

from seal.data.rows import TaskRow
from seal.method.interface.cues import Omega
from tests.support.rollout_play import ScriptedEngine, reference_texts, roll_out, running_service

OMEGA = Omega.of(("schema_required", "feedback_error", "caution"), version=3).to_json()
"""As a validation has it, in each of its rows."""


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def validated(url, side, *overrides):
    row = TaskRow("multi_turn_base_0", "base", 0, "train", withdrawal=side)
    columns = {"extra_info": row.to_verl(0)["extra_info"], "omega": OMEGA}
    ((_, record),) = roll_out([url], ScriptedEngine(reference_texts()), *overrides, training=False, **columns)
    assert record.infra is None, record.infra_message
    return record


def test_of_a_validation_only_the_rows_of_a_withdrawal_that_show_it_see_the_interface(url):
    shown, plain, validation = (validated(url, side) for side in ("shown", "hidden", None))
    assert [each.withdrawal for each in (shown, plain, validation)] == ["shown", "hidden", None]
    assert [each.omega_version for each in (shown, plain, validation)] == [3, None, None]
    assert "Required: " in shown.messages[0]["content"] and "Required: " not in plain.messages[0]["content"]
    assert plain.messages == validation.messages and shown.passed and plain.passed


def test_neither_a_share_nor_a_teacher_changes_what_it_sees(url):
    half = validated(url, "shown", "seal.interface.share=0.5", "seal.interface.teacher=retry")
    assert (half.omega_version, half.cues, half.taught) == (3, (), False)
