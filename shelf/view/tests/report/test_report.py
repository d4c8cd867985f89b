"""The end-of-run summary says what the logs say, for whole and for broken runs."""

import io
import json
import shlex
import statistics

import pytest
from rich.console import Console
from scipy import stats

from shelf.view.cli.report import app
from shelf.view.overview import changes
from shelf.view.report.run import Quarters, ranges, read_run
from shelf.view.report.summary import summarise
from shelf.view.tests.report.sample_run import write_run
from tests.support.commands import run


def text_of(parts):
    console = Console(file=io.StringIO(), width=120)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


def test_a_run_is_summarised_in_tables_and_a_picture(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)  # paths are shown relative to the working folder, and long ones are folded
    text = text_of(summarise(folder))
    for expected in (
        "base",
        "miss_func",
        "average",
        "state_mismatch",
        "required_arguments",
        "mean weight w",
        "global_step_40",
    ):
        assert expected in text
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")


def test_the_commands_that_a_summary_names_can_be_copied(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "my run")
    monkeypatch.chdir(tmp_path)
    named = [line[line.index("seal ") :] for line in text_of(summarise(folder)).splitlines() if " seal " in line]
    assert [shlex.split(command) for command in named] == [["seal", "view", "my run"], ["seal", "stats", "my run"]]


def test_a_summary_says_what_a_resume_changed_and_not_what_trained_nothing(tmp_path):
    folder = write_run(tmp_path / "run")
    rates = [(0, 1.0), (12, 2.0), (12, 3.0), (40, 4.0)]
    launches = [{"step": step, "config": {"seal": {"run_dir": f"/{rate}/run", "w_max": rate}}} for step, rate in rates]
    (folder / "seal_log" / "launches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in launches))
    text = text_of(summarise(folder))
    assert "After step 12 seal.w_max changes from 1.0 to 3.0." in text
    assert text.count("changes from") == 1


def test_quarters_hold_the_means_of_their_steps(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "seal_log" / "steps.jsonl").read_text().splitlines()]
    rewards = [line["reward_mean"] for line in lines]
    first, last = Quarters.split(run.steps).of(lambda step: step.reward_mean)
    assert first.value == pytest.approx(statistics.fmean(rewards[:10]))
    assert last.value == pytest.approx(statistics.fmean(rewards[-10:]))
    assert first.standard_error == pytest.approx(statistics.stdev(rewards[:10]) / 10**0.5)
    assert run.seal_share == pytest.approx(
        sum(line["seal_seconds"] for line in lines) / sum(line["seconds"]["step"] for line in lines)
    )


def test_the_change_of_a_label_has_students_interval(tmp_path):
    steps = read_run(write_run(tmp_path / "run", steps=8, validations=())).steps
    for row in changes(steps)["rows"]:
        sides = [[step.label_shares[row["label"]] for step in part] for part in (steps[:2], steps[-2:])]
        low, high = stats.ttest_ind(*sides).confidence_interval()
        assert row["half"] == pytest.approx((high - low) / 2)


