"""Does the path work on a GPU? `python -m benchmarks.gpu [--stage NAME]... [key=value]...`, or `make gpu-smoke`.

A stage of stages.yaml is one run of the launcher, with the committed policy grown to 100M parameters
(`shelf.testbed.policy.grow`). By default it is `run`: six steps, and a seventh after a resume. Each launch has
DEADLINE_S. Each part of a stage ends with a line that can be pasted: its figures, or why it failed or was not reached;
the line also takes its place in benchmarks/speed.md while the run goes on, because a rented machine can be lost. On
the CPU path (--backend cpu) stages run exp/quickstart.yaml.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml
from rich.console import Console

from benchmarks.memory import NoAnswer, Peak, PeakMemory, query
from seal.launch.console import JsonlTail
from seal.launch.recipe import Recipe, read_recipe
from seal.records.folder import READY, RunFolder
from seal.records.step import StepRecord, read_steps
from seal.system.files import write_text
from seal.system.net import free_port
from seal.system.paths import HOME
from seal.system.processes import stop_tree
from shelf.operate.fit import GIB, fit, gpu_named
from shelf.operate.plan import model_of
from shelf.operate.selfcheck import built_for
from shelf.operate.step import step_plan
from shelf.testbed.policy.grow import grow

RECIPES = {"cuda": "exp/gpu_smoke.yaml", "cpu": "exp/quickstart.yaml"}
PAGE = HOME / "benchmarks" / "speed.md"
DEADLINE_S, LOOK_S = 480, 5
STOP_GRACE_S = 20
SHAPES = "experiments/gpu_smoke_shapes"
LOAD = (
    f"actor_rollout_ref.model.path={SHAPES}",
    "actor_rollout_ref.rollout.ignore_eos=true",
    "seal.rollout.max_message_tokens=512",
    "seal.rollout.max_steps=1",
    "data.train_batch_size=8",
    "trainer.n_gpus_per_node=1",
    "seal.min_free_gb=5",
    "seal.data.val=[{split: eval, limit: 1}]",
)
"""The load of a stage with random weights: 64 rollouts a step, each with one message of 512 tokens."""
SAID = re.compile(r"error: .*")


class Failed(Exception):
    """A launch did not end well, or a part left no trace; the text says why in one line."""


class Part(NamedTuple):
    """A row of the page: the steps that must have been trained for it, None for all, and the figures that it shows."""

    steps: int | None = None
    shows: Sequence[str] = ("gen", "update_actor", "step", "tokens_per_s", "logp_diff_mean")


class Stage(NamedTuple):
    """A stage as stages.yaml has it. gpus: that it needs; cuda: only there; shapes: its model's sizes (shapes.py)."""

    name: str
    parts: Mapping[str, Part]
    steps: Sequence[int] = (2,)
    overrides: Sequence[str] = ()
    resumed: Sequence[str] = ()
    gpus: int = 1
    cuda: bool = False
    recipe: str | None = None
    shapes: str | None = None


def stages() -> dict[str, Stage]:
    """All stages by name, in their order."""
    read = yaml.safe_load((Path(__file__).parent / "stages.yaml").read_text(encoding="utf-8"))
    parts = {name: each.pop("parts", {name: {}}) for name, each in read.items()}
    rows = {name: {part: Part(**values) for part, values in each.items()} for name, each in parts.items()}
    for each in read.values():
        if "shapes" in each:
            each["overrides"] = [*LOAD, *each["overrides"]]
    return {name: Stage(name, rows[name], **each) for name, each in read.items()}


class Played(NamedTuple):
    """What the launches of a stage left: peaks of those that ended well, and why the last one did not."""

    stage: Stage
    folder: RunFolder
    peaks: Sequence[Peak]
    planned: str
    failed: str | None

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each part with its line. The first one without traces has the reason of a failed launch."""
        reason = self.failed
        for name, part in self.stage.parts.items():
            try:
                yield name, f"ok, {self._start() if part.steps == 0 else self._trained(part)}"
            except Failed as error:
                yield name, f"FAILED, {reason or error}" if reason or not self.failed else "not reached"
                reason = None

    def _start(self) -> str:
        """The seconds of the first launch's start."""
        begun = {line["stage"]: line["time"] for line in reversed([*JsonlTail(self.folder.start, 0)])}
        if READY not in begun:
            raise Failed(f"no rollouts began; stages of the start: {', '.join(begun)}")
        pairs = pairwise(sorted(begun.items(), key=lambda each: each[1]))
        each = ", ".join(f"{stage} {after - at:.0f}" for (stage, at), (_, after) in pairs)
        return f"{max(begun.values()) - min(begun.values()):.0f} s: {each}"

    def _trained(self, part: Part) -> str:
        """The figures of the steps, and of the launches if the part needs all of them."""
        logged = read_steps(self.folder.steps)[0] if self.folder.steps.exists() else ()
        numbers, needed = [step.step for step in logged], part.steps or self.stage.steps[-1]
        if numbers[:needed] != [*range(1, needed + 1)]:
            raise Failed(f"the log has the steps {numbers}")
        line = "; ".join(_values(name, logged) for name in part.shows)
        if part.steps is None:
            begun = [line["step"] for line in JsonlTail(self.folder.launches, 0)]
            if begun != [0, *self.stage.steps[:-1]]:
                raise Failed(f"launches began after the steps {begun}")
            line += f"; peak {', '.join(map(str, self.peaks))}{self.planned}"
        return line


