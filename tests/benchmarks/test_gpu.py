"""The parts of the GPU smoke test that need no GPU: its stages, their lines, the page, the peak memory."""

import json
import os
import subprocess
import sys
import time

import pytest
from omegaconf import OmegaConf

from benchmarks import memory
from benchmarks.gpu import __main__ as smoke
from benchmarks.gpu.__main__ import PAGE, RECIPES, Played, note, stages
from benchmarks.gpu.shapes import make
from seal.launch.recipe import read_recipe
from seal.records.folder import READY, START, RunFolder
from seal.records.step import StepRecord
from seal.system.paths import HOME
from shelf.operate.fit import GPUS, ModelSizes, fit, require_fit
from shelf.operate.plan import KNOWN, model_of
from shelf.operate.selfcheck import built_for
from shelf.operate.step import step_plan
from shelf.testbed.policy.grow import LARGE
from tests.support.recipes import composed

SMALL = [f"actor_rollout_ref.model.path={HOME / 'data' / 'quickstart_policy'}"]
STAGES = stages()


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_every_stage_is_a_recipe_that_divides_and_fits_a_gpu(stage):
    recipe = read_recipe(HOME / (stage.recipe or RECIPES["cuda"]), [*stage.overrides, *stage.resumed, *SMALL])
    assert recipe.config.trainer.n_gpus_per_node == stage.gpus and stage.steps
    plan, gpu, model = step_plan(recipe.config), GPUS["A100-40"], model_of(recipe)
    if stage.shapes:
        gpu, model = GPUS["H100"], ModelSizes.of(json.loads(KNOWN.read_text(encoding="utf-8"))[stage.shapes])
    require_fit(fit(recipe.config, plan, model, gpu), plan, model, gpu)


def test_the_stages_reach_what_they_ask_for():
    def config(name):
        return read_recipe(HOME / RECIPES["cuda"], [*SMALL, *STAGES[name].overrides]).config

    bucket = config("run").actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes
    assert bucket << 20 < 4 * LARGE.feed_forward * LARGE.hidden
    assert config("async").trainer.v1.trainer_mode == "seal_async"
    one_gpu, offload = composed(HOME / "exp" / "SEAL_1gpu.yaml").actor_rollout_ref.actor, config("offload")
    for key in ("fsdp_config", "optim.override_optimizer_config"):
        assert OmegaConf.select(offload.actor_rollout_ref.actor, key) == OmegaConf.select(one_gpu, key)


def test_the_load_of_random_weights_is_known():
    """One message of a fixed length in each of a step's rollouts."""
    for stage in (stage for stage in STAGES.values() if stage.shapes):
        config = read_recipe(HOME / stage.recipe, [*stage.overrides, *SMALL]).config
        rollout = config.actor_rollout_ref.rollout
        assert config.data.train_batch_size * rollout.n == 64 and rollout.ignore_eos
        assert (config.seal.rollout.max_steps, config.seal.rollout.max_message_tokens) == (1, 512)


def test_a_model_with_random_weights_has_the_sizes_of_its_name(tmp_path):
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    make(name, tmp_path, str(HOME / "data" / "quickstart_policy"), layers=1)
    written, sizes = (json.loads(text) for text in ((tmp_path / "config.json").read_text(), KNOWN.read_text()))
    assert {key: written[key] for key in sizes[name]} == {**sizes[name], "num_hidden_layers": 1}
    assert (tmp_path / "tokenizer.json").exists() and (tmp_path / "model.safetensors").stat().st_size > 2 * 151936 * 896


def test_a_line_takes_the_place_of_its_part_in_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert all(page.count(f"\n| {part} | ") == 1 for stage in STAGES.values() for part in stage.parts)
    once = note("sync", "FAILED, a reason", page)
    again = note("sync", "ok, 12 s", once)
    assert "| FAILED, a reason |\n" in once and "a reason" not in again and again.count("ok, 12 s") == 1
    assert len(again.splitlines()) == len(page.splitlines())


@pytest.fixture
def run(tmp_path):
    """The folder of a stage's run: its start, its launches, and steps with a save at 2 and a validation at 4."""

    def left(steps: int, launches: list[int], ready: bool = True) -> RunFolder:
        folder = RunFolder(tmp_path)
        folder.steps.parent.mkdir(parents=True)
        stages = [*START, *([READY] if ready else [])]
        times = [{"time": 10.0 * place, "stage": stage} for place, stage in enumerate(stages)]
        again = [{**line, "time": line["time"] + 1000} for line in times] * (len(launches) - 1)
        seconds = {"gen": 2.0, "update_actor": 1.0, "step": 4.0, "update_weights": 0.5}
        also = {2: {"save_checkpoint": 3.0}, 4: {"testing": 7.0}}
        records = [
            StepRecord(number, seconds=seconds | also.get(number, {}), tokens={"out": 100}, logp_diff_mean=0.01)
            for number in range(1, steps + 1)
        ]
        starts = [{"step": step} for step in launches]
        for path, lines in (
            (folder.start, times + again),
            (folder.launches, starts),
            (folder.steps, [record.line() for record in records]),
        ):
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return left


