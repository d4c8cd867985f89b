"""Every place that a run writes to is examined before it starts, by the launcher, its rehearsal and the doctor."""

import os
from pathlib import Path

import pytest

from seal.launch import record
from seal.launch.checks.places import LONGEST, check_places
from seal.launch.checks.preflight import CHECKS
from seal.launch.recipe import Recipe, read_recipe
from seal.launch.record import record_folder
from seal.system.errors import LaunchError
from seal.system.paths import HOME

NOWHERE = "/proc/nowhere"
"""Not even root can make it."""


def quickstart(*overrides: str) -> Recipe:
    return read_recipe(HOME / "exp" / "quickstart.yaml", overrides)


def refusal(recipe: Recipe) -> str:
    with pytest.raises(LaunchError) as error:
        CHECKS["places"](recipe)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(autouse=True)
def plain(tmp_path, monkeypatch):
    """A shell without variables of its own, whose HOME is new."""
    for name in ("RAY_TMPDIR", "TMPDIR", "HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("RAY_AUTH")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("key", ["seal.run_dir", "trainer.default_local_dir"])
def test_a_folder_of_the_run_that_cannot_be_written_is_named(key):
    assert f"{key}={NOWHERE}/run cannot be written" in refusal(quickstart(f"{key}={NOWHERE}/run"))


def test_a_temporary_folder_whose_name_ray_cannot_use_is_named(monkeypatch):
    fits = "/tmp/" + "x" * (LONGEST - len("/tmp/"))
    for name, fault in ((fits + "x", "longer than"), ("/tmp/\u00e4", "not ASCII"), (NOWHERE, "cannot be written")):
        monkeypatch.setenv("TMPDIR", name)
        assert name in refusal(quickstart()) and fault in refusal(quickstart())
        check_places(quickstart("+ray_kwargs.ray_init._temp_dir=/tmp"))
        check_places(quickstart("+seal.process_env.TMPDIR=/tmp"))
        check_places(quickstart("ray_kwargs.ray_init.address=10.0.0.1:6379"))
    monkeypatch.setenv("TMPDIR", fits)
    check_places(quickstart())


def test_a_home_that_cannot_be_written_is_named_unless_what_is_kept_there_is_elsewhere(tmp_path, monkeypatch):
    check_places(quickstart())
    monkeypatch.setenv("HOME", NOWHERE)
    assert f"{NOWHERE}/.cache/huggingface/datasets" in refusal(quickstart())
    monkeypatch.setenv("HF_HOME", f"{NOWHERE}/shared")  # HOME would not help
    assert f"{NOWHERE}/shared/datasets cannot be written: set HF_DATASETS_CACHE to" in refusal(quickstart())
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    assert f"{NOWHERE}/.ray/auth_token" in refusal(quickstart())
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    check_places(quickstart())


def test_a_launch_from_a_read_only_repository_is_recorded_in_the_run_s_folder(tmp_path, monkeypatch):
    recipe = quickstart(f"seal.run_dir={tmp_path}/run")
    assert record_folder(recipe) == HOME / "launcher_record" / "quickstart"
    monkeypatch.setattr(record, "HOME", Path(NOWHERE))
    assert record_folder(recipe) == tmp_path / "run" / "launcher_record" / "quickstart"
