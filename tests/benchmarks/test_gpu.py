"""The parts of the GPU smoke test that need no GPU: its stages, the page, the peak memory."""

import os
import subprocess
import sys
import time

import pytest
from omegaconf import OmegaConf

from benchmarks import memory
from benchmarks.gpu.__main__ import PAGE, RECIPES, note, stages
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from shelf.operate.fit import GPUS, fit, require_fit
from shelf.operate.plan import model_of
from shelf.operate.selfcheck import built_for
from shelf.operate.step import step_plan
from shelf.testbed.policy.grow import LARGE
from tests.support.recipes import composed

SMALL = [f"actor_rollout_ref.model.path={HOME / 'data' / 'quickstart_policy'}"]
STAGES = stages()


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_every_stage_is_a_recipe_that_divides_and_fits_a_gpu(stage):
    recipe = read_recipe(HOME / (stage.recipe or RECIPES["cuda"]), [*SMALL, *stage.overrides])
    assert recipe.config.trainer.n_gpus_per_node == stage.gpus and stage.steps
    plan = step_plan(recipe.config)
    require_fit(fit(recipe.config, plan, model_of(recipe), GPUS["A100-40"]), plan, model_of(recipe), GPUS["A100-40"])


def test_the_stages_reach_what_they_ask_for():
    def config(name):
        return read_recipe(HOME / RECIPES["cuda"], [*SMALL, *STAGES[name].overrides]).config

    bucket = config("sync").actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
    assert bucket << 20 < 4 * LARGE.feed_forward * LARGE.hidden
    assert config("async").trainer.v1.trainer_mode == "seal_async"
    one_gpu, offload = composed(HOME / "exp" / "SEAL_1gpu.yaml").actor_rollout_ref.actor, config("offload")
    for key in ("fsdp_config", "optim.override_optimizer_config"):
        assert OmegaConf.select(offload.actor_rollout_ref.actor, key) == OmegaConf.select(one_gpu, key)


def test_a_line_takes_the_place_of_its_stage_in_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"\n| {name} | {stage.asks.replace('|', '/')} |" in page for name, stage in STAGES.items())
    once = note("sync", "FAILED, a reason", page)
    again = note("sync", "ok, 12 s", once)
    assert "| FAILED, a reason |\n" in once and "FAILED" not in again and again.count("ok, 12 s") == 1
    assert len(again.splitlines()) == len(page.splitlines())


@pytest.fixture
def smi(monkeypatch, tmp_path):
    """A folder that `nvidia-smi` answers from: the file `gpus`; it fails if the file is missing."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\necho >>calls\nexec cat gpus\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "calls").touch()
    return tmp_path


def set_answer(smi, text: str) -> None:
    """Answer this from now on; written in one move, because the watcher reads all the time."""
    (smi / "new").write_text(text)
    (smi / "new").rename(smi / "gpus")


def wait_for_reading(smi) -> None:
    """Wait until the watcher has read the current answer."""
    calls = smi / "calls"
    enough = calls.stat().st_size + 3
    while calls.stat().st_size < enough:
        time.sleep(0.01)


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_the_peak_is_the_growth_of_the_gpu_that_grew_most(smi, process):
    set_answer(smi, "GPU-a, 500\nGPU-b, 9000\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        set_answer(smi, "GPU-a, 2500\nGPU-b, 9001\n")
        wait_for_reading(smi)
        set_answer(smi, "GPU-a, [N/A]\nGPU-b, 9000\n")
        wait_for_reading(smi)
    assert watch.peak == 2000 << 20


def test_a_failed_reading_costs_only_that_reading(smi, process):
    set_answer(smi, "GPU-a, 500\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        (smi / "gpus").unlink()
        wait_for_reading(smi)
        assert watch.peak == 0
        set_answer(smi, "GPU-a, 1200\n")
        wait_for_reading(smi)
    assert watch.peak == 700 << 20


def test_on_the_cpu_the_peak_is_what_the_program_s_processes_hold():
    holds = "import time; held = bytearray(64 << 20); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holds]) as process:
        with memory.PeakMemory(process.pid, "cpu", poll_s=0.01) as watch:
            deadline = time.monotonic() + 60
            while watch.peak < 64 << 20 and time.monotonic() < deadline:
                time.sleep(0.01)
        process.kill()
    assert 64 << 20 <= watch.peak < 256 << 20


def test_without_nvidia_smi_there_is_one_sentence(monkeypatch, smi, process):
    with pytest.raises(memory.NoAnswer, match="does not answer"):
        memory.PeakMemory(process.pid, "cuda")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(memory.NoAnswer, match="nvidia-smi is not installed"):
        memory.PeakMemory(process.pid, "cuda")


def test_an_environment_of_the_other_backend_is_refused_in_one_sentence():
    other = {"cpu": "cuda", "cuda": "cpu"}[built_for()]
    command = [sys.executable, "-m", "benchmarks.gpu", "--backend", other]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert f"bash install.sh --{other}" in done.stderr and len(done.stderr.splitlines()) == 1
