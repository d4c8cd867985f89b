"""What a training step costs: `python -m benchmarks.gpu [--backend cuda|cpu] [--steps N]`, or `make gpu-smoke`.

Trains N steps of vanilla GRPO and of SEAL through the launcher, from the same
policy with the same seed, and reads their logs: seconds per step by stage, tokens
per second of the rollout, the log-prob difference between engine and trainer after each weight
sync, and the peak memory. On CUDA it uses exp/gpu_smoke.yaml with the committed
policy grown to 100M parameters (`shelf.testbed.policy.grow`); on the CPU exp/quickstart.yaml.
"""

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Self

import psutil
from rich.console import Console

from benchmarks.memory import POLL_S, NoAnswer, Peak, PeakMemory, query
from seal.records.folder import RunFolder
from seal.records.step import StepRecord, read_steps
from seal.records.validation import read_log
from seal.system.net import free_port
from seal.system.paths import HOME
from seal.system.processes import stop_tree
from shelf.operate.doctor import installed
from shelf.operate.selfcheck import built_for

RECIPES = {"cuda": "exp/gpu_smoke.yaml", "cpu": "exp/quickstart.yaml"}
ARMS = {"vanilla": ["seal.enabled=false"], "SEAL": []}
RUN_DEADLINE_S = 2 * 3600
STOP_GRACE_S = 60
STOP_DEADLINE_S = STOP_GRACE_S + 120
GIB = 1 << 30
PEAK = "peak_memory.json"
STAGES = {
    "gen": "rollout",
    "old_log_prob": "old log-probs",
    "ref": "reference log-probs",
    "adv": "advantages, labels, weights",
    "update_actor": "actor update",
    "update_weights": "weight sync",
    "step": "whole step",
}
"""verl's names of the stages, in words."""
ALLOCATED = re.compile(r"actor/perf/max_memory_allocated_gb:([\d.]+)")


