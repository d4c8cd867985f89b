"""`seal policy`: make a small policy from scratch, and measure how often it passes.

seal policy make --out data/quickstart_policy --seed 0            # one core, about an hour
seal policy make --out big --size 100m --device cuda --tokens 200e6 --tasks 200000
seal policy measure --policy data/quickstart_policy --turns 1 --samples 16
"""

import json
import os
import sys
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from seal.cli.commands import option
from shelf.suites.cli.evaluate import select
from shelf.suites.cli.evaluate_play import play
from shelf.suites.cli.shared import FAILED, one_sentence

SIDES = {"train": "train", "evaluation": "eval"}
LONGEST_MESSAGE = 128
MOST_MESSAGES = 10
CONCURRENCY = 128

app = typer.Typer(help="Make a small policy from scratch, and measure it.", no_args_is_help=True, add_completion=False)
_network = partial(option, panel="Network")
_data = partial(option, panel="Data (training side only)")
_training = partial(option, panel="Warm start")


@app.command()
def make(
    out: Annotated[Path, option("Folder to write.")],
    seed: int = 0,
    threads: Annotated[int, option("CPU threads; one is best beside other work.")] = 1,
    device: Annotated[str, option("cpu or cuda.")] = "cpu",
    size: Annotated[Literal["tiny", "small", "100m"], _network("Shape.")] = "small",
    vocab: Annotated[int, _network("Tokens in the vocabulary.")] = 3072,
    context: Annotated[int, _network("Longest dialogue in tokens; longer ones are left out.")] = 2048,
    tasks: Annotated[int, _data("Synthesised tasks.")] = 36_000,
    variants: Annotated[
        str, _data("Verified variants per benchmark task, as base=25,miss_func=8; other categories are not used.")
    ] = "base=20,miss_func=4,miss_param=4",
    first_turn_share: Annotated[float, _data("Share of those that ends after the first turn.")] = 0.4,
    cue_share: Annotated[float, _data("Share of dialogues with cues.")] = 0.55,
    slip_share: Annotated[float, _data("Share of those with a mistake that is corrected.")] = 0.35,
    renamed_share: Annotated[float, _data("Share of those with a schema cue whose arguments are renamed.")] = 0.5,
    tokens: Annotated[float, _training("Budget, padding included.")] = 18e6,
    batch_tokens: Annotated[int, _training("Tokens per step.")] = 1600,
    muon_lr: Annotated[float, _training("Peak rate for matrices.")] = 0.015,
    adam_lr: Annotated[float, _training("Peak rate for all other parameters.")] = 0.008,
) -> None:
    """Make a policy from scratch: tokenizer, network, warm start."""
    with one_sentence("seal policy make"):
        import torch

        from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
        from shelf.testbed.policy.corpus import CorpusSettings, read_variants
        from shelf.testbed.policy.lessons import LessonSettings
        from shelf.testbed.policy.make import RECORD, Plan
        from shelf.testbed.policy.make import make as make_policy
        from shelf.testbed.policy.synthetic import SyntheticSettings
        from shelf.testbed.policy.warm_start import WarmStartSettings

        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError(f"--device {device}: torch sees no CUDA device here; leave it out to use the CPU.")
        torch.set_num_threads(threads)
        plan = Plan(
            seed=seed,
            size=size,
            vocab_size=vocab,
            context=context,
            corpus=CorpusSettings(TRAIN_SCENARIOS, read_variants(variants), first_turn_share),
            synthetic=SyntheticSettings(tasks),
            lessons=LessonSettings(cue_share, slip_share, renamed_share=renamed_share),
            training=WarmStartSettings(int(tokens), batch_tokens, muon_lr, adam_lr),
        )
        console = Console()
        record = make_policy(plan, out, ["seal", *sys.argv[1:]], device, console)
    megabytes = (out / "model.safetensors").stat().st_size / 1e6
    loss = record["log"][-1]["loss"] if record["log"] else "not measured, for want of steps on whole lessons"
    console.print(
        f"{out}: {record['parameters'] / 1e6:.2f}M parameters ({megabytes:.1f} MB), last loss {loss}, "
        f"{record['cpu_seconds']:.0f} CPU seconds; all of it in {out / RECORD}."
    )


