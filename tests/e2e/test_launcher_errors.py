"""A recipe that cannot run is refused in one sentence and leaves nothing behind; the exit code is 1."""

from uuid import uuid4

import pytest

from seal.records.ending import Ending
from seal.system import exits
from tests.support.launches import HOME, free_url, launch, one_error, refused
from tests.support.stub_server import answering


@pytest.fixture
def other_server():
    """Something that speaks HTTP and is not the environment service."""
    with answering({}, otherwise="hello") as url:
        yield url


def test_a_port_taken_by_something_else(other_server):
    error = refused(f"env_service.env_url={other_server}")
    assert other_server in error and "env_service.env_url" in error


def test_a_service_that_is_not_reachable():
    url, name = free_url(), f"test-{uuid4().hex[:8]}"
    own = (f"env_service.env_url={url}", f"trainer.experiment_name={name}")
    error = one_error(launch("--conf", "exp/quickstart.yaml", "--", *own))
    assert url in error and "--with-service" in error
    assert not (HOME / "experiments" / name).exists() and not (HOME / "launcher_record" / name).exists()


def test_a_service_that_cannot_start_is_how_the_launch_ends(tmp_path, monkeypatch):
    Ending(0, "finished", "That was an earlier launch.").write(tmp_path)
    monkeypatch.setenv("BFCL_SCRIPT", "echo no room; exit 3")
    own = (f"seal.run_dir={tmp_path}", f"env_service.env_url={free_url()}")
    error = one_error(launch("--conf", "exp/quickstart.yaml", "--with-service", "--", *own))
    ending = Ending.read(tmp_path)
    assert ending[:2] == (exits.REFUSED, "environment_unreachable")
    assert "no room" in ending.sentence and ending.sentence in error


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("ray_kwargs.ray_init.num_cpus=4", "ray_kwargs.ray_init.num_cpus=4"),
        ("trainer.max_actor_ckpt_to_keep=3", "seal.checkpoints.keep_last"),
        ("trainer.logger=[console,mlflow]", "pip install mlflow"),
    ],
)
def test_settings_that_cannot_work_are_named(override, named):
    # With --with-service a service that is not there is not an error of its own.
    assert named in refused(f"env_service.env_url={free_url()}", override, with_service=True)
