"""Results of suites: how they are written and read, their rates and paired comparisons."""

import json

import pytest

from shelf.statistics.comparison import Side, compare
from shelf.statistics.intervals import pass_hat_k, wilson
from shelf.statistics.summary import informative, summarise_step
from shelf.suites.cli.evaluate import app
from shelf.suites.records import ItemRecord, SuiteHead, read_results, write_results
from tests.support.commands import run as command

DOMAINS = ("airline", "retail", "telecom")


def item(category, number, passed, sample=0, suite="tau2", **more):
    return ItemRecord(suite, category, f"{category}_{number}", sample, float(passed), **more)


def write(folder, items, suite="tau2", **head):
    write_results(folder, SuiteHead(suite=suite, **{"model": "m", "version": "1", "data_hash": "a", **head}), items)
    return folder


def summarise(items):
    return informative(summarise_step(items))


def test_results_are_read_as_they_were_written(tmp_path):
    items = [item("airline", 0, True, infra_message="x"), item("airline", 1, False, infra="endpoint_timeout")]
    head = {"skipped": {"retail": "needs a user"}, "official": {"Overall Acc": 0.5}, "settings": {"user_model": None}}
    results = read_results(write(tmp_path, items, **head))
    assert results.items == tuple(items) and not results.bad
    assert results.head.official == {"Overall Acc": 0.5} and results.head.settings == {"user_model": None}


def test_bad_lines_and_other_formats_are_named(tmp_path):
    write(tmp_path, [item("airline", 0, True)])
    good = (tmp_path / "items.jsonl").read_text()
    later, half = good.replace('"format": 1', '"format": 9'), '{"format": 1, "suite": "tau2"}\n'
    (tmp_path / "items.jsonl").write_text(good + later + half)
    results = read_results(tmp_path)
    assert len(results.items) == 1
    assert [line.line for line in results.bad] == [2, 3] and "format is 9" in str(results.bad[0])
    (tmp_path / "suite.json").write_text('{"format": 9}')
    with pytest.raises(ValueError, match="is not the head of a suite's results"):
        read_results(tmp_path)
    with pytest.raises(ValueError, match="holds no results of a suite"):
        read_results(tmp_path / "nowhere")


def test_rates_leave_out_what_has_no_verdict_and_say_whose_fault_it_was():
    items = [item("airline", number, number < 3) for number in range(6)]
    items += [item("airline", 6, False, infra="endpoint_503"), item("airline", 7, False, infra="simulator_empty")]
    items += [item("retail", number, True) for number in range(2)]
    airline, retail, average = summarise(items)
    assert (airline.passed, airline.scored, airline.tasks) == (3, 6, 8)
    assert (airline.infra, retail.infra) == (2, 0)
    assert average.rate.rate == pytest.approx((0.5 + 1.0) / 2)
    assert airline.rate.low < 0.5 < airline.rate.high


def test_pass_hat_k_is_the_chance_that_all_of_k_attempts_pass():
    assert (pass_hat_k(4, 2, 1), pass_hat_k(4, 2, 2), pass_hat_k(4, 2, 3)) == (0.5, pytest.approx(1 / 6), 0.0)
    items = [item("airline", task, trial < passed, trial) for task, passed in ((0, 4), (1, 2)) for trial in range(4)]
    (row,) = summarise(items)
    assert row.pass_hat == pytest.approx((0.75, (1 + 1 / 6) / 2, 0.5, 0.5))
    assert row.rate.rate == pytest.approx(row.pass_hat[0])


def test_a_missing_attempt_lowers_k_and_not_the_rate():
    items = [item("airline", task, True, trial) for task in range(2) for trial in range(2)]
    items[3] = item("airline", 1, False, 1, infra="endpoint_503")
    (row,) = summarise(items)
    assert (row.samples, row.pass_hat, row.rate.rate) == (1, (1.0,), 1.0)


def test_a_category_without_any_verdict_is_in_the_table_and_in_no_average():
    lost, retail, average = summarise([item("airline", 0, False, infra="endpoint_503"), item("retail", 0, True)])
    assert (lost.rate, lost.infra, lost.pass_hat) == (None, 1, ())
    assert retail.pass_hat == average.pass_hat == (1.0,)


def test_questions_of_one_memory_are_no_independent_items():
    alone = [item("memory_kv", number, number % 2 == 0) for number in range(40)]
    shared = [item("memory_kv", number, number < 20, cluster=f"memory-{number // 20}") for number in range(40)]
    wide, narrow = summarise(shared)[0].rate, summarise(alone)[0].rate
    assert wide.rate == narrow.rate and wide.low < wilson(wide.rate, 3)[0] < narrow.low