PEAKS = memory.Peak(3 << 30, own=True), memory.Peak(5 << 30, own=False)


def lines(folder, failed=None, peaks=PEAKS):
    return dict(Played(STAGES["run"], folder, peaks, " (planned 6.0 GiB)", failed).lines())


def test_each_part_of_a_run_shows_its_own_figures(run):
    found = lines(run(7, [0, 6]))
    assert list(found) == list(STAGES["run"].parts) and all(line.startswith("ok, ") for line in found.values())
    assert found["start"] == f"ok, {10 * len(START)} s: " + ", ".join(f"{stage} 10" for stage in START)
    assert "gen 2, 2, 2" in found["step"] and "tokens_per_s 50, 50" in found["step"]
    assert found["sync"].startswith("ok, update_weights 0.5, 0.5") and "logp_diff_mean 0.01" in found["sync"]
    assert found["save"] == "ok, save_checkpoint 3 in steps 2"
    assert found["validation"] == "ok, testing 7 in steps 4"
    assert found["resume"].endswith("; peak 3.0 GiB, 5.0 GiB on the whole GPU (planned 6.0 GiB)")


def test_a_failed_launch_leaves_the_lines_of_what_worked(run):
    found = lines(run(3, [0]), "code 3: out of memory", ())
    assert all(found[part].startswith("ok, ") for part in ("start", "step", "sync", "save"))
    assert (found["validation"], found["resume"]) == ("FAILED, code 3: out of memory", "not reached")


def test_a_run_that_never_began_says_where_it_stopped(run):
    found = lines(run(0, [0], ready=False), None, ())
    assert (
        found["start"].startswith("FAILED, no rollouts began") and found["step"] == "FAILED, the log has the steps []"
    )


@pytest.fixture
def launched(monkeypatch):
    """A program in the place of a launch."""
    monkeypatch.setattr(smoke, "LOOK_S", 0.1)
    started = []

    def start(script: str) -> subprocess.Popen:
        started.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_launch_is_looked_at_while_it_runs(launched):
    looks = []
    assert smoke.followed(launched("import time; time.sleep(1); print('ended')"), lambda: looks.append(1)) == "ended\n"
    assert looks


def test_a_launch_ends_at_its_deadline(launched, monkeypatch):
    monkeypatch.setattr(smoke, "DEADLINE_S", 0.5)
    with pytest.raises(smoke.Failed, match="not done within"):
        smoke.followed(launched("import time; time.sleep(60)"), lambda: None)


def test_a_second_launch_that_began_again_is_no_resume(run):
    assert lines(run(7, [0, 0]))["resume"] == "FAILED, launches began after the steps [0, 0]"


@pytest.fixture
def smi(monkeypatch, tmp_path):
    """A folder that `nvidia-smi` answers from: `apps` and `gpus`; it fails if the file is missing."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncd {tmp_path}\necho >>calls\n"
        'case "$1" in *compute-apps*) exec cat apps ;; *) exec cat gpus ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "calls").touch()
    return tmp_path


def set_answer(smi, name: str, text: str) -> None:
    """Answer this from now on; written in one move, because the watcher reads all the time."""
    (smi / "new").write_text(text)
    (smi / "new").rename(smi / name)


def wait_for_reading(smi) -> None:
    """Wait until the watcher has read the current answer."""
    calls = smi / "calls"
    enough = calls.stat().st_size + 5
    while calls.stat().st_size < enough:
        time.sleep(0.01)


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_the_peak_counts_the_run_s_own_processes(smi, process):
    set_answer(smi, "gpus", "GPU-a, 70000\nGPU-b, 9000\n")
    set_answer(smi, "apps", f"GPU-a, {process.pid}, 1000\nGPU-a, 1, 60000\nGPU-b, 1, 9000\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        wait_for_reading(smi)
        set_answer(smi, "apps", f"GPU-a, {process.pid}, 3000\nGPU-a, 1, 10\n")
        wait_for_reading(smi)
        set_answer(smi, "apps", "")
        wait_for_reading(smi)
    assert watch.peak == memory.Peak(3000 << 20, own=True)


def test_if_processes_are_hidden_the_peak_is_the_device_s_growth_and_says_so(smi, process):
    set_answer(smi, "gpus", "GPU-a, 500\nGPU-b, 9000\n")
    set_answer(smi, "apps", f"GPU-a, {process.pid}, [N/A]\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        set_answer(smi, "gpus", "GPU-a, 2500\nGPU-b, 9001\n")
        wait_for_reading(smi)
        set_answer(smi, "gpus", "GPU-a, [N/A]\nGPU-b, 9000\n")
        wait_for_reading(smi)
    assert watch.peak == memory.Peak(2000 << 20, own=False)


def test_a_failed_reading_costs_only_that_reading(smi, process):
    set_answer(smi, "gpus", "GPU-a, 500\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        wait_for_reading(smi)
        assert watch.peak.bytes is None and str(watch.peak) == "unknown"
        set_answer(smi, "apps", f"GPU-a, {process.pid}, 700\n")
        wait_for_reading(smi)
    assert watch.peak.bytes == 700 << 20


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
