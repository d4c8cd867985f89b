"""The tasks of a withdrawal, played with the interface and without against the real service."""

from types import SimpleNamespace

from seal.data.rows import TaskRow
from seal.method.interface.cues import Omega
from seal.rollout.attempts import Attempts
from seal.rollout.row import Row
from seal.settings import EnvServiceSettings, SealSettings
from tests.support.rollout_play import ScriptedEngine, reference_texts, roll_out

OMEGA = Omega.of(("schema_required", "feedback_error", "caution"), version=3).to_json()
"""As a validation has it, in each of its rows."""


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


def test_the_output_of_its_harness_replaces_none_of_training(tmp_path):
    seal = {"name": "x", "run_dir": str(tmp_path), "rollout": {"harness": ["python", "agent.py"]}}
    attempts = Attempts(None, SealSettings.of({"seal": seal}), SimpleNamespace(max_steps=3), None)

    def log(index, side=None):
        columns = TaskRow("multi_turn_base_0", "base", 4, "train", withdrawal=side).to_verl(index)
        columns |= {"index": index, "global_steps": 5, "session_id": 0, "training": side is None}
        row = Row.read(columns, EnvServiceSettings())
        assert row.identity()["cluster"] == 4, "statistics draw the tasks of a scenario together"
        return attempts._speaker(row, {}, 0)._log

    train, val = tmp_path / "harness" / "train", tmp_path / "harness" / "val"
    assert log(7).relative_to(train) == log(7, "shown").relative_to(val)
    assert log(8, "hidden").is_relative_to(val)  # its number is its own among the rows of a validation
