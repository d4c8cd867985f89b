"""The parts of the GPU benchmark that need no GPU: the page, the peak memory."""

import json
import os
import subprocess
import sys
import time

import pytest

from benchmarks import memory
from benchmarks.gpu.__main__ import Arm, page
from seal.system.paths import HOME
from shelf.operate.selfcheck import built_for

TRAJECTORY = {
    "step": 1,
    "task_id": "multi_turn_base_0",
    "score": 0.0,
    "input": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    "output": [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "b"},
    ],
    "spans": [[0, 0, 5], [0, 9, 12]],
    "tokens": 8,
}


def write_run(folder, seconds):
    log = folder / "seal_log"
    (log / "trajectories").mkdir(parents=True)
    steps = [
        {"step": i + 1, "trajectories": 1, "logp_diff_max": 1e-3 * (i + 1), "seconds": {"gen": gen, "step": 2 * gen}}
        for i, gen in enumerate(seconds)
    ]
    (log / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    (folder / "peak_memory.json").write_text(json.dumps({"bytes": 3 << 30, "gpus": ["GPU-a"], "note": memory.OWN}))
    logged = "".join(
        f"step:{i} - actor/perf/max_memory_allocated_gb:{gib} - x:1\n" for i, gib in enumerate((1.5, 2.25))
    )
    (folder / "train.log").write_text(logged)
    for step in steps:
        (log / "trajectories" / f"{step['step']}.jsonl").write_text(json.dumps(TRAJECTORY) + "\n")


def test_the_page_leaves_out_the_first_step_and_says_if_it_has_not_run_on_cuda(tmp_path):
    write_run(tmp_path / "run", seconds=[100.0, 2.0, 4.0])
    arm = Arm.read("SEAL", tmp_path / "run")
    assert arm.seconds("gen") == 3.0 and arm.seconds("step") == 6.0 and arm.seconds("ref") is None
    assert arm.tokens_per_s == pytest.approx(16 / 6)
    text = page("cpu", "command", "machine", [arm])
    assert "not figures of a GPU" in text and "| rollout | 3.00 |" in text and "3.0e-03" in text
    assert "| peak memory, GiB | 3.0 |" in text and "as verl logs it, GiB | 2.2 |" in text and memory.OWN in text
    assert "not figures of a GPU" not in page("cuda", "command", "machine", [arm])


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
    assert watch.peak == memory.Peak(3000 << 20, ("GPU-a",), memory.OWN)


def test_if_processes_are_hidden_the_peak_is_the_device_s_growth_and_says_so(smi, process):
    set_answer(smi, "gpus", "GPU-a, 500\nGPU-b, 9000\n")
    set_answer(smi, "apps", f"GPU-a, {process.pid}, [N/A]\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        set_answer(smi, "gpus", "GPU-a, 2500\nGPU-b, 9001\n")
        wait_for_reading(smi)
        set_answer(smi, "gpus", "GPU-a, [N/A]\nGPU-b, 9000\n")
        wait_for_reading(smi)
    assert watch.peak == memory.Peak(2000 << 20, ("GPU-a",), memory.GROWTH)


def test_a_failed_reading_costs_only_that_reading(smi, process):
    set_answer(smi, "gpus", "GPU-a, 500\n")
    with memory.PeakMemory(process.pid, "cuda", poll_s=0.01) as watch:
        wait_for_reading(smi)
        assert watch.peak.bytes is None and memory.UNKNOWN in watch.peak.note
        set_answer(smi, "apps", f"GPU-a, {process.pid}, 700\n")
        wait_for_reading(smi)
    assert watch.peak.bytes == 700 << 20 and "readings failed" in watch.peak.note


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
