"""Commands over the data: ``python -m seal.data prepare | check | select | band``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from env_service.environments.bfcl.splits import CATEGORIES, DEFAULT_SPLIT, SPLITS
from seal.data.band import find_band
from seal.data.prepare import FILES, MANIFEST, RELEASED_SPLIT, check, prepare, split_facts
from seal.data.selection import Selection, write_parquet
from seal.files import write_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it succeeded, 1 when a check found problems, 2 for bad input."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=True)
    try:
        return options.run(options, console)
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"seal.data {options.command}: {error}", markup=False)
        return 2


def _prepare(options: argparse.Namespace, console: Console) -> int:
    made = prepare(options.out, accept_changed_data=options.accept_changed_data)
    package = made["package"]
    console.print(f"{package['name']} {package['version']}, data {package['data_hash'][:16]}", highlight=False)
    for (scheme, side), file in FILES.items():
        rows = made["files"][file]["rows"]
        console.print(f"  {options.out / file}: {rows} rows ({scheme}, {side})", highlight=False)
    console.print(f"  {options.out / RELEASED_SPLIT}, {options.out / MANIFEST}", highlight=False)
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    problems = check(options.out)
    for facts in split_facts():
        verdict = "held out" if facts.held_out else "NOT held out"
        console.print(
            f"{facts.name}: {facts.train} train, {facts.eval} evaluation tasks; {len(facts.siblings)} evaluation tasks "
            f"have a sibling in train: {verdict}",
            highlight=False,
        )
        if options.siblings:
            for task in facts.siblings:
                console.print(f"  {task}", highlight=False)
    for problem in problems:
        Console(stderr=True, soft_wrap=True).print(problem, markup=False)
    if not problems:
        console.print(f"{options.out}: everything is as recorded")
    return 1 if problems else 0


def _select(options: argparse.Namespace, console: Console) -> int:
    filters = (name for name in Selection.model_fields if name != "labels_from")
    chosen = {name: getattr(options, name) for name in filters}
    if options.labels_from:
        run, label = options.labels_from
        chosen["labels_from"] = [{"run": run, "label": label}]
    count = write_parquet(Selection.read(chosen), options.out)
    console.print(f"{options.out}: {count} rows", highlight=False)
    return 0


def _band(options: argparse.Namespace, console: Console) -> int:
    band = find_band(options.log, options.low, options.high)
    write_json(band.to_json(), options.out)
    samples = sum(task.samples for task in band.tasks)
    mean = sum(task.passed for task in band.tasks) / samples
    console.print(
        f"{options.out}: {len(band.tasks)} of {band.measured} tasks have a pass rate between {band.low:g} and "
        f"{band.high:g} (mean {mean:.3f} over {samples} samples)",
        highlight=False,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m seal.data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    make = commands.add_parser("prepare", help="make the parquet files, the released split and the manifest")
    make.add_argument("--out", type=Path, default=Path("data"), help="folder (default: data)")
    make.add_argument("--accept-changed-data", action="store_true", help="record a package with other data")
    make.set_defaults(run=_prepare)

    verify = commands.add_parser("check", help="verify the files, the splits and the package's data")
    verify.add_argument("--out", type=Path, default=Path("data"), help="folder to check (default: data)")
    verify.add_argument("--siblings", action="store_true", help="name the evaluation tasks with a sibling in train")
    verify.set_defaults(run=_check)

    pick = commands.add_parser("select", help="write a parquet file of selected tasks or prefixes of them")
    pick.add_argument("--out", type=Path, required=True, help="parquet file to write")
    pick.add_argument("--split", choices=("train", "eval"), default="train", help="side (default: train)")
    pick.add_argument("--scheme", choices=SPLITS, default=DEFAULT_SPLIT, help="which split (default: scenario)")
    pick.add_argument("--categories", nargs="+", choices=CATEGORIES)
    pick.add_argument("--classes", nargs="+", help="tasks that use at least one of these simulators")
    pick.add_argument("--scenarios", nargs="+", type=int)
    pick.add_argument("--min-turns", type=int)
    pick.add_argument("--max-turns", type=int)
    pick.add_argument("--prefix-turns", nargs="+", type=int, help="keep only the first k user turns, for each k")
    pick.add_argument("--task-file", help="list of task ids, or a band")
    pick.add_argument("--labels-from", nargs=2, metavar=("RUN", "LABEL"), help="last label in an earlier run")
    pick.add_argument("--limit", type=int, help="at most so many rows of each data source, evenly spread")
    pick.set_defaults(run=_select)

    band = commands.add_parser("band", help="find the training tasks that are solved sometimes")
    band.add_argument("--log", type=Path, required=True, help="validation log with several samples a task")
    band.add_argument("--low", type=float, default=0.0, help="pass rate strictly above (default: 0)")
    band.add_argument("--high", type=float, default=1.0, help="pass rate strictly below (default: 1)")
    band.add_argument("--out", type=Path, required=True, help="JSON file to write")
    band.set_defaults(run=_band)
    return parser


if __name__ == "__main__":
    sys.exit(main())
