"""Make the tasks of the quickstart: those that a policy passes sometimes, and held-out ones.

    python scripts/test_bed.py --policy data/quickstart_policy --out data

Writes test_bed/{train,held_out,evidence,probe}.jsonl and quickstart_band.json. Candidates are synthesised tasks of
the level `train` and first turns of the benchmark's training scenarios; the policy plays each six times at T = 1, in
training episodes with schema and feedback cues. The held-out tasks and those of the probe follow from the seeds alone.
"""

import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from seal.data.selection import selected_rows
from seal.interface.cues import Omega
from seal.launch.recipe import compose_recipe
from seal.settings import SealSettings
from seal.settings.data import Selection, Source
from seal.system.net import free_port
from seal.system.paths import HOME
from shelf.suites.bfcl.benchmark import Evaluation, evaluate
from shelf.suites.bfcl.episode import EpisodeSettings
from shelf.suites.bfcl.serving import served_checkpoint
from shelf.suites.chat import Sampling
from shelf.testbed.band import find_band
from shelf.testbed.policy.dialogue import PROMPT_MODE
from shelf.testbed.policy.renaming import CUED
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SamplerSettings

CUES = ("schema_required", "feedback_tools", "feedback_error", "feedback_history", "feedback_answer")
SAMPLES, MOST_STEPS, MESSAGE_TOKENS, CONCURRENCY = 6, 12, 128, 32
ORDINARY, CUED_ONES = 120, 80
"""How many tasks of the band are trained on: those without and with a tool whose arguments only a cue tells."""
HELD_OUT, HELD_OUT_CUED = 40, 16
"""Of each held-out level, and how many of these need such a tool."""
EVIDENCE, EVIDENCE_CUED = 160, 40
"""Further held-out tasks with new words, so that an experiment finds small differences."""
TEACHER, TEACHER_CUED = 320, 80
"""Held-out tasks of the experiment on the teacher, and how many need such a tool, one that the quickstart trains."""
PROBE, PROBE_CUED = 48, 24
BASE = "base"
QUICKSTART = HOME / "exp" / "quickstart_teacher.yaml"


def made(count: int, seed: int, level: str, turns: dict[int, float]) -> list[MadeTask]:
    """Synthesised tasks; turns: weights of the number of requests."""
    return list(synthesise(Grammar(), count, seed, level, SamplerSettings(turns=turns)))


def needs_cue(task: MadeTask) -> bool:
    """Whether a task needs a tool whose arguments no lesson of the policy names."""
    return bool(cued_tools(task))


def cued_tools(task: MadeTask) -> frozenset[str]:
    """These tools."""
    return frozenset(call.split("(")[0] for turn in task.task.reference for call in turn) & frozenset(CUED)


def candidates() -> list[MadeTask]:
    """Tasks to choose from: any with one or two requests, and more of those that need a cue."""
    ordinary = made(360, 21, "train", {1: 0.4, 2: 0.6})
    cued = [task for task in made(700, 24, "train", {1: 0.8, 2: 0.2}) if needs_cue(task)][:130]
    return list({task.id: task for task in (*ordinary, *cued)}.values())


def mixed(count: int, seed: int, level: str, cued: int, category: str = "") -> list[MadeTask]:
    """`count` tasks, in turn one that needs a cue (`cued` in all) and one that does not; of one category or of any."""
    pool = [task for task in made(600, seed, level, {1: 0.6, 2: 0.4}) if task.category.startswith(category)]
    with_cue = [task for task in pool if needs_cue(task)][:cued]
    without = [task for task in pool if not needs_cue(task)][: count - cued]
    return [task for pair in zip_longest(without, with_cue) for task in pair if task]


def teacher_tasks(shown: frozenset[str]) -> tuple[list[MadeTask], list[str]]:
    """Held-out tasks with new words, and the ids of those that need a cue; shown: the tools of training tasks."""
    pool = [task for task in made(1400, 26, "values", {1: 0.6, 2: 0.4}) if task.category.startswith(BASE)]
    cued = [task for task in pool if needs_cue(task) and cued_tools(task) <= shown][:TEACHER_CUED]
    without = [task for task in pool if not needs_cue(task)][: TEACHER - len(cued)]
    return [*without, *cued], [task.id for task in cued]


