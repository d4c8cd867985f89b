"""The public release's blocks as an Omega."""

import pytest

from env_service.environments.bfcl.formats import format_names
from env_service.environments.bfcl.settings import BfclSettings
from env_service.environments.kit.settings import read_settings
from seal.method.interface.cues import Omega


def omega_of_release(params: dict) -> Omega | None:
    return read_settings(params, format_names()[0], BfclSettings).interface


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"split": "train"},
        {"observation_lite": False, "tool_feedback_evolution": None},
        {"observation_lite": {"enabled": False}},
    ],
)
def test_a_client_that_asks_for_no_hints_gets_no_omega(params):
    assert omega_of_release(params) is None


def test_observation_lite_turns_on_what_the_tools_imply():
    omega = omega_of_release({"observation_lite": True})
    assert omega.cues == ("schema_required", "schema_types", "schema_values", "schema_format")
    fewer = omega_of_release({"observation_lite": {"enabled": True, "show_types": False, "enum_hints": False}})
    assert fewer.cues == ("schema_required", "schema_format")


def test_tool_feedback_evolution_turns_on_recovery_and_guidelines_of_its_labels():
    omega = omega_of_release({"tool_feedback_evolution": {"enabled": True, "labels": ["empty_turn_model_response"]}})
    assert set(omega.cues) == {"feedback_error", "feedback_tools", "feedback_answer", "use_tools"}


def test_a_block_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"params\.observation_lite\.\w+: "):
        omega_of_release({"observation_lite": "hints"})
