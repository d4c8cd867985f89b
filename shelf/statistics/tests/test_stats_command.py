"""The statistics command: what it counts, what it names, what it refuses."""

import json
import shutil
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from env_service.environments.bfcl.processed import write as write_processed
from env_service.environments.bfcl.splits import task_ids
from seal.system.paths import HOME
from shelf.statistics.cli.stats import app
from shelf.statistics.log import read_log, read_validation_dir
from shelf.statistics.runs import compare_runs
from shelf.statistics.summary import summarise
from tests.support.commands import run as command

TASKS = task_ids()["eval"]


def line(task, score, **more):
    category = "_".join(task.split("_")[2:-1])
    ours = {"labels": ["pass" if score else "state_mismatch"], "turns": 2, "turns_passed": 2 if score else 1}
    return {"task_id": task, "data_source": category, "score": score, "step": 0, "sample": 0, **ours, **more}


def write(folder, step, lines):
    (folder / "validation_log").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(each) + "\n" for each in lines)
    (folder / "validation_log" / f"{step}.jsonl").write_text(text)
    return folder


@pytest.fixture
def run(tmp_path):
    """400 tasks at two steps: every 10th passes, then every 5th."""
    folder = tmp_path / "run"
    for step, every in ((0, 10), (20, 5)):
        write(folder, step, [line(task, float(i % every == 0), step=step) for i, task in enumerate(TASKS)])
    return folder


def test_rates_by_step_and_category(run):
    rows = {(row.step, row.name): row for row in summarise(read_validation_dir(run))}
    assert rows[0, "base"].rate.rate == pytest.approx(0.1)
    assert rows[20, "average"].rate.rate == pytest.approx(0.2)
    assert (rows[0, "average"].passed, rows[0, "average"].scored) == (40, 400)
    assert rows[0, "base"].turn_rate.rate == pytest.approx(110 / 200)
    assert rows[0, "base"].labels == {"state_mismatch": 0.9, "pass": 0.1}


def test_tables_and_files_are_written(run, tmp_path, capsys):
    out = {name: tmp_path / f"x.{name}" for name in ("csv", "json")}
    both = ["--csv", str(out["csv"]), "--json", str(out["json"])]
    assert command(app, ["--val-dir", str(run), *both]) == 0
    assert "20.0 [" in capsys.readouterr().out
    records = json.loads(out["json"].read_text())["summaries"]
    average = next(r for r in records if r["category"] == "average" and r["step"] == 20 and r["suspected"] == "with")
    assert average["pass_rate"] == pytest.approx(0.2)
    assert out["csv"].read_text().splitlines()[0].startswith("step,category,suspected,tasks")


