"""The environment that a run's workers inherit is the one that verl would give them."""

import importlib
import logging
import subprocess
import sys

import pytest
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from seal.system.paths import HOME
from seal.training.cluster import OWN_CLUSTER, VERL_ENVIRONMENT, prepare, verl_environment
from tests.support.recipes import composed

QUICKSTART = HOME / "exp" / "quickstart.yaml"
OURS = {"TRANSFER_QUEUE_ENABLE", "RAY_ENABLE_UV_RUN_RUNTIME_ENV", LEVEL := "SAGEMAKER_CONTAINER_LOG_LEVEL"}
"""The variables that verl sets elsewhere, in `run_ppo` and when it is imported, and one that is ours."""


@pytest.mark.parametrize("exact", [False, True])
def test_workers_get_the_variables_that_verl_would_give_them(exact, monkeypatch):
    config = composed(QUICKSTART, f"actor_rollout_ref.rollout.full_determinism={str(exact).lower()}")
    ours = verl_environment(config)
    for name in (*ours, "PYTHONHASHSEED"):
        monkeypatch.delenv(name, raising=False)
    if exact:  # verl's `run_ppo` sets these before it asks
        for name in ("VERL_FULL_DETERMINISM", "VLLM_BATCH_INVARIANT", "PYTHONHASHSEED"):
            monkeypatch.setenv(name, ours[name])
    theirs = get_ppo_ray_runtime_env(config)["env_vars"]
    assert {name: value for name, value in ours.items() if name not in OURS} == theirs


def test_what_vllms_server_imports_hides_no_warning(monkeypatch):
    monkeypatch.setenv(LEVEL, VERL_ENVIRONMENT[LEVEL])
    standards = importlib.import_module("model_hosting_container_standards.logging_config")
    standards.configure_root_logger()
    assert logging.getLogger("seal").isEnabledFor(logging.WARNING)
    assert all(handler.level <= logging.WARNING for handler in logging.root.handlers)


def test_a_variable_of_the_shell_is_kept():
    shell = {"NCCL_DEBUG": "INFO"}
    prepare(composed(QUICKSTART), shell)
    assert shell.pop("DIST_INIT_METHOD").startswith("file://")
    assert shell == {**VERL_ENVIRONMENT, "NCCL_DEBUG": "INFO", **OWN_CLUSTER}


def test_the_training_process_imports_ray_once_its_environment_is_prepared():
    """Ray decides then on which addresses it listens."""
    script = "import sys, seal.training.main; print('ray' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )
