"""What cannot run says so in one sentence, exits with 1 and leaves nothing behind."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.launches import free_url

HOME = Path(__file__).resolve().parents[2]


def launch(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "launcher.py", *arguments]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def other_server():
    """Something that speaks HTTP and is not the environment service."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_):
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def one_error(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in done.stdout
    return errors[0]


@pytest.mark.parametrize("with_bfcl", [(), ("--with-bfcl",)])
def test_a_port_taken_by_something_else(other_server, with_bfcl):
    url = f"env_service.env_url={other_server}"
    error = one_error(
        launch("--conf", "exp/quickstart.yaml", *with_bfcl, "--", url, "trainer.experiment_name=test-port")
    )
    assert other_server in error and "env_service.env_url" in error


def test_a_service_that_is_not_reachable():
    url = free_url()
    error = one_error(
        launch("--conf", "exp/quickstart.yaml", "--", f"env_service.env_url={url}", "trainer.experiment_name=test-none")
    )
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
    error = one_error(launch("--conf", "exp/quickstart.yaml", "--", override, "trainer.experiment_name=test-settings"))
    assert named in error


def test_a_missing_recipe():
    assert "exp/nothing.yaml" in one_error(launch("--conf", "exp/nothing.yaml"))


def test_another_device_count_than_the_machine_has():
    done = launch("--conf", "exp/quickstart.yaml", "--", "trainer.device=cuda", "trainer.n_gpus_per_node=64")
    assert "trainer.n_gpus_per_node=64" in one_error(done)
