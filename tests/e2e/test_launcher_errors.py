"""What cannot run says so in one sentence, exits with 1 and leaves nothing behind."""

import pytest

from tests.support.launches import free_url, launch, one_error, refused
from tests.support.stub_server import answering


@pytest.fixture
def other_server():
    """Something that speaks HTTP and is not the environment service."""
    with answering({}, otherwise="hello") as url:
        yield url


@pytest.mark.parametrize("with_bfcl", [(), ("--with-bfcl",)])
def test_a_port_taken_by_something_else(other_server, with_bfcl):
    error = refused(*with_bfcl, overrides=(f"env_service.env_url={other_server}",))
    assert other_server in error and "env_service.env_url" in error


def test_a_service_that_is_not_reachable():
    url = free_url()
    error = refused(overrides=(f"env_service.env_url={url}",))
    assert url in error and "--with-bfcl" in error


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("seal.min_free_gb=10000000", "seal.min_free_gb"),
        ("actor_rollout_ref.model.path=/nowhere", "actor_rollout_ref.model.path"),
        ("data.train_batch_size=5", "data.train_batch_size"),
        ("ray_kwargs.ray_init.num_cpus=4", "ray_kwargs.ray_init.num_cpus=4"),
        ("data.max_prompt_length=4000", "max_model_len"),
        ("trainer.n_gpus_per_nodes=2", "trainer.n_gpus_per_node"),
        ("seal.reward.mode=dense", "seal.reward.mode"),
        ("seal.data.train.categories=[bass]", "bass"),
        ("seal.data.train.limit=2", "data.train_batch_size"),
        ("seal.checkpoints.keep_last=0", "seal.checkpoints.keep_last"),
        ("trainer.max_actor_ckpt_to_keep=3", "seal.checkpoints.keep_last"),
        ("trainer.logger=[console,mlflow]", "pip install mlflow"),
        ("trainer.logger=[tensorbord]", "tensorboard"),
    ],
)
def test_settings_that_cannot_work_are_named(override, named):
    # With --with-bfcl a service that is not there is no error of its own.
    assert named in refused("--with-bfcl", overrides=(f"env_service.env_url={free_url()}", override))


def test_a_missing_recipe():
    assert "exp/nothing.yaml" in one_error(launch("--conf", "exp/nothing.yaml"))


def test_another_device_count_than_the_machine_has():
    cuda = ("trainer.device=cuda", "trainer.n_gpus_per_node=64", "ray_kwargs.ray_init.num_cpus=null")
    error = refused(overrides=cuda)
    assert "trainer.n_gpus_per_node=64" in error
