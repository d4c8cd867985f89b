"""`python -m seal.policy make` makes a policy; `measure` samples how often it passes first turns.

python -m seal.policy make --out data/quickstart_policy --seed 0            # 2 cores, about 6 minutes
python -m seal.policy make --out big --size 100m --device cuda --tokens 20e6 --variants base=100
python -m seal.policy measure --policy data/quickstart_policy --turns 1 --samples 16
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress, TaskID

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.splits import CATEGORIES, EVAL_SCENARIOS, TRAIN_SCENARIOS, task_id
from seal.interface.cues import Omega, catalogue
from seal.policy.corpus import CorpusSettings, fresh_variants, training_tasks, vocabulary
from seal.policy.make import RECORD, Plan, make
from seal.policy.model import SIZES
from seal.policy.warm_start import WarmStartSettings

SETS = ("train", "fresh", "evaluation")
CUES = ("none", "empty", "all")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m seal.policy", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    _add_make(commands.add_parser("make", help="make a policy from nothing"))
    _add_measure(commands.add_parser("measure", help="sample pass rates of a policy"))
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(options.threads)
    try:
        return _make(options, arguments or sys.argv[1:]) if options.command == "make" else _measure(options)
    except ValueError as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        return 2


def _add_make(parser: argparse.ArgumentParser) -> None:
    corpus, training = CorpusSettings(), WarmStartSettings()
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; one is best beside other work")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    group = parser.add_argument_group("network")
    group.add_argument("--size", choices=SIZES, default="small")
    group.add_argument("--vocab", type=int, default=2048, help="tokens in the vocabulary")
    group.add_argument("--context", type=int, default=2048, help="longest dialogue in tokens; others are left out")
    group = parser.add_argument_group("data (training scenarios only)")
    group.add_argument(
        "--variants",
        default=",".join(f"{name}={count}" for name, count in corpus.variants),
        help="verified variants of each task by category, as base=25,miss_func=8; a category left out is not used",
    )
    group.add_argument("--cue-share", type=float, default=corpus.cue_share, help="share of dialogues with cues")
    group.add_argument("--slip-share", type=float, default=corpus.slip_share, help="share of these with a mistake")
    group.add_argument(
        "--first-turn-share", type=float, default=corpus.first_turn_share, help="share cut after the first turn"
    )
    group = parser.add_argument_group("warm start")
    group.add_argument("--tokens", type=float, default=training.tokens, help="budget, padding included")
    group.add_argument("--batch-tokens", type=int, default=training.batch_tokens, help="tokens a step")
    group.add_argument("--muon-lr", type=float, default=training.muon_lr, help="peak rate for matrices")
    group.add_argument("--adam-lr", type=float, default=training.adam_lr, help="peak rate for all else")


def _add_measure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", type=Path, required=True, help="folder that make wrote, or any like it")
    parser.add_argument("--turns", type=int, default=1, help="first turns to play; 0 for whole tasks")
    parser.add_argument("--samples", type=int, default=16, help="episodes a task at temperature 1")
    parser.add_argument("--category", choices=CATEGORIES, default="base")
    parser.add_argument(
        "--cues",
        choices=CUES,
        default="none",
        help="none: episodes of evaluation; empty, all: episodes of training without a cue, with every cue",
    )
    parser.add_argument("--sets", default="train,evaluation", help=f"any of {', '.join(SETS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None, help="also append the figures to this file")


def _make(options: argparse.Namespace, arguments: list[str]) -> int:
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {options.device}: torch sees no CUDA device here; leave it out to use the CPU.")
    plan = Plan(
        seed=options.seed,
        size=options.size,
        vocab_size=options.vocab,
        context=options.context,
        corpus=CorpusSettings(
            variants=_variants(options.variants),
            cue_share=options.cue_share,
            slip_share=options.slip_share,
            first_turn_share=options.first_turn_share,
        ),
        training=WarmStartSettings(
            tokens=int(options.tokens),
            batch_tokens=options.batch_tokens,
            muon_lr=options.muon_lr,
            adam_lr=options.adam_lr,
        ),
    )
    console = Console()
    command = ["python", "-m", "seal.policy", *arguments]
    record = make(plan, options.out, command, options.device, console)
    megabytes = (options.out / "model.safetensors").stat().st_size / 1e6
    console.print(
        f"{options.out}: {record['parameters'] / 1e6:.2f}M parameters ({megabytes:.1f} MB), last loss "
        f"{record['log'][-1]['loss']}, {record['cpu_seconds']:.0f} CPU seconds; all of it in {options.out / RECORD}."
    )
    return 0


def _variants(text: str) -> tuple[tuple[str, int], ...]:
    pairs = []
    for item in text.split(","):
        name, _, count = item.partition("=")
        if name not in CATEGORIES or not count.isdigit():
            raise ValueError(f"--variants: {item!r} is not CATEGORY=NUMBER with CATEGORY in {', '.join(CATEGORIES)}.")
        pairs.append((name, int(count)))
    return tuple(pairs)


def _measure(options: argparse.Namespace) -> int:
    # Deferred: importing vLLM takes seconds and `make` runs without it.
    from seal.policy.measure import Sampler

    chosen = options.sets.split(",")
    for name in chosen:
        if name not in SETS:
            raise ValueError(f"--sets: there is no set {name!r}; choose from {', '.join(SETS)}.")
    if not (options.policy / "config.json").is_file():
        raise ValueError(
            f"--policy: {options.policy} holds no config.json; make one with `python -m seal.policy make`."
        )
    console = Console()
    sampler = Sampler(options.policy, options.seed)
    omega = {"none": None, "empty": Omega(), "all": Omega.of(list(catalogue()))}[options.cues]
    for name in chosen:
        tasks = [_cut(task, options.turns) for task in _tasks(name, options.category)]
        for temperature, samples in ((0.0, 1), (1.0, options.samples)):
            with Progress(console=console, transient=True) as progress:
                bar = progress.add_task(f"{name}, T = {temperature:g}", total=len(tasks) * samples)
                result = sampler.run(tasks, samples, temperature, partial(_show, progress, bar), omega)
            shares = ", ".join(f"{outcome} {share:.2f}" for outcome, share in result.outcomes.items())
            console.print(
                f"{name:<10} {options.category}, {options.turns or 'all'} turn(s), cues {options.cues}, "
                f"T = {temperature:g}: "
                f"{result.rate:.3f} +- {result.error:.3f} (n = {result.tasks} x {samples}), "
                f"{result.band} tasks strictly between 0 and 1; {shares}"
            )
            if options.json:
                line = {"policy": str(options.policy), "set": name, "category": options.category}
                line |= {"turns": options.turns, "cues": options.cues, "temperature": temperature, "seed": options.seed}
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line | asdict(result)) + "\n")
    return 0


def _show(progress: Progress, bar: TaskID, done: int) -> None:
    progress.update(bar, completed=done)


def _tasks(name: str, category: str) -> list[Task]:
    tasks = load_tasks()
    scenarios = EVAL_SCENARIOS if name == "evaluation" else TRAIN_SCENARIOS
    found = [tasks[task_id(category, scenario)] for scenario in scenarios]
    if name == "fresh":
        return fresh_variants(found, vocabulary(training_tasks(CorpusSettings())), seed=321)
    return found


def _cut(task: Task, turns: int) -> Task:
    return task.prefix(min(turns, len(task.users))) if turns else task


if __name__ == "__main__":
    sys.exit(main())
