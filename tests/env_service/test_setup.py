"""The service can be set up alone, without torch or verl."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from env_service.environments.bfcl.catalog import data_hash, load_tasks
from tests.env_service.bfcl_perturbations import reference_calls, texts
from tests.env_service.bfcl_play import play_all

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_setup_makes_an_environment_in_which_the_service_runs(
    tmp_path: Path, start_service: Callable[..., AbstractContextManager[int]]
) -> None:
    ignore = shutil.ignore_patterns("__pycache__", ".service_venv", "bfcl_data")
    for name in ("env_service", "seal"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    folder = tmp_path / "env_service" / "environments" / "bfcl"
    environment = {**os.environ, "PYTHON": sys.executable, "BFCL_CONDA": "0"}
    subprocess.run(["bash", str(folder / "setup.sh")], check=True, env=environment, timeout=600)
    rows = (folder / "bfcl_data" / "multi_turn_processed.jsonl").read_text().splitlines()
    source = json.loads((folder / "bfcl_data" / "multi_turn_processed.source.json").read_text())
    assert (len(rows), source["tasks"], source["data_hash"]) == (800, 800, data_hash())
    python = folder / ".service_venv" / "bin" / "python"
    for name in ("torch", "verl"):
        assert subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 1
    command = ["bash", str(tmp_path / "env_service" / "launch_script" / "bfcl.sh")]
    with start_service(command=command, PYTHON="", PYTHONPATH="") as port:
        task = load_tasks()["multi_turn_base_0"]
        assert play_all(port, [(task.id, texts(reference_calls(task), None))])[0]["valid"]