@contextmanager
def player(policy: Path, folder: Path) -> Iterator[Any]:
    """A function that plays the tasks of a selection and returns their band."""
    omega = Omega.of(CUES).to_json()
    with served_checkpoint(policy, "policy", "", folder / "vllm.log") as base_url:

        def band(name: str, selection: Selection, files: Sequence[str] = ()) -> dict[str, Any]:
            rows = selected_rows(selection)
            evaluation = Evaluation(
                rows=rows,
                model="policy",
                out=folder / name,
                env_url=f"http://127.0.0.1:{free_port()}",
                base_url=base_url,
                samples=SAMPLES,
                sampling=Sampling(1.0, max_tokens=MESSAGE_TOKENS),
                episode=EpisodeSettings(PROMPT_MODE, MOST_STEPS, params={"split": "train", "omega": omega}),
                concurrency=CONCURRENCY,
                task_files=files,
            )
            progress = iter(track(range(len(rows) * SAMPLES), name, console=Console(stderr=True)))
            outcome = evaluate(evaluation, lambda _: None, lambda _: next(progress, None))
            return find_band(outcome.log)

        yield band


def main(
    policy: Annotated[Path, typer.Option(help="The policy that plays.")] = Path("data/quickstart_policy"),
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("data"),
) -> None:
    """Make the tasks of the quickstart."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    pool = candidates()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        file = folder / "candidates.jsonl"
        write_task_file(pool, file)
        band = stack.enter_context(player(policy, folder))
        synthesised = band("synthesised", Selection(mixture=(Source(tasks=str(file)),)), [str(file)])
        benchmark = band("benchmark", Selection(categories=("base",), prefix_turns=(1,)))
    rates = {entry["task_id"]: entry for entry in synthesised["tasks"]}
    inside = [task for task in pool if task.id in rates]
    train = [task for task in inside if not needs_cue(task)][:ORDINARY]
    train += [task for task in inside if needs_cue(task)][:CUED_ONES]
    random.Random(0).shuffle(train)
    trained = {task.id for task in train}
    levels = (mixed(HELD_OUT, 22, level, HELD_OUT_CUED, BASE) for level in ("values", "phrases", "paths"))
    write_task_file(train, out / "test_bed" / "train.jsonl")
    write_task_file(list(chain.from_iterable(levels)), out / "test_bed" / "held_out.jsonl")
    write_task_file(mixed(EVIDENCE, 25, "values", EVIDENCE_CUED, BASE), out / "test_bed" / "evidence.jsonl")
    probe = [task for task in mixed(PROBE, 23, "train", PROBE_CUED) if task.id not in trained]
    write_task_file(probe, out / "test_bed" / "probe.jsonl")
    quickstart = {row.task_id for row in selected_rows(SealSettings.of(compose_recipe(QUICKSTART, [])).data.train)}
    shown = frozenset().union(*(cued_tools(task) for task in train if task.id in quickstart))
    teacher, ids = teacher_tasks(shown)
    write_task_file(teacher, out / "test_bed" / "teacher.jsonl")
    (out / "test_bed" / "teacher_cued.json").write_text(json.dumps(ids, indent=1) + "\n", encoding="utf-8")
    found = {
        "low": synthesised["low"],
        "high": synthesised["high"],
        "measured": synthesised["measured"] + benchmark["measured"],
        "tasks": [rates[task.id] for task in train] + benchmark["tasks"],
        "data_hashes": synthesised["data_hashes"],
    }
    (out / "quickstart_band.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    Console().print(
        f"{len(train)} of {synthesised['measured']} synthesised tasks, {len(benchmark['tasks'])} first turns"
    )


if __name__ == "__main__":
    typer.run(main)
