"""The notebook of the documentation, run on a run of real episodes."""

import json
from pathlib import Path

import matplotlib
import pytest

from seal.records.folder import RunFolder
from seal.records.step import read_steps
from seal.system.paths import HOME
from shelf.view.tests.viewer.played_run import write_run

NOTEBOOK = json.loads((HOME / "docs" / "notebooks" / "read_a_run.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("notebook") / "run", steps=3)


def test_the_cells_read_a_run(run, monkeypatch, capsys):
    matplotlib.use("Agg")
    monkeypatch.setenv("SEAL_RUN", str(run))
    names: dict = {}
    for cell in CODE:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    steps, _ = read_steps(RunFolder(run).steps)
    assert names["rewards"]["reward"].tolist() == [step.reward_mean for step in steps]
    assert names["labels"].sum(axis=1).tolist() == pytest.approx([1.0] * len(steps))
    assert list(names["averages"]) == [0, 3]
    assert len(names["trajectories"]) == sum(step.trajectories - sum(step.infra.values()) for step in steps)
    assert len(names["events"]) == sum(len(step.events) for step in steps)
    printed = capsys.readouterr().out
    record = names["record"]
    assert not record.passed and record.task_id in printed and record.messages[1]["content"][:100] in printed


def test_every_cell_was_run_and_kept_no_error():
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert all(cell["execution_count"] for cell in CODE)
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert not any(output.get("name") == "stderr" for output in outputs)
