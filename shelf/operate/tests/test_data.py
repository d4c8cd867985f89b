"""Preparing makes the same bytes every time, and checking notices what changed."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from env_service.environments.bfcl.splits import task_ids
from seal.data.rows import write_rows
from shelf.operate.cli.data import app
from shelf.operate.data import FILES, MANIFEST, RELEASED_SPLIT, check, prepare
from shelf.task_rows import read_rows
from tests.support.commands import run

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def made(tmp_path):
    prepare(tmp_path)
    return tmp_path


def test_two_runs_agree_to_the_byte(made, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    prepare(other)
    for file in (*FILES.values(), RELEASED_SPLIT, MANIFEST):
        assert (made / file).read_bytes() == (other / file).read_bytes(), file


def test_the_committed_files_are_the_ones_that_prepare_makes(made):
    for file in (RELEASED_SPLIT, MANIFEST):
        assert (made / file).read_bytes() == (REPOSITORY / "data" / file).read_bytes(), file


def test_rows_are_what_verl_reads(made):
    rows = pq.read_table(made / "bfcl_train.parquet").to_pylist()
    assert len(rows) == 400
    assert rows[0] == {
        "data_source": "base",
        "prompt": [{"role": "user", "content": "multi_turn_base_0"}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {
            "index": 0,
            "task_id": "multi_turn_base_0",
            "category": "base",
            "scenario": 0,
            "split": "train",
            "turns": -1,
            "withdrawal": None,
        },
    }
    assert sorted(row["extra_info"]["index"] for row in rows) == list(range(400))
    assert tuple(row["extra_info"]["task_id"] for row in rows) == task_ids()["train"]


def test_a_prepared_folder_checks_clean(made, capsys):
    assert run(app, ["check", "--out", str(made)]) == 0
    said = capsys.readouterr().out
    assert "0 evaluation tasks have a sibling" in said
    assert "344 evaluation tasks have a sibling" in said


def test_changed_package_data_is_refused_and_reported(made, capsys):
    manifest = json.loads((made / MANIFEST).read_text())
    manifest["package"]["data_hash"] = "0" * 64
    (made / MANIFEST).write_text(json.dumps(manifest))
    assert any("install the recorded version" in problem for problem in check(made))
    assert run(app, ["prepare", "--out", str(made)]) == 2
    assert "install the recorded version" in capsys.readouterr().err
    assert run(app, ["prepare", "--out", str(made), "--accept-changed-data"]) == 0
    assert check(made) == []


def test_rows_of_the_other_side_are_reported(made):
    write_rows(read_rows(made / "bfcl_train.parquet"), made / "bfcl_eval_400.parquet")
    problems = check(made)
    assert any("bfcl_eval_400.parquet does not hold the rows of its split" in problem for problem in problems)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "bfcl_train.parquet").write_bytes(b"PAR1"), "not a readable parquet file"),
        (lambda folder: (folder / "bfcl_train.parquet").unlink(), "does not exist"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "is not a manifest"),
        (lambda folder: (folder / MANIFEST).write_text('{"package": "x", "splits": {}}'), "is not a manifest"),
        (lambda folder: (folder / RELEASED_SPLIT).write_text('{"train": []}'), "differs from the released list"),
        (lambda folder: (folder / RELEASED_SPLIT).write_text('{"train": ['), "cannot be read"),
        (lambda folder: (folder / RELEASED_SPLIT).unlink(), "cannot be read"),
    ],
)
def test_damage_is_named(made, damage, said):
    damage(made)
    assert any(said in problem for problem in check(made))
