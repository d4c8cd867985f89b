"""Synthesised tasks in evaluation and in the validation of a run: rows, categories, verdicts, statistics, export."""

import json
import shutil

import pytest
from omegaconf import OmegaConf

from env_service.environments.bfcl.splits import task_ids
from env_service.environments.bfcl.task_file import read_task_file, write_task_file
from seal.data.rows import write_rows
from seal.data.selection import selected_rows
from seal.records.benchmark import parse_task_id
from seal.records.trajectory import TrajectoryRecord
from seal.records.validation import validation_averages
from seal.settings.data import DataSettings
from seal.system.net import free_port
from shelf.statistics.cli.stats import app as stats
from shelf.statistics.log import read_log
from shelf.statistics.summary import summarise
from shelf.suites.cli.evaluate import app
from shelf.suites.serving import environment_service
from shelf.task_rows import read_rows
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.support.commands import run

PER_LEVEL = 10


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of two held-out levels and of the level train."""
    folder = tmp_path_factory.mktemp("files")
    for level in ("values", "phrases", "train"):
        write_task_file(synthesise(Grammar(), PER_LEVEL, 3, level), folder / f"{level}.jsonl")
    write_task_file(
        [task for level in ("values", "phrases", "train") for task in read_task_file(folder / f"{level}.jsonl")],
        folder / "all.jsonl",
    )
    return folder


@pytest.fixture(scope="module")
def played(files, endpoint_url, tmp_path_factory):
    """An evaluation of tasks of a file and of the benchmark, with a service that it starts; later one runs there."""
    out, url = tmp_path_factory.mktemp("played") / "out", f"http://127.0.0.1:{free_port()}"
    arguments = ["bfcl", "--base-url", f"{endpoint_url}/v1", "--model", "scripted", "--env-url", url]
    arguments += ["--tasks", "bfcl", files / "all.jsonl", "--categories", "base", "--limit", PER_LEVEL, "--out", out]
    assert run(app, arguments) == 0
    with environment_service(url, out / "later.log", [str(files / "all.jsonl")]):
        yield out, arguments


@pytest.fixture(scope="module")
def endpoint_url(files, start_endpoint):
    """The address of a scripted endpoint that knows the tasks of the files."""
    with start_endpoint("--tasks", str(files / "all.jsonl")) as url:
        yield url


def lines_of(out):
    return [json.loads(line) for line in (out / "validation_log" / "0.jsonl").read_text().splitlines()]


def test_made_tasks_are_played_beside_the_benchmark_with_their_categories_and_verdicts(files, played, fault_of):
    lines = lines_of(played[0])
    made = {task.id: task for task in read_task_file(files / "all.jsonl") if task.category == "base"}
    benchmark = [line for line in lines if line["task_id"] not in made]
    assert {line["task_id"] for line in lines} - {line["task_id"] for line in benchmark} == set(made)
    assert len(benchmark) == PER_LEVEL and {line["data_source"] for line in benchmark} == {"base"}
    for line in lines:
        if line["task_id"] in made:
            task = made[line["task_id"]]
            assert line["data_source"] == line["category"] == f"synth_{task.level}_base"
            assert line["split"] == ("train" if task.level == "train" else "eval")
            assert len(line["evidence"]) == line["turns"] == len(task.users)
        sure = {"none": 1.0, "wrong_tool": 0.0, "context": 0.0}
        if (fault := fault_of(parse_task_id(line["task_id"])[1])) in sure:
            assert line["score"] == sure[fault], (line["task_id"], fault)


def test_the_same_command_again_plays_nothing(played, capsys):
    out, arguments = played
    before = (out / "validation_log" / "0.jsonl").read_bytes()
    assert run(app, arguments) == 0
    assert "0 rollouts played" in capsys.readouterr().out
    assert (out / "validation_log" / "0.jsonl").read_bytes() == before


def test_statistics_list_the_made_categories_and_average_over_the_benchmark(played, capsys):
    out, _ = played
    rows = {row.name: row for row in summarise(read_log(out / "validation_log" / "0.jsonl"))}
    assert list(rows) == ["base", "synth_train_base", "synth_values_base", "synth_phrases_base", "average"]
    assert rows["average"].rate.rate == rows["base"].rate.rate
    assert rows["average"].tasks == PER_LEVEL
    assert run(stats, ["--val-dir", out]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in rows if name != "average")


def test_the_export_says_that_made_tasks_are_left_out(played, files, tmp_path, capsys):
    out, _ = played
    count = sum(task.category == "base" for task in read_task_file(files / "all.jsonl"))
    assert run(app, ["export-bfcl", out, "--out", tmp_path / "official"]) == 0
    said = capsys.readouterr().out
    assert f"base {PER_LEVEL}" in said
    assert f"left out: {count} rollouts of synthesised tasks or of another environment (the" in said
    only = tmp_path / "validation_log" / "0.jsonl"
    only.parent.mkdir()
    only.write_text("".join(json.dumps(line) + "\n" for line in lines_of(out) if line["task_id"].startswith("synth_")))
    assert run(app, ["export-bfcl", only, "--out", tmp_path / "none"]) == 2
    assert f"left out: {count} rollouts of synthesised tasks" in capsys.readouterr().err


def test_tasks_that_a_running_service_lacks_are_played_at_one_of_its_own(
    files, service_url, endpoint_url, tmp_path, capsys
):
    arguments = ["bfcl", "--base-url", f"{endpoint_url}/v1", "--model", "scripted", "--out", tmp_path / "out"]
    assert run(app, [*arguments, "--env-url", service_url, "--tasks", files / "values.jsonl"]) == 0
    assert not any(line["infra"] for line in lines_of(tmp_path / "out"))
    assert run(app, [*arguments, "--env-url", service_url, "--tasks", "nowhere.jsonl"]) == 2
    assert "nowhere.jsonl does not exist" in capsys.readouterr().err


def test_prefixes_of_made_tasks_are_played_at_a_service_that_serves_them(files, played, tmp_path):
    _, arguments = played
    more = ["--tasks", files / "phrases.jsonl", "--prefix-turns", 1, "--limit", 2, "--out", tmp_path / "out"]
    assert run(app, [*arguments[: arguments.index("--tasks")], *more]) == 0
    lines = lines_of(tmp_path / "out")
    assert lines and all(line["data_source"].startswith("synth_phrases_") for line in lines)
    assert all(line["data_source"].endswith("@1") and len(line["evidence"]) == 1 for line in lines)


def test_a_validation_with_a_mixture_has_rows_records_and_statistics_of_every_category(files, played, tmp_path):
    """The launcher's rows for `seal.data.val`, and the statistics of a validation of these rows."""
    settings = OmegaConf.to_object(
        OmegaConf.create(
            {
                "val": [
                    {"split": "eval", "limit": 5},
                    {"split": "eval", "mixture": [{"tasks": str(files / "values.jsonl")}]},
                    {"split": "eval", "prefix_turns": 1, "mixture": [{"tasks": str(files / "phrases.jsonl")}]},
                ]
            }
        )
    )
    data = DataSettings.read(settings)
    assert data.task_files() == (str(files / "values.jsonl"), str(files / "phrases.jsonl"))
    rows = [row for selection in data.val for row in selected_rows(selection)]
    write_rows(rows, tmp_path / "val.parquet")
    assert read_rows(tmp_path / "val.parquet") == tuple(rows)
    assert {row.task_id for row in rows[:20]} <= set(task_ids()["eval"])
    assert {row.task_id for row in rows[20:30]} == {task.id for task in read_task_file(files / "values.jsonl")}
    assert all(row.data_source.endswith("@1") for row in rows[30:])

    log = tmp_path / "run" / "validation_log" / "0.jsonl"
    log.parent.mkdir(parents=True)
    records = [
        TrajectoryRecord(
            row.task_id, row.data_source, row.category, row.split, 0, float(number % 2), turns=1, step=0,
            labels=("pass" if number % 2 else "state_mismatch",), turns_passed=number % 2,
        )
        for number, row in enumerate(rows)
    ]  # fmt: skip
    log.write_text("".join(record.to_json() + "\n" for record in records))
    read = read_log(log)
    assert not read.bad
    whole, prefixes = validation_averages(read.lines)
    by_name = {row.name: row for row in summarise(read)}
    assert whole == pytest.approx(by_name["average"].rate.rate)
    assert prefixes == pytest.approx(by_name["average@1"].rate.rate)
    assert sum(row.tasks for name, row in by_name.items() if name.startswith("synth_values")) == PER_LEVEL
    assert by_name["average"].tasks == 20  # the benchmark's
    write_rows(rows, log.parents[1] / "val.parquet")
    assert run(stats, ["--val-dir", log.parents[1], "--parquet", tmp_path / "val.parquet"]) == 0
    shutil.copyfile(log, tmp_path / "whole.jsonl")
    log.write_text("".join(record.to_json() + "\n" for record in records[:-1]))
    assert run(stats, ["--val-dir", log.parents[1], "--parquet", tmp_path / "val.parquet"]) == 1