def test_the_script_runs_by_itself_from_anywhere(run, tmp_path):
    script = HOME / "scripts" / "stats_validation_bfcl.py"
    done = subprocess.run(
        [sys.executable, script, "--val-dir", run], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "long_context" in done.stdout


def test_suspected_items_are_shown_with_and_without(run, tmp_path, capsys, monkeypatch):
    items = [{"task_id": TASKS[i], "turn": 1, "reason": "wrong", "link": "x"} for i in range(1, 10)]
    (tmp_path / "s.json").write_text(json.dumps({"items": items}))
    monkeypatch.setattr("shelf.statistics.summary.DEFAULT_PATH", tmp_path / "s.json")
    report = tmp_path / "x.json"
    assert command(app, ["--val-dir", str(run), "--json", str(report)]) == 0
    assert "without 9 suspected items" in capsys.readouterr().out
    records = {(r["step"], r["category"], r["suspected"]): r for r in json.loads(report.read_text())["summaries"]}
    assert records[0, "base", "without"]["scored"] == 91
    assert records[0, "base", "without"]["passed"] == records[0, "base", "with"]["passed"]


def test_one_run_compares_its_first_and_last_step(run, tmp_path, capsys):
    report = tmp_path / "x.json"
    assert command(app, ["--compare", str(run), "--json", str(report)]) == 0
    average = next(r for r in json.loads(report.read_text())["comparisons"] if r["category"] == "average")
    assert average["pass_rate_difference"] == pytest.approx(0.1)
    assert (average["pass_rate_gained"], average["pass_rate_lost"]) == (40, 0)


def test_runs_and_seeds_are_compared_on_their_common_tasks(run, tmp_path, capsys):
    more = [
        write(
            tmp_path / f"seed{seed}",
            20,
            [line(t, float((i + seed) % 5 == 0), step=20) for i, t in enumerate(TASKS[:300])],
        )
        for seed in (0, 1)
    ]
    report = tmp_path / "x.json"
    seeds = ",".join(map(str, more))
    assert command(app, ["--compare", str(run), seeds, "--json", str(report)]) == 0
    out = capsys.readouterr().out
    assert "100 tasks are on one side only" in out and "pass rate by run" in out
    average = next(r for r in json.loads(report.read_text())["comparisons"] if r["category"] == "average")
    assert average["pass_rate_pairs"] == 300 and average["pass_rate_p_mcnemar"] is None


def test_the_tasks_of_a_group_of_another_environment_count_as_one(tmp_path):
    def records(folder, passed, per_group, **more):
        def own(number):
            known = {"category": "todo/easy", "data_source": "todo/easy", **more}
            return line(f"task_{number}", float(number // per_group < passed), cluster=number // per_group, **known)

        write(tmp_path / folder, 0, [own(number) for number in range(20 * per_group)])
        return tmp_path / folder

    one, four = (summarise(read_validation_dir(records(f"of {n}", 6, n)))[0].rate for n in (1, 4))
    assert four == pytest.approx(one)
    after = [records(f"after of {n}", 9, n) for n in (1, 4)]
    pairs = zip((tmp_path / "of 1", tmp_path / "of 4"), after, strict=True)
    alone, grouped = (compare_runs([str(a), str(b)], ()).records[0] for a, b in pairs)
    assert grouped["pass_rate_standard_error"] == pytest.approx(alone["pass_rate_standard_error"], rel=0.05)


def test_turns_of_rollouts_with_other_numbers_of_turns_compare_alike_in_both_directions(tmp_path):
    def side(name, *counts):
        lines = [line(t, 0.0, turns=of, turns_passed=met) for t, (met, of) in zip(TASKS, counts, strict=False)]
        return str(write(tmp_path / name, 0, lines))

    names = side("a", (1, 2), (1, 8)), side("b", (6, 6), (0, 2))
    there, back = (compare_runs(pair, ()).records[0]["turn_share_difference"] for pair in (names, names[::-1]))
    assert there == -back == pytest.approx((4 * 0.5 - 5 * 0.125) / 9)


def test_a_seed_that_lacks_tasks_of_its_side_is_named(run, tmp_path, capsys):
    few = write(tmp_path / "few", 20, [line(task, 1.0, step=20) for task in TASKS[:390]])
    whole = write(tmp_path / "whole", 20, [line(task, 1.0, step=20) for task in TASKS])
    assert command(app, ["--compare", str(run), f"{whole},{few}"]) == 1
    assert f"{few}: step 20 lacks 10 tasks: multi_turn_" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_validation_without_a_line_is_a_problem_beside_whole_ones(run, capsys, text):
    (run / "validation_log" / "30.jsonl").write_text(text)
    assert command(app, [str(run)]) == 1
    assert "30.jsonl:1: the file holds no line" in capsys.readouterr().out


def test_more_turns_that_passed_than_turns_are_a_bad_line(run, capsys):
    write(run, 20, [line(task, 1.0, step=20, turns_passed=3 if task == TASKS[7] else 2) for task in TASKS])
    assert command(app, [str(run)]) == 1
    assert "20.jsonl:8: has 3 turns that passed, of 2" in capsys.readouterr().out


def test_the_rate_of_each_seed_is_the_average_of_its_table(tmp_path, capsys):
    def seed(number):
        lines = [line(task, float("base" in task)) for task in (*TASKS[:30], *TASKS[100:110])]
        lines += [line(task, 0.0, data_source="base@1") for task in TASKS[:30]]
        return str(write(tmp_path / f"seed{number}", 0, [*lines, line(TASKS[110], 0.0, infra="engine")]))

    assert command(app, ["--compare", seed(0), f"{seed(1)},{seed(2)}"]) == 0
    out = capsys.readouterr().out
    assert "pass rate by run 50.0, 50.0 (" in out and "3 rollouts were lost to infrastructure" in out


def test_a_chosen_step_still_names_the_tasks_that_other_steps_have(run, capsys):
    write(run, 20, [line(task, 1.0, step=20) for task in TASKS[:300]])
    assert command(app, ["--val-dir", str(run), "--step", "20"]) == 1
    assert "step 20 lacks 100 tasks" in capsys.readouterr().out


def test_a_rollout_that_two_files_hold_counts_once(run, capsys):
    shutil.copy(run / "validation_log" / "20.jsonl", run / "validation_log" / "40.jsonl")
    assert command(app, ["--val-dir", str(run)]) == 1
    assert "40.jsonl:1: repeats sample 0 of multi_turn_base_" in capsys.readouterr().out
    assert {row.samples for row in summarise(read_validation_dir(run))} == {1}


def test_turns_whose_number_is_unknown_are_in_no_rate(tmp_path):
    lines = [line(TASKS[0], 0.0, labels=["checker_error"], turns=0, turns_passed=0), line(TASKS[1], 1.0)]
    row = summarise(read_validation_dir(write(tmp_path, 0, lines)))[0]
    assert (row.turns_passed, row.turns) == (2, 2)


def test_a_side_with_the_benchmark_too_is_compared_on_what_both_have(tmp_path, capsys):
    made = [line(f"synth_values_base_{n:012x}", float(n % 2), data_source="synth_values_base") for n in range(8)]
    one, both = write(tmp_path / "one", 0, made), write(tmp_path / "both", 0, [*made, line(TASKS[0], 1.0)])
    assert command(app, [f"--compare={both}", str(one)]) == 0
    assert "synth_values_base" in capsys.readouterr().out


def test_environments_have_data_prompt_modes_and_task_names_of_their_own(tmp_path, capsys):
    def rows(name, data, mode):
        own = {"category": f"{name}/x", "data_source": f"{name}/x", "data_hash": data, "prompt_mode": mode}
        return [line(f"task_{number}", float(number % 2), **own) for number in range(4)]

    ours = [line(task, 1.0, data_hash="a", prompt_mode="bfcl_qwen_fc") for task in TASKS[:4]]
    both = write(tmp_path / "both", 0, [*ours, *rows("shop", "b", "xml"), *rows("bank", "c", "json")])
    assert command(app, [str(both)]) == 0 and "MIXED" not in capsys.readouterr().out
    assert command(app, ["--compare", str(write(tmp_path / "one", 0, ours)), str(both)]) == 0
    write(both, 5, [{**each, "step": 5} for each in (*ours, *rows("shop", "b", "xml"), *rows("bank", "c", "json")[:3])])
    assert command(app, [str(both)]) == 1
    assert "step 5 lacks 1 tasks: bank/task_3" in capsys.readouterr().out


def test_sides_that_share_only_suspected_items_are_compared_with_them(tmp_path, capsys, monkeypatch):
    (tmp_path / "s.json").write_text(json.dumps({"items": [{"task_id": TASKS[0], "turn": 0, "reason": "wrong"}]}))
    monkeypatch.setattr("shelf.statistics.summary.DEFAULT_PATH", tmp_path / "s.json")
    sides = [str(write(tmp_path / name, 0, [line(TASKS[0], score)])) for name, score in (("a", 0.0), ("b", 1.0))]
    assert command(app, ["--compare", *sides]) == 0
    assert "+100.0" in capsys.readouterr().out


def test_sides_at_other_steps_or_sampled_otherwise_are_compared_with_a_warning(run, tmp_path, capsys):
    early = write(tmp_path / "early", 6, [line(task, 1.0, step=6) for task in TASKS])
    assert command(app, ["--compare", str(run), str(early)]) == 0
    assert f"differ in training steps ({run}: 20; {early}: 6)" in capsys.readouterr().out
    for folder, temperature in ((run, 0.0), (early, 1.0)):
        (folder / "settings.json").write_text(json.dumps({"temperature": temperature, "top_p": 1.0}))
    shutil.copy(run / "validation_log" / "20.jsonl", early / "validation_log")
    (early / "validation_log" / "6.jsonl").unlink()
    assert command(app, ["--compare", str(run), str(early), "--step", "20"]) == 0
    out = capsys.readouterr().out
    assert (
        f"differ in sampling ({run}: temperature 0; {early}: temperature 1, top_p 1)" in out
        and "training steps" not in out
    )
    (run / "settings.json").write_text('{"temperature": null, "top_p": null}')  # a harness samples as it likes
    assert command(app, ["--compare", str(run), str(early), "--step", "20"]) == 0
    assert "differ in sampling" not in capsys.readouterr().out


def test_evaluations_with_another_user_or_a_temperature_of_the_endpoint_s_are_compared_with_a_warning(
    run, tmp_path, capsys
):
    other = write(tmp_path / "other", 20, [line(task, 1.0, step=20) for task in TASKS])
    asked = {"temperature": 0.0, "top_p": 1.0, "max_steps": 20}
    (run / "settings.json").write_text(json.dumps(asked))
    for more, said in (
        ({}, None),
        ({"replaced": {"temperature": "left out", "seed": "left out"}}, "temperature of the endpoint"),
        ({"max_steps": 5}, "differ in max_steps"),
        ({"user": "gpt-4.1"}, "differ in user"),
    ):
        (other / "settings.json").write_text(json.dumps(asked | more))
        assert command(app, ["--compare", str(run), str(other)]) == 0
        out = capsys.readouterr().out
        assert (said in out) if said else ("differ in" not in out)


def test_a_run_with_settings_of_another_version_is_compared(run, tmp_path, capsys):
    other = write(tmp_path / "other", 20, [line(task, 1.0, step=20) for task in TASKS])
    for folder, temperature in ((run, 0.5), (other, 1.0)):
        rollout = {"val_kwargs": {"temperature": temperature, "top_p": 1.0, "do_sample": True}}
        config = {"actor_rollout_ref": {"rollout": rollout}, "seal": {"reward": {"mode": "of another version"}}}
        (folder / "seal_log").mkdir()
        (folder / "seal_log" / "launches.jsonl").write_text(json.dumps({"step": 0, "config": config}) + "\n")
    assert command(app, ["--compare", str(run), str(other)]) == 0
    assert f"sampling ({run}: temperature 0.5, top_p 1; {other}: temperature 1, top_p 1)" in capsys.readouterr().out


def test_tasks_on_one_side_are_counted_over_all_prefixes(tmp_path, capsys):
    def side(name: str, whole: int, first: int) -> str:
        lines = [line(task, 1.0) for task in TASKS[:whole]]
        lines += [line(task, 1.0, data_source="base@1") for task in TASKS[:first]]
        return str(write(tmp_path / name, 0, lines))

    assert command(app, ["--compare", side("a", 10, 10), side("b", 7, 8)]) == 0
    assert "5 tasks are on one side only" in capsys.readouterr().out


def test_the_public_release_is_read(tmp_path):
    lines = [
        {
            "input": "",
            "output": "",
            "score": float(i % 4 == 0),
            "step": 10,
            "reward": 0.0,
            "task_id": task,
            "data_source": "bfcl",
        }
        for i, task in enumerate(TASKS)
    ]
    rows = summarise(read_validation_dir(write(tmp_path, 10, lines)))
    assert [row.name for row in rows] == ["base", "miss_func", "miss_param", "long_context", "average"]
    assert rows[-1].rate.rate == pytest.approx(0.25)
    assert rows[-1].turn_rate is None


def test_samples_give_the_mean_and_pass_at_k(tmp_path):
    lines = [line(TASKS[i], float(s == i or i == 0), sample=s) for i in range(4) for s in range(4)]
    (row, average) = summarise(read_validation_dir(write(tmp_path, 0, lines)))
    assert row.rate.rate == pytest.approx(7 / 16)
    assert (row.samples, row.pass_at_k, average.pass_at_k) == (4, 1.0, 1.0)
    assert command(app, [str(tmp_path), "--json", str(tmp_path / "x.json")]) == 0
    record = json.loads((tmp_path / "x.json").read_text())["summaries"][0]
    assert (record["pass_at_k"], record["pass_hat_k"]) == (1.0, 0.25)


def test_failed_rollouts_are_counted_apart(tmp_path, capsys):
    lines = [line(TASKS[0], 1.0), line(TASKS[1], 0.0, infra="service unreachable")]
    folder = write(tmp_path, 0, lines)
    row = summarise(read_validation_dir(folder))[0]
    assert (row.passed, row.scored, row.infra, row.tasks) == (1, 1, 1, 2)
    command(app, ["--val-dir", str(folder)])
    assert "not run" in capsys.readouterr().out


def test_bad_lines_are_counted_and_named_with_their_place(run, capsys):
    path = run / "validation_log" / "20.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace("multi_turn_base", "multi_turn_bass")
    lines[4] = '{"task_id": "multi_turn_base_8"}'
    lines[5] = json.dumps(line(TASKS[6], 1.0, step=20))
    path.write_text("\n".join(lines)[:-15])
    assert command(app, ["--val-dir", str(run)]) == 1
    out = capsys.readouterr().out
    assert "4 bad lines" in out
    for place in ("20.jsonl:4:", "20.jsonl:5:", "20.jsonl:7:", "20.jsonl:400:"):
        assert place in out
    assert "cut short" in out and "step 20 lacks" in out


def test_tasks_that_the_parquet_has_and_the_log_has_not_are_named(tmp_path, capsys):
    from seal.data.rows import whole_rows, write_rows

    write_rows(whole_rows(TASKS[:3], "eval"), tmp_path / "x.parquet")
    folder = write(tmp_path / "run", 0, [line(TASKS[0], 1.0)])
    assert command(app, ["--val-dir", str(folder), "--parquet", str(tmp_path / "x.parquet")]) == 1
    assert f"step 0 lacks 2 tasks: {', '.join(sorted(TASKS[1:3]))}" in capsys.readouterr().out


def test_with_both_files_the_parquet_decides_which_tasks_are_expected(run, tmp_path, capsys):
    """The owner's line: a complete validation of 400 tasks, beside a question file of all 800."""
    questions = write_processed(tmp_path)
    rows = HOME / "data" / "bfcl_eval_400.parquet"
    both = ["--val-dir", str(run), "--parquet", str(rows), "--bfcl-jsonl", str(questions)]
    assert command(app, both) == 0
    assert "lacks" not in capsys.readouterr().out
    assert command(app, [*both[:2], "--bfcl-jsonl", str(questions)]) == 1
    assert "step 0 lacks 400 tasks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"score": 1.0}, "has no task_id"),
        ({"task_id": "x", "score": 1.0}, "not a multi-turn task id"),
        ({"task_id": TASKS[0], "score": float("nan")}, "finite number"),
        ({"task_id": TASKS[0], "score": "1"}, "score is '1': a valid number is expected"),
        ({"task_id": TASKS[0]}, "neither a score nor a cause"),
        ({"task_id": TASKS[0], "score": 1, "data_source": "miss_func"}, "contradicts"),
        ({"task_id": TASKS[0], "score": 1, "labels": "pass"}, "labels is 'pass': a valid tuple is expected"),
        ({"task_id": TASKS[0], "score": 1, "format": 99}, "read it with the SEAL that wrote it"),
        ([1], "a list where an object is expected"),
    ],
)
def test_each_kind_of_bad_line_is_explained(tmp_path, value, said):
    path = tmp_path / "0.jsonl"
    path.write_text(json.dumps(value) + "\n")
    log = read_log(path)
    assert not log.lines and said in str(log.bad[0]) and "0.jsonl:1:" in str(log.bad[0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Nothing to read"),
        (["--val-dir", "nowhere"], "is not a folder"),
        (["--val-dir", "."], "holds no <step>.jsonl"),
        (["--val-dir", "run", "--step", "7"], "There is no step 7: the log has 0, 20"),
        (["--val-dir", "run", "--parquet", "none.parquet"], "does not exist"),
        (["--val-dir", "run", "--bfcl-jsonl", "none.jsonl"], "none.jsonl does not exist: make it with `bash env_"),
        (["--compare", "run", "run"], "named twice"),
        (["--compare", "run", "other,other"], "named twice"),
        (["--compare", "run", "./run/"], "named twice"),
        (["other", "--val-dir", "run"], "give one of them"),
        (["run", "--compare", "other"], "--compare names all runs: leave out RUN"),
        (["--compare", "run", "--parquet", "tasks.parquet"], "leave out RUN, --val-dir, --parquet"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert command(app, arguments) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_runs_on_different_data_are_not_compared(run, tmp_path, capsys):
    other = write(tmp_path / "other", 20, [line(t, 1.0, step=20, data_hash="b") for t in TASKS])
    write(run, 20, [line(t, 1.0, step=20, data_hash="a") for t in TASKS])
    assert command(app, ["--compare", str(run), str(other)]) == 2
    assert "not comparable" in capsys.readouterr().err


def test_a_validation_that_mixes_prompt_modes_says_what_to_do_with_its_figures(run, tmp_path, capsys):
    modes = ["compact"] * 100 + ["bfcl_qwen_fc"] * (len(TASKS) - 100)
    write(run, 20, [line(t, 1.0, step=20, prompt_mode=mode) for t, mode in zip(TASKS, modes, strict=True)])
    counted = f"({len(TASKS) - 100} of bfcl_qwen_fc, 100 of compact)"
    assert command(app, ["--val-dir", str(run), "--step", "20", "--json", str(tmp_path / "x.json")]) == 0
    assert counted in " ".join(capsys.readouterr().out.split())
    assert (
        "evaluate all tasks again with the same prompt mode" in json.loads((tmp_path / "x.json").read_text())["warning"]
    )
    assert command(app, ["--compare", str(run), str(run) + "/validation_log"]) == 0
    assert "MIXED" in capsys.readouterr().out


def test_a_run_that_validates_on_its_training_scenarios_says_so(run, tmp_path, capsys):
    from seal.data.rows import whole_rows, write_rows

    write_rows(whole_rows(task_ids()["train"], "train"), run / "data" / "train.parquet")
    command(app, ["--val-dir", str(run)])
    assert "NOT HELD OUT" not in capsys.readouterr().out
    variant = TASKS[0].replace("base", "long_context")
    write_rows(whole_rows([variant], "train"), run / "data" / "train.parquet")
    assert command(app, ["--val-dir", str(run / "validation_log"), "--json", str(tmp_path / "x.json")]) == 0
    assert "NOT HELD OUT: of 400 validated tasks 4 are trained on" in capsys.readouterr().out
    assert "NOT HELD OUT" in json.loads((tmp_path / "x.json").read_text())["warning"]


@given(st.integers(0, 3000), st.binary(max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_log_damaged_anywhere_loses_no_line_in_silence(tmp_path, place, noise):
    whole = "".join(json.dumps(line(task, 1.0)) + "\n" for task in TASKS[:10]).encode()
    damaged = whole[:place] + noise + whole[place + len(noise) :]
    path = tmp_path / "0.jsonl"
    path.write_bytes(damaged)
    log = read_log(path)
    assert len(log.lines) + len(log.bad) == sum(bool(each.strip()) for each in damaged.split(b"\n"))