def test_models_are_compared_on_the_items_that_both_have():
    a = [item("airline", number, number < 10) for number in range(20)]
    b = [item("airline", number, number < 15) for number in range(1, 25)]
    b[18] = item("airline", 19, False, infra="endpoint_503")
    row, _ = compare(Side("a", (a,)), Side("b", (b,)))
    assert (row.pass_rate.pairs, row.pass_rate.gained, row.pass_rate.lost, row.unpaired) == (18, 5, 0, 7)
    with pytest.raises(ValueError, match="share no task with a verdict"):
        compare(Side("a", (a,)), Side("b", ([item("retail", 0, True)],)))


def test_the_commands_show_results_and_pair_them_over_seeds(tmp_path, capsys):
    def evaluation(name, shift):
        items = [item(domain, number, (number + shift) % 4 == 0) for domain in DOMAINS for number in range(20)]
        return write(tmp_path / name, items, model=name)

    old, new, again = evaluation("old", 0), evaluation("new", 1), evaluation("again", 2)
    report = tmp_path / "x.json"
    assert command(app, ["show", old, "--json", report]) == 0
    assert "25.0 [" in capsys.readouterr().out
    rows = {row["category"]: row for row in json.loads(report.read_text())["summaries"]}
    assert (rows["retail"]["passed"], rows["average"]["pass_rate"]) == (5, 0.25)
    assert command(app, ["compare", old, f"{new},{again}", "--json", report]) == 0
    rows = {row["category"]: row for row in json.loads(report.read_text())["comparisons"]}
    assert rows["average"]["pass_rate_pairs"] == 60
    assert rows["airline"]["pass_rate_difference"] == pytest.approx(0.0)
    assert rows["airline"]["pass_rate_p_mcnemar"] is None


def test_a_category_that_one_side_lacks_is_counted_as_left_out(tmp_path, capsys):
    both = [item("airline", number, True) for number in range(3)]
    more = [item("retail", number, True, number % 2) for number in range(4)]
    more.append(item("airline", 0, False, 1, infra="endpoint_503"))
    one, two = write(tmp_path / "one", both), write(tmp_path / "two", [*both, *more])
    assert command(app, ["compare", one, two]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "4 items are on one side only and left out" in out and "1 attempts have no verdict" in out


def test_evaluations_that_differ_in_more_than_the_model_are_not_compared(tmp_path, capsys):
    items = [item("airline", 0, True)]
    one = write(tmp_path / "one", items, settings={"user_model": "x", "seed": 0})
    two = write(tmp_path / "two", items, settings={"user_model": "y", "seed": 1})
    assert command(app, ["compare", one, two]) == 2
    assert "another user_model: not comparable" in capsys.readouterr().err
    for seeds in (one, f"{one}/", f"{two},{two}"):
        assert command(app, ["compare", one, seeds]) == 2
        assert "different evaluations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bfcl-v4"], "either --base-url (with --model) or --checkpoint"),
        (["bfcl-v4", "--base-url", "http://127.0.0.1:9/v1"], "--base-url needs --model"),
        (["bfcl-v4", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], "--base-url needs --tokenizer"),
        (["bfcl-v4", "--base-url", "u", "--model", "m", "--tokenizer", "."], "lacks config.json"),
        (
            ["bfcl-v4", "--base-url", "u", "--model", "m", "--tokenizer", ".", "--categories", "x"],
            "Unknown category 'x'",
        ),
        (["tau2", "--base-url", "u", "--model", "m"], "--user-base-url and --user-model"),
        (["tau2", "--base-url", "u", "--model", "m", "--user-model", "n"], "belong together"),
        (["tau2", "--base-url", "u", "--model", "m", "--domains", "mars"], "Unknown domain 'mars'"),
        (
            ["tau2", "--base-url", "u", "--model", "m", "--solo", "--domains", "retail"],
            "--solo plays telecom_solo only",
        ),
        (["tau2", "--solo", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], "No OpenAI-compatible endpoint"),
    ],
)
def test_wrong_command_lines_are_one_sentence(tmp_path, capsys, arguments, said):
    assert command(app, [*arguments, "--out", tmp_path / "out"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_wrong_command_line_is_told_before_a_checkpoint_is_served(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    assert command(app, ["tau2", "--checkpoint", tmp_path, "--out", tmp_path / "out"]) == 2
    assert "give --user-base-url and --user-model" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