def test_cues_are_given_as_ranges_of_steps(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    assert ranges(run.cues["required_arguments"]) == "9-17, 34-40"


def test_cues_of_one_environment_have_their_cause_and_were_shared_before(tmp_path):
    folder = write_run(tmp_path / "run", steps=8, validations=(0,))
    path = folder / "seal_log" / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        own = ["shop/call_format", "shop/reread_state"] if line["step"] > 3 else []
        line["omega"]["cues"], line["events"] = ["call_format", *own], []
    figures = {"prevalence": 0.25, "mean_reward": 0.125}
    lines[2]["events"] = [{"step": 3, "cue": "reread_state", "on": True, "category": "shop", "figures": figures}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = text_of(summarise(folder))
    (row,) = (line.split() for line in text.splitlines() if "reread_state" in line)
    assert row == ["shop/reread_state", "4-8", "prevalence", "25", "%,", "reward", "0.12"]
    assert "Active cues at every step: call_format, shop/call_format." in text


def test_the_lift_of_the_interface_is_compared_between_first_and_last_steps(tmp_path):
    folder = write_run(tmp_path / "run", steps=4, validations=(0,))
    assert "lift of the interface" not in text_of(summarise(folder))
    path = folder / "seal_log" / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, mean in zip(lines, (0.25, 0.1, 0.1, -0.05), strict=True):
        line["lift"] = {"prompts": 8, "mean": mean, "standard_error": 0.1}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = (line for line in text_of(summarise(folder)).splitlines() if "lift of the interface" in line)
    assert [part for part in row.split() if part[-1].isdigit()] == ["0.250", "-0.050", "-0.300"]


def test_a_run_without_omega_or_weights_is_reported(tmp_path):
    folder = write_run(tmp_path / "run", validations=(0,))
    path = folder / "seal_log" / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.update(omega=None, w=None, rho={}, reward_mean=None, events=[])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = text_of(summarise(folder))
    assert "No cue was active" in text
    assert "at step 0" in text


@pytest.mark.parametrize("steps", [1, 2])
def test_short_runs_are_reported(tmp_path, steps):
    folder = write_run(tmp_path / "run", steps=steps, validations=(0, steps))
    assert "average" in text_of(summarise(folder))


def test_validations_without_a_task_in_common_are_reported_without_a_change(tmp_path):
    folder = write_run(tmp_path / "run", validations=(0, 40))
    for step, kept in ((0, slice(0, 100)), (40, slice(100, 200))):
        path = folder / "validation_log" / f"{step}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[kept]) + "\n")
    text = text_of(summarise(folder))
    assert "and step 40" in text and "step 40 lacks 100 tasks" in text


def test_only_validation_and_only_training_are_reported(tmp_path):
    alone = write_run(tmp_path / "alone", validations=(0,))
    (alone / "seal_log" / "steps.jsonl").unlink()
    assert "0 training steps logged" in text_of(summarise(alone))
    without = write_run(tmp_path / "without", validations=())
    assert "No validation yet" in text_of(summarise(without))


def test_broken_lines_are_named_and_the_rest_reported(tmp_path):
    folder = write_run(tmp_path / "run")
    with (folder / "seal_log" / "steps.jsonl").open("a") as stream:
        stream.write('{"step": 41, "reward')
    path = folder / "validation_log" / "40.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    text = text_of(summarise(folder)).replace("\n", " ")
    assert "steps.jsonl:41" in text
    assert "step 40 lacks 1 tasks" in text


def test_bad_lines_of_rollouts_and_withdrawals_are_named(tmp_path):
    folder = write_run(tmp_path / "run")
    for name in ("trajectories", "withdrawal"):
        path = folder / "seal_log" / name / "3.jsonl"
        path.parent.mkdir()
        path.write_bytes(b'{"task_id": "\xff"}\n{"task')
    text = text_of(summarise(folder)).replace("\n", "")
    assert text.count("2 bad lines") == 2 and "trajectories/3.jsonl:1" in text and "withdrawal/3.jsonl:1" in text


@pytest.mark.parametrize(
    "launch", [{"step": "x", "config": {}}, {"step": 0, "config": 5}, {"step": 0, "config": {"trainer": 5}}]
)
def test_a_launch_that_cannot_be_read_leaves_the_report(tmp_path, launch):
    folder = write_run(tmp_path / "run", steps=4, validations=())
    (folder / "seal_log" / "launches.jsonl").write_text(json.dumps(launch) + "\n")
    assert "mean reward of the steps" in text_of(summarise(folder))


def test_the_picture_shows_the_rates_of_the_table_up_to_the_last_validation(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure))
    folder = write_run(tmp_path / "run", steps=6, validations=(0, 8))  # killed before it logged step 8
    for path in (folder / "validation_log").iterdir():
        lines = [json.loads(line) | {"score": 0.0, "turns_passed": 0} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "% of tasks passed" in text_of(summarise(folder))
    validation = drawn[0].axes[1]
    assert validation.get_ylabel() == "tasks passed, %" and validation.get_xlim() == (-0.5, 8.5)


def test_the_name_of_a_run_is_not_a_formula(tmp_path):
    folder = write_run(tmp_path / "lr$1^$", steps=2, validations=())
    summarise(folder)
    assert (folder / "report.png").is_file()


def test_the_table_of_labels_and_the_viewer_name_the_same_shares(tmp_path):
    folder = write_run(tmp_path / "run", steps=8, validations=())
    path = folder / "seal_log" / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["label_counts"] = {"pass": 10, "state_mismatch": 990}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (shown,) = (row for row in changes(read_run(folder).steps)["rows"] if row["label"] == "state_mismatch")
    (row,) = (line.split() for line in text_of(summarise(folder)).splitlines() if line.startswith(" state_mismatch"))
    assert row[1:3] == [f"{100 * shown[name]:.1f}" for name in ("first", "last")]


def test_a_folder_without_a_run_is_refused_in_one_sentence(tmp_path, capsys):
    assert run(app, [str(tmp_path)]) == 2
    assert "has it started?" in capsys.readouterr().err
    assert run(app, [str(tmp_path / "nowhere")]) == 2
    assert "name a run" in capsys.readouterr().err
