"""`seal doctor`: what was found, what is missing, how to fix it."""

import json
import os
import re
import socket
import subprocess

import pytest

from env_service.environments.bfcl.catalog import data_hash
from env_service.protocol import PROTOCOL
from seal.launch.checks import devices
from seal.launch.checks.devices import Torch
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from shelf.operate import doctor
from shelf.operate.cli.doctor import app
from shelf.operate.doctor import examine
from shelf.operate.plan import memory_gb
from tests.support.commands import run
from tests.support.launches import free_url
from tests.support.recipes import composed
from tests.support.stub_server import service_that_answers

QUICKSTART = HOME / "exp" / "quickstart.yaml"


def rows(output: str) -> dict[str, tuple[str, str]]:
    """Mark and the rest of each first line of the table, by what it is about."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    return {what: (mark, found + fix) for mark, what, found, fix in cells if what}


SELFCHECK = ("-W", "ignore", "-m", "shelf.operate.selfcheck")


@pytest.mark.slow  # the installation ends with it, and tests/e2e/test_loop.py imports the same
def test_the_selfcheck_finds_this_environment_ready():
    done = devices.run_python(*SELFCHECK, timeout=600)
    locked = re.search(r"^torch==([\d.]+)", (HOME / "requirements-cpu.txt").read_text(), re.MULTILINE)[1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ready: torch {locked}" in done.stdout


def test_a_broken_model_path_is_the_one_problem(monkeypatch, capsys):
    def checked(*arguments, **_):
        assert arguments == SELFCHECK
        return subprocess.CompletedProcess(arguments, 0, "ready: torch", "")

    monkeypatch.setattr(doctor, "run_python", checked)
    url = f"env_service.env_url={free_url()}"
    arguments = ["--conf", QUICKSTART, "--", "actor_rollout_ref.model.path=/nowhere/model", url]
    assert run(app, arguments) == 1
    said = capsys.readouterr().out
    found = rows(said)
    assert {what for what, (mark, _) in found.items() if mark == "missing"} == {"model"}
    assert "/nowhere/model" in found["model"][1]
    assert {"Python", "torch", "verl", "ray", "plugins", "disk", "shared memory", "service", "data"} <= found.keys()
    assert "--with-service" in found["service"][1]
    assert "1 problem blocks exp/quickstart.yaml" in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--conf", "exp/none.yaml"), "There is no recipe"), (("--", "trainer.n_gpus=1"), "trainer.n_gpus")],
)
def test_a_recipe_that_cannot_be_composed_is_a_finding(arguments, named, capsys):
    assert run(app, arguments) == 1
    assert named in " ".join(capsys.readouterr().out.split())


def test_an_environment_of_the_cpu_path_is_not_enough_for_a_cuda_recipe(monkeypatch):
    nothing = json.dumps({"cuda": None, "gpus": []})
    answer = subprocess.CompletedProcess([], 0, nothing, "")
    for module in (doctor, devices):
        monkeypatch.setattr(module, "run_python", lambda *_, **__: answer)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the hub is not what is examined
    findings = {finding.what: finding for finding in examine(HOME / "exp" / "SEAL.yaml", [], Torch(cuda=None))}
    assert findings["torch"].blocks and "--cuda" in findings["torch"].fix
    assert findings["GPUs"].blocks and findings["devices"].blocks
    assert not findings["flash-attn"].blocks
    joined = ["++ray_kwargs.ray_init.address=10.0.0.1:6379"]
    findings = examine(HOME / "exp" / "SEAL.yaml", joined, Torch(cuda="13.0"))
    assert not next(finding for finding in findings if finding.what == "GPUs").blocks
    findings = examine(HOME / "exp" / "SEAL.yaml", ["trainer.device=gpu"], Torch(cuda=None))
    assert "must be 'cuda' or 'cpu'" in next(finding for finding in findings if finding.what == "fixed keys").fix


def test_gpus_are_named_with_their_memory():
    finding = doctor._gpus(Torch(cuda="13.0", gpus=(("NVIDIA H100", 80 << 30), ("NVIDIA H100", 80 << 30))))
    assert "2: NVIDIA H100 80 GiB" in finding.found and not finding.fix


def test_a_driver_that_hangs_is_a_finding(monkeypatch, tmp_path):
    """nvidia-smi waits forever if a GPU has fallen off the bus."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(doctor, "DRIVER_DEADLINE_S", 0.5)
    finding = doctor._gpus(Torch(cuda="13.0"))
    assert finding.blocks and "nvidia-smi" in finding.found and "no answer" in finding.fix


def test_memory_is_measured_against_the_recipe_s_own_figure():
    recipes = [HOME / "exp" / f"{name}.yaml" for name in ("SEAL_1gpu", "SEAL", "quickstart")]
    one_gpu, four, none = (composed(recipe).seal.min_memory_gb for recipe in recipes)
    assert one_gpu > four > none
    assert not doctor._memory(1).fix
    finding = doctor._memory(100_000)
    assert "about 100000 GB" in finding.fix and not finding.blocks
    lora = [read_recipe(HOME / "exp" / "SEAL_lora.yaml", [f"trainer.n_gpus_per_node={gpus}"]) for gpus in (4, 8)]
    assert [memory_gb(recipe) for recipe in lora] == [130, pytest.approx(8 * 1.9 * 15.23, rel=0.001)]


def test_each_service_address_is_examined():
    with socket.socket() as silent, service_that_answers(protocol=PROTOCOL, data_hash="0" * 64) as other:
        silent.bind(("127.0.0.1", 0))
        taken = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found = list(doctor._services([free_url(), taken, other]))
    assert [finding.blocks for finding in found] == [False, True, True]
    assert "install the pinned bfcl-eval" in found[2].fix and "env_service.env_url" in found[1].fix


def test_a_free_address_of_ipv6_is_free():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    (finding,) = doctor._services([free_url().replace("127.0.0.1", "[::1]")])
    assert not finding.blocks and "--with-service" in finding.found


def test_a_service_of_another_run_is_called_that_runs():
    with service_that_answers(protocol=PROTOCOL, data_hash=data_hash(), owner="the run first on host-a") as url:
        (finding,) = doctor._services([url])
    assert "the run first on host-a" in finding.fix and "--with-service" in finding.fix and not finding.blocks


def test_the_disk_is_the_one_that_takes_the_checkpoints():
    recipe = read_recipe(QUICKSTART, [f"trainer.default_local_dir={doctor.SHARED_MEMORY}/none/checkpoints"])
    disk = next(finding for finding in doctor._checks(recipe) if finding.what == "disk")
    assert disk.found.endswith(f" {doctor.SHARED_MEMORY}")


def test_files_that_no_run_reads_do_not_block_one(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "HOME", tmp_path)
    finding = doctor._data()
    assert "seal data prepare" in finding.fix and not finding.blocks


def test_too_little_shared_memory_is_named(monkeypatch, tmp_path):
    config = composed(QUICKSTART)
    assert not doctor._shared_memory(config).blocks
    config.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes = 100_000_000
    finding = doctor._shared_memory(config)
    assert finding.blocks and "--shm-size" in finding.fix