@app.command()
def measure(
    policy: Annotated[Path, option("The folder that make wrote, or any like it.")],
    turns: Annotated[int, option("First turns to play; 0 for whole tasks.", least=0)] = 1,
    samples: Annotated[int, option("Rollouts per task at temperature 1.", least=1)] = 16,
    category: Annotated[str, option("Category of the tasks.")] = "base",
    cues: Annotated[
        Literal["none", "empty", "all"],
        option("none: plain episodes; empty, all: training episodes with no cue, with every cue."),
    ] = "none",
    sets: Annotated[str, option(f"Any of {', '.join(SIDES)}.")] = "train,evaluation",
    seed: int = 0,
    threads: Annotated[int, option("CPU threads.", least=1)] = 1,
    out: Annotated[Path | None, option("Keep the logs in this folder, and resume from them.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also append the figures to this file.")] = None,
) -> None:
    """Sample how often a policy passes, greedily and at temperature 1; exit code 1 if rollouts failed."""
    with one_sentence("seal policy measure"), ExitStack() as stack:
        from seal.interface.cues import Omega, catalogue
        from seal.statistics.tables import console as wide_console
        from seal.system.net import free_port
        from shelf.suites.bfcl.benchmark import Evaluation
        from shelf.suites.bfcl.episode import EpisodeSettings
        from shelf.suites.bfcl.serving import served_checkpoint
        from shelf.suites.chat import Sampling
        from shelf.testbed.policy.dialogue import PROMPT_MODE

        console = wide_console()
        if unknown := [name for name in sets.split(",") if name not in SIDES]:
            raise ValueError(f"--sets: there is no set {unknown[0]!r}; choose from {', '.join(SIDES)}.")
        omega = {"none": None, "empty": Omega(), "all": Omega.of(list(catalogue()))}[cues]
        params = {"split": "train", "omega": omega.to_json()} if omega else {}
        prefix = [turns] if turns else None
        rows = {name: select(SIDES[name], categories=[category], prefix_turns=prefix) for name in sets.split(",")}
        os.environ["OMP_NUM_THREADS"] = str(threads)
        folder = out or Path(stack.enter_context(TemporaryDirectory()))
        evaluation = partial(
            Evaluation,
            model=str(policy),
            base_url=stack.enter_context(served_checkpoint(policy, str(policy), "", folder / "vllm.log")),
            episode=EpisodeSettings(PROMPT_MODE, MOST_MESSAGES, seed=seed, params=params),
            env_url=f"http://127.0.0.1:{free_port()}",
            concurrency=CONCURRENCY,
        )
        failed = 0
        for name, (temperature, count) in product(rows, ((0.0, 1), (1.0, samples))):
            sampling = Sampling(temperature, max_tokens=LONGEST_MESSAGE)
            place = folder / f"{name}_{temperature:g}"
            outcome = play(
                evaluation(rows=rows[name], out=place, samples=count, sampling=sampling),
                f"{name}, T = {temperature:g}",
                console,
            )
            failed += outcome.failed
            figures = _show_figures(outcome.log, f"{name}, T = {temperature:g}, cues {cues}", console)
            if json_file:
                line = {"policy": str(policy), "set": name, "first_turns": turns, "cues": cues, "seed": seed}
                with json_file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line | {"temperature": temperature} | figures) + "\n")
    if failed:
        console.print(f"{failed} rollouts failed for reasons other than the policy and are not counted.", style="red")
        raise typer.Exit(FAILED)


def _show_figures(log_file: Path, title: str, console: Console) -> dict[str, Any]:
    """Print a log's rates, and how many tasks passed sometimes; return both for --json."""
    from seal.records.validation import read_log
    from seal.statistics.summary import informative, summarise
    from seal.statistics.tables import percent, summary_record, summary_table

    log = read_log(log_file)
    (row,) = informative(summarise(log))
    console.print(summary_table([row], title, {}))
    error = row.rate and row.rate.standard_error
    if error is not None:
        console.print(f"standard error over tasks: {percent(error)} points", highlight=False)
    sometimes = None
    if row.samples > 1:
        outcomes = {(line.task_id, line.passed) for line in log.lines if line.infra is None}
        sometimes = sum((task, False) in outcomes for task, passed in outcomes if passed)
        console.print(f"{sometimes} of {row.tasks} tasks passed sometimes, but not always", highlight=False)
    return {"band": sometimes, "standard_error": error} | summary_record(row, "with")


@app.command()
def band(
    log: Annotated[Path, option("Validation log with several samples per task.", "FILE")],
    out: Annotated[Path, option("JSON file to write.", "FILE")],
    low: Annotated[float, option("Pass rate strictly above.")] = 0.0,
    high: Annotated[float, option("Pass rate strictly below.")] = 1.0,
) -> None:
    """Find the training tasks that a policy solves sometimes."""
    from seal.system.files import write_json
    from shelf.testbed.band import find_band

    with one_sentence("seal policy band"):
        made = find_band(log, low, high)
        write_json(made, out)
    samples = sum(task["n"] for task in made["tasks"])
    mean = sum(task["passed"] for task in made["tasks"]) / samples
    typer.echo(
        f"{out}: {len(made['tasks'])} of {made['measured']} tasks have a pass rate between {low:g} and {high:g} "
        f"(mean {mean:.3f} over {samples} samples)"
    )