def _values(name: str, logged: Sequence[StepRecord]) -> str:
    """A figure of each step that has it; Failed if none has, unless it is compared in some steps only."""
    found = {}
    for step in logged:
        more = {"logp_diff_mean": step.logp_diff_mean, "tokens_per_s": step.tokens.get("out", 0) / step.seconds["gen"]}
        if (value := {**step.seconds, **more}.get(name)) is not None:
            found[str(step.step)] = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    if not found and name != "logp_diff_mean":
        raise Failed(f"no step has {name}")
    return f"{name} {', '.join(found.values())} in steps {', '.join(found) or 'none'}"


def play(stage: Stage, backend: str, overrides: Sequence[str], keep: Callable[[str, str], None]) -> Played:
    """Play the launches of a stage until one fails; `keep` gets the lines of the parts that have worked so far."""
    name, recipe = f"gpu_smoke-{stage.name}-{time.strftime('%H%M%S')}", stage.recipe or RECIPES[backend]
    chosen = [*overrides, *stage.overrides, f"trainer.experiment_name={name}", f"seal.stop_grace_s={STOP_GRACE_S}"]
    peaks, planned, failed = [], "", None
    folder = RunFolder(HOME / "experiments" / name)

    def look() -> None:
        for part, line in Played(stage, folder, peaks, "", None).lines():
            if line.startswith("ok"):
                keep(part, line)

    for last in stage.steps:
        given = [*chosen, *(stage.resumed if peaks else ()), f"trainer.total_training_steps={last}"]
        port = f"env_service.env_url=http://127.0.0.1:{free_port()}"
        try:
            peaks.append(_launch(["--conf", recipe, "--with-bfcl", "--", *given, port], backend, look))
        except Failed as error:
            failed = str(error)
            break
    if backend == "cuda" and not failed:
        planned = f" (planned {_planned(read_recipe(HOME / recipe, given)) / GIB:.1f} GiB)"
    return Played(stage, folder, peaks, planned, failed)


def _planned(recipe: Recipe) -> float:
    gpu, memory = query("gpu", "name", "memory.total")[0]
    found = fit(recipe.config, step_plan(recipe.config), model_of(recipe), gpu_named(gpu, int(memory) << 20))
    return max(sum(found.rollout.values()), sum(found.update.values()))


def _launch(arguments: Sequence[str], backend: str, look: Callable[[], None]) -> Peak:
    command = [sys.executable, "launcher.py", *arguments]
    process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        with PeakMemory(process.pid, backend) as watch:
            output = followed(process, look)
    finally:
        stop_tree(process, STOP_GRACE_S + 40)
    if process.returncode:
        said = SAID.findall(output) or output.strip().splitlines()[-1:] or [""]
        raise Failed(f"code {process.returncode}: {said[-1]}")
    return watch.peak


def followed(process: subprocess.Popen, look: Callable[[], None]) -> str:
    """The output of a launch, once it has ended; until then `look` is called now and then. Failed after DEADLINE_S."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            return process.communicate(timeout=LOOK_S)[0]
        except subprocess.TimeoutExpired:
            look()
    raise Failed(f"not done within {DEADLINE_S} s")


def note(part: str, line: str, page: str) -> str:
    """The page with a part's line in its row."""
    return re.sub(rf"(?m)^(\| {part} \| [^|]* \|).*$", lambda row: " ".join(filter(None, (row[1], line, "|"))), page)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    known = stages()
    parser.add_argument("--stage", action="append", choices=list(known), help="another one than `run`")
    parser.add_argument("--backend", choices=sorted(RECIPES), default="cuda")
    parser.add_argument("--tokenizer", help="a folder, for stages with random weights; default: the model's on the hub")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of every stage's recipe")
    options = parser.parse_args()
    backend, console = options.backend, Console(emoji=False, soft_wrap=True, highlight=False)
    if (built := built_for()) != backend:
        raise SystemExit(f"Activate what `bash install.sh --{backend}` makes, or pass --backend {built}.")
    try:
        gpus = query("gpu", "name", "driver_version") if backend == "cuda" else [["CPU"]]
    except NoAnswer as error:
        raise SystemExit(f"{error}: pass --backend cpu, or run `seal doctor`.") from error
    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "verl", "vllm"))
    where = f"{len(gpus)} x {', driver '.join(gpus[0])}, {packages}"
    chosen = [known[name] for name in options.stage or ["run"]]
    if unable := [stage.name for stage in chosen if stage.gpus > len(gpus) or (stage.cuda and backend == "cpu")]:
        raise SystemExit(f"{', '.join(unable)}: needs more or other GPUs than there are here.")
    overrides = ["trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1", *options.overrides]
    if backend == "cuda":
        grow(HOME / "data" / "quickstart_policy", HOME / "experiments" / "gpu_smoke_policy")

    def keep(part: str, line: str) -> None:
        if backend == "cuda":
            write_text(note(part, line and f"{line} ({where})", PAGE.read_text(encoding="utf-8")), PAGE)

    well = True
    for stage in chosen:
        for part in stage.parts:
            keep(part, "")  # what another machine left
        if stage.shapes:
            make = [sys.executable, "-m", "benchmarks.gpu.shapes", stage.shapes, SHAPES]
            subprocess.run([*make, *(["--tokenizer", options.tokenizer] if options.tokenizer else [])], check=True)
        for part, line in play(stage, backend, overrides, keep).lines():
            well &= line.startswith("ok")
            console.print(f"gpu-smoke {part}: {line} [{where}]", markup=False)
            keep(part, line)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