class Arm(NamedTuple):
    """A finished run: its steps as logged, the tokens that each sampled, and its peak memory.

    trainer_gib: the trainer's own peak that verl logged, None if it logged none.
    """

    name: str
    steps: tuple[StepRecord, ...]
    tokens: tuple[int, ...]
    peak: Peak
    trainer_gib: float | None

    @classmethod
    def read(cls, name: str, run_dir: Path) -> Self:
        folder = RunFolder(run_dir)
        steps, _ = read_steps(folder.steps)
        files = [folder.trajectories / f"{step.step}.jsonl" for step in steps]
        tokens = tuple(sum(line.tokens for line in read_log(file).without_bad()) for file in files)
        peak = json.loads((run_dir / PEAK).read_text(encoding="utf-8"))
        allocated = ALLOCATED.findall(folder.train_log.read_text(encoding="utf-8", errors="replace"))
        largest = max(map(float, allocated), default=None)
        return cls(name, steps, tokens, Peak(**peak | {"gpus": tuple(peak["gpus"])}), largest)

    @property
    def measured(self) -> range:
        """Which steps count: the first one also compiles and allocates, so it counts only if there is no other."""
        return range(1 if len(self.steps) > 1 else 0, len(self.steps))

    def seconds(self, stage: str) -> float | None:
        """Median seconds of a stage over the measured steps; None if verl has no such stage."""
        values = [self.steps[i].seconds.get(stage) for i in self.measured]
        return None if None in values else statistics.median(values)

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens per second of rollout, environment included."""
        return sum(self.tokens[i] for i in self.measured) / sum(self.steps[i].seconds["gen"] for i in self.measured)

    @property
    def differences(self) -> list[float]:
        """Largest log-prob difference between engine and trainer, of the steps that compared them."""
        return [step.logp_diff_max for step in self.steps if step.logp_diff_max is not None]


def run_arm(name: str, backend: str, overrides: Sequence[str], console: Console) -> Arm:
    """Train through the launcher, as a user would; SystemExit with one sentence if that fails."""
    experiment = f"gpu_smoke-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    run_dir = HOME / "experiments" / experiment
    command = [sys.executable, "launcher.py", "--conf", RECIPES[backend], "--with-bfcl", "--resume", "never", "--"]
    command += [f"trainer.experiment_name={experiment}", f"env_service.env_url=http://127.0.0.1:{free_port()}"]
    command += [*overrides, *ARMS[name]]
    console.print(f"{name}: {' '.join(command[1:])}", highlight=False, soft_wrap=True, markup=False)
    process = subprocess.Popen(command, cwd=HOME)
    try:
        with PeakMemory(process.pid, backend) as watch:
            code = process.wait(RUN_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{name} did not finish within {RUN_DEADLINE_S} s; see {run_dir / 'train.log'}.") from None
    finally:
        stop_tree(process, STOP_DEADLINE_S)
    if code != 0:
        raise SystemExit(f"{name} ended with code {code}; see {run_dir / 'train.log'}.")
    (run_dir / PEAK).write_text(json.dumps(asdict(watch.peak)), encoding="utf-8")
    return Arm.read(name, run_dir)


def page(backend: str, command: str, machine: str, arms: Sequence[Arm]) -> str:
    """The figures as Markdown."""
    head = f" | {' | '.join(arm.name for arm in arms)} |"
    rule = "| --- |" + " --- |" * len(arms)
    lines = ["# A training step on a GPU, as measured", ""]
    if backend == "cpu":
        lines += [
            "**These are not figures of a GPU.** `make gpu-smoke` on a CUDA machine replaces this page. Until then it",
            "shows the same program on the CPU backend, with the quickstart's policy of two million parameters.",
            "",
        ]
    steps = len(arms[0].steps)
    counted = {1: "the only step", 2: "step 2"}.get(steps, f"median of steps 2 to {steps}")
    lines += [
        f"    {command}",
        "",
        f"{time.strftime('%Y-%m-%d')}; {machine}.",
        "",
        f"Seconds per step by stage ({counted}; {arms[0].steps[-1].trajectories} trajectories per step):",
        "",
        f"| stage{head}",
        rule,
        *(_row(words, (arm.seconds(stage) for arm in arms), ".2f") for stage, words in STAGES.items()),
        "",
        f"| {head}",
        rule,
        _row("sampled tokens per step", (statistics.mean(arm.tokens) for arm in arms), ".0f"),
        _row("rollout, tokens/s, environment included", (arm.tokens_per_s for arm in arms), ".0f"),
        _row("largest log-prob difference after a sync", (max(arm.differences) for arm in arms), ".1e"),
        _row("peak memory, GiB", (arm.peak.gib for arm in arms), ".1f"),
        _row("the trainer's own peak, as verl logs it, GiB", (arm.trainer_gib for arm in arms), ".1f"),
        "",
        "Largest log-prob difference of any token between engine and trainer, by step:",
        "",
    ]
    lines += [f"- {arm.name}: {', '.join(f'{value:.1e}' for value in arm.differences)}" for arm in arms]
    notes = dict.fromkeys(arm.peak.note for arm in arms)
    lines += ["", *(f"Peak memory, read every {POLL_S:.0f} s: {note}." for note in notes), ""]
    return "\n".join(lines)


def gpu_names() -> dict[str, str]:
    """Name, memory and driver of each GPU, by UUID."""
    rows = query("gpu", "uuid", "name", "memory.total", "driver_version")
    return {uuid: f"{name}, {mib} MiB, driver {driver}" for uuid, name, mib, driver in rows}


def machine(gpus: Sequence[str]) -> str:
    """The machine and the versions behind the figures."""
    packages = ", ".join(
        f"{name} {installed(name) or 'not installed'}" for name in ("torch", "verl", "vllm", "ray", "flash-attn")
    )
    memory = psutil.virtual_memory().total / GIB
    host = f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}; {packages}"
    return f"{'; '.join(gpus) or 'no GPU'}, {host}"


def _row(what: str, values: Iterable[float | None], form: str) -> str:
    return f"| {what} | {' | '.join('-' if value is None else format(value, form) for value in values)} |"


def benchmark(options: argparse.Namespace, console: Console) -> None:
    """Train both arms and write the page; SystemExit with one sentence if that is not possible."""
    built = built_for()
    if built != options.backend:
        raise SystemExit(
            f"{sys.executable} was set up for --{built}, not for --backend {options.backend}: activate the environment "
            f"that `bash install.sh --{options.backend}` makes, or pass --backend {built}."
        )
    names = gpu_names() if options.backend == "cuda" else {}
    overrides = [f"trainer.total_training_steps={options.steps}", "trainer.val_before_train=false"]
    overrides += ["trainer.test_freq=-1", "trainer.save_freq=-1", f"seal.stop_grace_s={STOP_GRACE_S}"]
    if options.backend == "cuda":
        # Deferred: it imports torch.
        from shelf.testbed.policy.grow import grow

        policy = HOME / "experiments" / "gpu_smoke_policy"
        parameters = grow(HOME / "data" / "quickstart_policy", policy)
        console.print(f"policy of {parameters / 1e6:.0f}M parameters in {policy}", highlight=False)
        overrides.append(f"actor_rollout_ref.model.path={policy.resolve()}")
    overrides += options.overrides
    arms = [run_arm(name, options.backend, overrides, console) for name in ARMS]
    command = " ".join(["python -m benchmarks.gpu", *sys.argv[1:]])
    used = {gpu for arm in arms for gpu in arm.peak.gpus} or names
    text = page(options.backend, command, machine([names[gpu] for gpu in names if gpu in used]), arms)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    out = options.out or (HOME / "benchmarks" / "gpu.md" if options.backend == "cuda" else None)
    if out:
        out.write_text(text, encoding="utf-8")
        console.print(f"written to {out}", highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=sorted(RECIPES), default="cuda")
    parser.add_argument("--steps", type=int, default=10, help="training steps of each of the two runs")
    parser.add_argument("--out", type=Path, help="Markdown file to write (default on CUDA: benchmarks/gpu.md)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of the recipe, for both runs")
    options = parser.parse_args()
    console = Console()
    try:
        benchmark(options, console)
    except NoAnswer as error:
        raise SystemExit(f"{error}: pass --backend cpu, or run `seal doctor`.") from error
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started is stopped", highlight=False)
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
