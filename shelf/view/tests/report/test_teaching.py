"""The report of a run with a teacher: what each cue taught, and how its lift changed."""

import json
import shutil

import pytest
from rich.console import Console

from shelf.view.report.run import read_run, teaching
from shelf.view.report.summary import summarise
from shelf.view.tests.report.sample_run import write_run

TASK = {"task_id": "multi_turn_base_0", "data_source": "base", "category": "base", "split": "train", "input": ""}


@pytest.fixture
def run(tmp_path):
    """Of eight steps; one cue lifts less and less, another is shown once and answers nothing."""
    folder = write_run(tmp_path / "run", steps=8, validations=())
    path = folder / "seal_log" / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (folder / "seal_log" / "trajectories").mkdir()
    for number, line in enumerate(lines):
        row = {"shown": 4, "passed": 4 - number // 2, "taught": 2, "prompts": 2, "lift": 0.8 - number / 10}
        line["teaching"] = {"bfcl/schema_required": row}
        if not number:
            line["teaching"]["bfcl/recover"] = {"shown": 2, "passed": 0, "taught": 0, "prompts": 0}
        rollouts = [{"cues": [], "score": 1.0}, {"cues": [], "score": 0.0}, {"cues": ["recover"], "score": 1.0}]
        text = "".join(json.dumps(TASK | {"sample": n} | each) + "\n" for n, each in enumerate(rollouts))
        (folder / "seal_log" / "trajectories" / f"{number + 1}.jsonl").write_text(text)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_picture_has_the_reward_of_rollouts_without_cues(run):
    assert read_run(run).rollouts.plain == dict.fromkeys(range(1, 9), 0.5)
    summarise(run)
    assert (run / "report.png").is_file()
    shutil.rmtree(run / "seal_log" / "trajectories")
    assert summarise(run)


def test_the_report_says_what_each_cue_taught(run):
    rows = teaching(read_run(run).steps[:2])
    assert rows["bfcl/schema_required"]["shown"] == 8 and rows["bfcl/schema_required"]["lift"] == pytest.approx(0.75)
    console = Console(width=80)
    with console.capture() as printed:
        console.print(*summarise(run))
    cells = {line.split()[0]: line.split()[1:] for line in printed.get().splitlines() if line.startswith(" bfcl/")}
    assert cells["bfcl/schema_required"] == ["32", "20", "16", "+0.65", "+0.25"]
    assert cells["bfcl/recover"] == ["2", "0", "0", "-", "-"]


def test_a_run_without_a_teacher_has_no_such_table(tmp_path):
    found = read_run(write_run(tmp_path / "run", steps=4, validations=()))
    assert not teaching(found.steps)
