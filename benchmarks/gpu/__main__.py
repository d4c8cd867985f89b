"""Does the path work on a GPU? `python -m benchmarks.gpu [--stage NAME]... [--policy MODEL]`, or `make gpu-smoke`.

Each stage of stages.yaml trains a step or two through the launcher, with the committed policy grown to 100M parameters
(`shelf.testbed.policy.grow`), within DEADLINE_S, and ends with one line that can be pasted: its seconds, log-prob
differences between engine and trainer, tokens per second, peak memory and what was planned, or why it failed. The line
also takes its place in benchmarks/gpu.md. On the CPU path (--backend cpu) stages run exp/quickstart.yaml.
"""

import argparse
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console

from benchmarks.memory import NoAnswer, PeakMemory, query
from seal.launch.recipe import read_recipe
from seal.records.folder import RunFolder
from seal.records.step import read_steps
from seal.system.net import free_port
from seal.system.paths import HOME
from seal.system.processes import stop_tree
from shelf.operate.fit import GIB, gpu_named
from shelf.operate.plan import RunPlan, model_of
from shelf.operate.selfcheck import built_for
from shelf.statistics.log import read_log

RECIPES = {"cuda": "exp/gpu_smoke.yaml", "cpu": "exp/quickstart.yaml"}
PAGE = HOME / "benchmarks" / "gpu.md"
DEADLINE_S = 480
STOP_GRACE_S = 20
STOP_DEADLINE_S = STOP_GRACE_S + 40
SAID = re.compile(r"error: .*")
BENCH = re.compile(r"([\d.]+) output tokens/s")


class Failed(Exception):
    """A stage did not end well; the text says why in one line."""


class Stage(NamedTuple):
    """A stage as stages.yaml has it. gpus: that it needs; cuda: only there; policy: only with --policy."""

    name: str
    asks: str
    steps: tuple[int, ...] = (2,)
    overrides: tuple[str, ...] = ()
    gpus: int = 1
    cuda: bool = False
    policy: bool = False
    recipe: str | None = None


def stages() -> dict[str, Stage]:
    """All stages by name, in their order."""
    read = yaml.safe_load((Path(__file__).parent / "stages.yaml").read_text(encoding="utf-8"))
    return {name: Stage(name, **{key: _fixed(value) for key, value in each.items()}) for name, each in read.items()}


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def run(stage: Stage, backend: str, overrides: Sequence[str]) -> str:
    """Play a stage; what it measured as one line. Failed if a launch ends badly or too late."""
    name, begun = f"gpu_smoke-{stage.name}-{time.strftime('%H%M%S')}", time.monotonic()
    recipe, peaks = stage.recipe or RECIPES[backend], []
    chosen = [*overrides, *stage.overrides, f"trainer.experiment_name={name}", f"seal.stop_grace_s={STOP_GRACE_S}"]
    for steps in stage.steps:
        last = [f"trainer.total_training_steps={steps}", f"env_service.env_url=http://127.0.0.1:{free_port()}"]
        command = [sys.executable, "launcher.py", "--conf", recipe, "--with-bfcl", "--", *chosen, *last]
        peaks.append(_launch(command, backend, DEADLINE_S - (time.monotonic() - begun)))
    folder = RunFolder(HOME / "experiments" / name)
    logged, _ = read_steps(folder.steps)
    if [step.step for step in logged] != list(range(1, stage.steps[-1] + 1)):
        raise Failed(f"the log has the steps {[step.step for step in logged]}")
    last, means = logged[-1], [step.logp_diff_mean for step in logged if step.logp_diff_mean is not None]
    rows = read_log(folder.trajectories / f"{last.step}.jsonl").without_bad()
    speed = sum(row.tokens for row in rows) / last.seconds["gen"]
    times = ", ".join(f"{what} {last.seconds[what]:.1f}" for what in ("gen", "update_actor", "step"))
    peak = max(peaks) / GIB
    planned = ""
    if backend == "cuda":
        plan = RunPlan.of(read_recipe(HOME / recipe, [*chosen, f"trainer.total_training_steps={stage.steps[-1]}"]))
        gpu, memory = query("gpu", "name", "memory.total")[0]
        fit = plan.on(gpu_named(gpu, int(memory) << 20), model_of(plan.recipe))
        planned = f" (planned {max(sum(fit.rollout.values()), sum(fit.update.values())) / GIB:.1f})"
    compared = (
        f"log-probs differ by {statistics.mean(means):.1e}, {max(means):.1e} at most" if means else "not compared"
    )
    line = (
        f"{time.monotonic() - begun:.0f} s; step {last.step}: {times} s; {compared}; {speed:.0f} tokens/s in rollouts"
    )
    line += f"; peak {peak:.1f} GiB{planned}"
    return line + (_vllm_alone(plan, rows) if stage.name == "throughput" else "")


