"""Making and checking ``data/``: parquet files, the released split, the manifest.

All come from the pinned ``bfcl-eval`` package, without network. Each machine makes its parquet files (``install.sh``
calls this). The JSON files are part of the repository, so that a changed package or split does not go unnoticed.
"""

import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

from env_service.environments.bfcl.catalog import data_hash
from env_service.environments.bfcl.splits import SPLITS, task_ids
from seal.data.rows import TaskRow, whole_rows, write_rows
from seal.records.benchmark import parse_task_id
from seal.system.files import json_hash, write_json
from shelf.task_rows import read_rows

MANIFEST = "manifest.json"
RELEASED_SPLIT = "bfcl_400_split.json"
"""The public release's file name: its guide, and programs that follow the guide, look for this file."""
FILES: dict[tuple[str, str], str] = {
    ("scenario", "train"): "bfcl_train.parquet",
    ("scenario", "eval"): "bfcl_eval_400.parquet",
    ("released_ids", "train"): "released_ids_train.parquet",
    ("released_ids", "eval"): "released_ids_eval.parquet",
}
"""The parquet file of each side of each split."""


def released_split() -> dict[str, list[str]]:
    """The public release's list of ids, regenerated in its order."""
    sides = task_ids("released_ids")
    return {"train": list(sides["train"]), "val": list(sides["eval"])}


def split_rows() -> dict[tuple[str, str], tuple[TaskRow, ...]]:
    """The rows of every side of every split."""
    return {(name, side): whole_rows(task_ids(name)[side], side) for name, side in FILES}


def leaks() -> dict[str, tuple[str, ...]]:
    """By split, the evaluation tasks whose scenario is also trained on."""
    return {name: siblings_in_train(task_ids(name)["train"], task_ids(name)["eval"]) for name in SPLITS}


def siblings_in_train(train: Iterable[str], held: Iterable[str]) -> tuple[str, ...]:
    """The evaluation tasks with another variant of the same scenario in training."""
    seen = {parse_task_id(task)[1] for task in train}
    return tuple(task for task in held if parse_task_id(task)[1] in seen)


def manifest() -> dict[str, Any]:
    """Hashes of the package's data and of every split."""
    return {
        "package": {"name": "bfcl-eval", "version": version("bfcl-eval"), "data_hash": data_hash()},
        "splits": {name: json_hash(task_ids(name)) for name in SPLITS},
    }


def prepare(out: Path | str, accept_changed_data: bool = False) -> dict[str, Any]:
    """Make every file under ``out`` and return the manifest.

    ValueError if ``out`` records benchmark data other than the installed package's, unless accept_changed_data.
    """
    out = Path(out)
    made = manifest()
    recorded = read_manifest(out) if (out / MANIFEST).is_file() else made
    if recorded["package"] != made["package"] and not accept_changed_data:
        raise ValueError(_changed(out, recorded["package"], made["package"]))
    for key, rows in split_rows().items():
        write_rows(rows, out / FILES[key])
    write_json(released_split(), out / RELEASED_SPLIT)
    write_json(made, out / MANIFEST)
    return made


def check(out: Path | str) -> list[str]:
    """One sentence per problem with ``out`` and the installed package; empty if there is none."""
    out = Path(out)
    try:
        recorded = read_manifest(out)
    except ValueError as error:
        return [str(error)]
    made = manifest()
    was, now = recorded["package"], made["package"]
    problems = [] if was == now else [_changed(out, was, now)]
    for name, digest in made["splits"].items():
        if recorded["splits"].get(name) != digest:
            problems.append(f"The split {name} differs from the one that {out / MANIFEST} records: run prepare again.")
    for key, rows in split_rows().items():
        try:
            if read_rows(out / FILES[key]) != rows:
                problems.append(f"{out / FILES[key]} does not hold the rows of its split: run prepare again.")
        except ValueError as error:
            problems.append(str(error))
    try:
        if json.loads((out / RELEASED_SPLIT).read_text(encoding="utf-8")) != released_split():
            problems.append(f"{out / RELEASED_SPLIT} differs from the released list: run prepare again.")
    except (OSError, ValueError) as error:
        problems.append(f"{out / RELEASED_SPLIT} cannot be read ({error}): run prepare again.")
    return problems


def read_manifest(out: Path | str) -> dict[str, Any]:
    """The recorded manifest; ValueError that names the file if it is missing or broken."""
    path = Path(out) / MANIFEST
    if not path.is_file():
        raise ValueError(f"{path} does not exist: run seal data prepare --out {quote(str(out))}.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return {name: dict(value[name]) for name in ("package", "splits")}
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is not a manifest ({error!r}): restore it from the repository.") from error


def _changed(out: Path, recorded: dict[str, str], made: dict[str, str]) -> str:
    return (
        f"The installed {made['name']} {made['version']} has data {made['data_hash'][:16]}, but {out / MANIFEST} "
        f"records {recorded.get('version')} with {str(recorded.get('data_hash'))[:16]}: install the recorded version, "
        "or accept the change with prepare --accept-changed-data (old results are then not comparable)."
    )