def _launch(command: Sequence[str], backend: str, seconds: float) -> int:
    """Launch a run to its end; its peak memory in bytes."""
    process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        with PeakMemory(process.pid, backend) as watch:
            output, _ = process.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {DEADLINE_S} s") from None
    finally:
        stop_tree(process, STOP_DEADLINE_S)
    if process.returncode:
        said = SAID.findall(output) or output.strip().splitlines()[-1:] or [""]
        raise Failed(f"code {process.returncode}: {said[-1]}")
    return watch.peak


def _vllm_alone(plan: RunPlan, rows: Sequence[Any]) -> str:
    """Tokens per second of vLLM's own benchmark with the same number of requests, of the same mean lengths."""
    config = plan.recipe.config.actor_rollout_ref
    sampled = max(1, sum(row.tokens for row in rows) // len(rows))
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "throughput", "--model", config.model.path]
    command += ["--dataset-name", "random", "--input-len", str(int(plan.work.prompt)), "--output-len", str(sampled)]
    command += ["--num-prompts", str(len(rows)), "--max-model-len", str(config.rollout.max_model_len)]
    command += ["--gpu-memory-utilization", str(config.rollout.gpu_memory_utilization)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    found = BENCH.search(done.stdout)
    return f"; vLLM alone {found[1]} tokens/s" if found else f"; vLLM's benchmark failed with code {done.returncode}"


def machine(backend: str) -> str:
    """The GPUs and the versions behind a line."""
    gpus = query("gpu", "name", "driver_version") if backend == "cuda" else []
    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "verl", "vllm"))
    return f"{len(gpus)} x {gpus[0][0]}, driver {gpus[0][1]}, {packages}" if gpus else f"no GPU, {packages}"


def note(stage: str, line: str, page: str) -> str:
    """The page with a stage's line in its row."""
    row = re.compile(rf"^(\| {stage} \| [^|]* \|).*$", re.MULTILINE)
    return row.sub(lambda match: f"{match[1]} {line} |", page)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = stages()
    parser.add_argument(
        "--stage", action="append", choices=list(known), help="only this one (default: all that can run)"
    )
    parser.add_argument("--policy", help="a model for the stage `policy`, for instance Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--backend", choices=sorted(RECIPES), default="cuda")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of every stage's recipe")
    options = parser.parse_args()
    backend, console = options.backend, Console(soft_wrap=True, highlight=False)
    if (built := built_for()) != backend:
        raise SystemExit(
            f"{sys.executable} was set up for --{built}, not for --backend {backend}: activate the environment that "
            f"`bash install.sh --{backend}` makes, or pass --backend {built}."
        )
    try:
        where, gpus = machine(backend), len(query("gpu", "name")) if backend == "cuda" else 1
    except NoAnswer as error:
        raise SystemExit(f"{error}: pass --backend cpu, or run `seal doctor`.") from error
    able = [each for each in known.values() if each.gpus <= gpus and (backend == "cuda" or not each.cuda)]
    chosen = [each for each in able if each.name in (options.stage or known) and (options.policy or not each.policy)]
    overrides = ["trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1", *options.overrides]
    small = []
    if backend == "cuda":
        # Deferred: it imports torch.
        from shelf.testbed.policy.grow import grow

        policy = HOME / "experiments" / "gpu_smoke_policy"
        grow(HOME / "data" / "quickstart_policy", policy)
        small = [f"actor_rollout_ref.model.path={policy}"]
    failed = 0
    for stage in chosen:
        model = [f"actor_rollout_ref.model.path={options.policy}"] if stage.policy else small
        try:
            line = f"ok, {run(stage, backend, [*overrides, *model])}"
        except Failed as error:
            failed, line = failed + 1, f"FAILED, {error}"
        except KeyboardInterrupt:
            console.print("interrupted; everything that was started is stopped")
            return 128 + signal.SIGINT
        console.print(f"gpu-smoke {stage.name}: {line} [{where}]", markup=False)
        if backend == "cuda":
            PAGE.write_text(note(stage.name, f"{line} ({where})", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
