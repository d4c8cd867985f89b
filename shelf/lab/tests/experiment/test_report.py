"""The report finds effects that are there, doubts those that are not, and says what is wrong with the data."""

import gzip
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from seal.records.format import FORMAT
from seal.system.jsonl import BadLine
from seal.system.paths import HOME
from shelf.lab.cli.experiment import app
from shelf.lab.experiment.design import OutcomeMeasure
from shelf.lab.experiment.effects import by_arm, family
from shelf.lab.experiment.matrix import Cell, Experiment, Registration
from shelf.lab.experiment.records import RunResult, TaskScore, ValidationScores, read_results
from shelf.lab.experiment.report import analyse, sections, write_report
from shelf.lab.experiment.scores import panel
from shelf.lab.tests.experiment import simulated
from tests.support.commands import run

GAINS = {"vanilla": 0.05, "seal": 0.25, "random_labels": 0.05}


@pytest.fixture
def matrix(tmp_path):
    made = simulated.experiment(tmp_path, GAINS)
    simulated.write_results(made, GAINS)
    Registration.ensure(made.folder, made.text)
    return made


def test_the_effect_that_is_there_is_found_and_the_other_is_not(matrix):
    found = analyse(matrix)
    seal, control = found.primary
    assert seal.contrast.arm == "seal" and seal.p_holm < 0.01
    assert seal.difference.low < 0.19 < seal.difference.high
    assert control.p_holm > 0.05 and control.difference.low < 0 < control.difference.high
    assert found.area[0].difference.value == pytest.approx(seal.difference.value / 2, abs=0.03)
    assert [curve.steps for curve in found.curves] == [simulated.STEPS] * 3


def test_two_primary_outcomes_are_corrected_together_and_one_may_count_some_tasks_alone(tmp_path):
    some = [f"multi_turn_base_{scenario}" for scenario in simulated.EVAL_SCENARIOS[::4]]
    (tmp_path / "some.json").write_text(json.dumps(some))
    more = f"[{{set: base@1, tasks: {tmp_path / 'some.json'}}}]"
    made = simulated.experiment(tmp_path, {"vanilla": 0, "seal": 0.2}, also_primary=more)
    simulated.write_results(made, {"vanilla": 0.0, "seal": 0.2})
    every, few = analyse(made).primary
    assert (few.difference.scenarios, every.difference.scenarios) == (len(some), len(simulated.EVAL_SCENARIOS))
    assert few.p_holm == pytest.approx(max(few.difference.p, 2 * every.difference.p))
    assert sum("Primary outcome" in section.title for section in sections(analyse(made))) == 2
    Registration.ensure(made.folder, made.text)
    assert not any("HAS CHANGED" in text for section in sections(analyse(made)) for text in section.text)
    (tmp_path / "some.json").write_text(json.dumps(some[:-4]))
    (said,) = (text for section in sections(analyse(made)) for text in section.text if "HAS CHANGED" in text)
    assert str(tmp_path / "some.json") in said


def test_tasks_of_a_group_are_a_scenario_and_weigh_their_mean_number_of_turns(tmp_path):
    made = simulated.experiment(tmp_path, ("a", "b"), seeds=(0,))
    scores = [{str(n): TaskScore(0, 2, turns, 4 * turns, n // 3) for n in range(9)} for turns in (1, 2)]
    pairs = zip(made.cells, scores, strict=True)
    runs = [simulated.result(made, cell, (ValidationScores(8, "todo/easy", own),)) for cell, own in pairs]
    found = panel(runs, OutcomeMeasure(set="todo/easy", metric="turns"))
    assert len(set(found.scenarios)) == 3 and set(found.weights) == {3.0}
    runs = [RunResult.from_line(json.loads(each.line())) for each in runs]
    assert all(panel(runs, OutcomeMeasure(set="todo/easy")).scenarios == found.scenarios)


def test_intervals_of_simulated_matrices_cover_the_truth(tmp_path):
    """From drawn rollouts to the interval: the true difference of two equal arms is 0."""
    covered = []
    made = simulated.experiment(tmp_path, ("a", "b"), seeds=(0, 1, 2, 3))
    for seed in range(40):
        found = simulated.results(made, {"a": 0.1, "b": 0.1}, seed=seed, between_tasks=0.0)
        runs = by_arm(made.design, found.values())
        ((effect,), _missing) = family(made.design.contrasts, [made.design.primary], runs)
        covered.append(effect.difference.low <= 0 <= effect.difference.high)
    # 40 draws of a chance of .95: fewer than 34 have a chance of one in a thousand.
    assert sum(covered) >= 34


@pytest.mark.parametrize(("hashes", "doubted"), [(("a", "b"), False), (("a", "b", "c"), True)])
def test_runs_of_two_environments_have_two_versions_of_data(tmp_path, hashes, doubted):
    made = simulated.experiment(tmp_path, {"vanilla": 0.0, "seal": 0.0})
    validations = [ValidationScores(0, source, {"t": TaskScore(1, 1, 1, 1)}) for source in ("base", "shop/base")]
    for cell in made.cells:
        more = {"data_hashes": hashes, "prompt_modes": ("compact", "xml")}
        simulated.result(made, cell, tuple(validations), **more).write(made.result(cell))
    notes = [note for section in sections(analyse(made)) for note in section.notes if "The runs used" in note]
    assert bool(notes) == doubted


def test_a_picture_of_the_same_figures_stays(matrix):
    _page, picture = write_report(analyse(matrix))
    drawn = picture.read_bytes()
    picture.write_bytes(b"drawn elsewhere")
    write_report(analyse(matrix))
    assert picture.read_bytes() == b"drawn elsewhere"
    simulated.write_results(matrix, {**GAINS, "seal": 0.4})
    write_report(analyse(matrix))
    assert picture.read_bytes()[:8] == drawn[:8]


def test_the_page_holds_registration_effects_and_picture(matrix):
    page, picture = write_report(analyse(matrix))
    text = page.read_text()
    sha = json.loads((matrix.folder / "registration.json").read_text())["sha256"]
    for expected in ("Which arm learns more?", "every run, once", sha, "15 of 15 runs", "seal - vanilla"):
        assert expected in text
    assert "HAS CHANGED" not in text and "INTERIM" not in text
    assert f"![simulated]({picture.name})" in text and picture.read_bytes().startswith(b"\x89PNG")
    effects = json.loads(page.with_suffix(".json").read_text())["effects"]
    assert [each["arm"] for each in effects if each["family"] == "primary"] == ["seal", "random_labels"]


def test_an_unfinished_matrix_and_a_changed_file_are_called_so(matrix, tmp_path, capsys):
    matrix.result(Cell("seal", 4)).unlink()
    text = matrix.text.replace("primary: {set: base@1}", "primary: {set: base@1, step: 16}")
    matrix.source.write_text(text)
    assert run(app, ["report", matrix.source]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "14 of 15 runs have finished: an INTERIM look" in said
    assert "THE FILE HAS CHANGED" in said and "Primary outcome: base@1, tasks passed, last validation." in said
    found = analyse(Experiment.read(matrix.source))
    assert found.primary[0].seeds == (0, 1, 2, 3), "arms are compared on the seeds that both have"


def test_a_run_with_other_code_or_failed_rollouts_is_named(matrix, capsys):
    cell = Cell("seal", 1)
    was = dict(matrix.finished())[cell]
    lacking = [replace(each, tasks=dict(list(each.tasks.items())[1:]), infra=8) for each in was.validations]
    changed = {"commit": "e" * 40 + "+", "validations": tuple(lacking), "launches": 2, "leak": "NOT HELD OUT: all."}
    replace(was, **changed).write(matrix.result(cell))
    assert run(app, ["report", matrix.source]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for expected in (
        "The runs used 2 commits of the code",
        "Files differed from the commit in ",
        "40 validation rollouts failed",
        "resumed: seal-1",
        "NOT HELD OUT in seal-1",
        "Up to 1 tasks are left out",
    ):
        assert expected in said


@pytest.mark.parametrize(("passed", "level"), [(0, "0.0 [0.0, 3.6]"), (8, "100.0 [96.4, 100.0]")])
def test_runs_of_which_all_score_the_same_claim_no_detectable_difference(tmp_path, passed, level):
    made = simulated.experiment(tmp_path, ("a", "b"))
    tasks = {f"multi_turn_base_{scenario}": TaskScore(passed, 8, passed, 8) for scenario in simulated.EVAL_SCENARIOS}
    for cell in made.cells:
        simulated.result(made, cell, (ValidationScores(32, "base@1", tasks),)).write(made.result(cell))
    found = analyse(made)
    primary, arms = (next(each for each in sections(found) if name in each.title) for name in ("Primary", "Arms"))
    assert primary.rows[0][5:] == ("+0.0 [-3.6, +3.6]", "1", "1", "-") and [row[2] for row in arms.rows] == [level] * 2


def test_a_comparison_without_common_runs_is_missing_and_still_counts_in_the_correction(matrix):
    for seed in range(5):
        matrix.result(Cell("random_labels", seed)).unlink()
    found = analyse(matrix)
    (effect,) = found.primary
    assert effect.p_holm == pytest.approx(min(1, 2 * effect.difference.p))
    assert [each.reason for each in found.missing] == ["no seed has finished in both arms"]
    told = [note for section in sections(found) for note in section.notes if "no seed has finished" in note]
    assert told == ["random_labels - vanilla: no seed has finished in both arms."]


def test_an_experiment_without_a_finished_run_is_refused_in_one_sentence(tmp_path, capsys):
    made = simulated.experiment(tmp_path, ("vanilla", "seal"))
    assert run(app, ["report", made.source]) == 2
    assert "no run of simulated has finished: seal experiment run" in capsys.readouterr().err
    assert run(app, ["status", made.source]) == 0
    assert "0 of 10 runs are finished" in capsys.readouterr().out


def test_results_are_read_as_they_were_written_and_a_cut_line_is_named(matrix, tmp_path):
    results = [result for _cell, result in matrix.finished()]
    path = tmp_path / "results.jsonl.gz"
    path.write_bytes(gzip.compress("".join(result.line() for result in results).encode()))
    assert read_results(path) == (tuple(results), ())
    path.write_bytes(gzip.compress((results[0].line() + results[1].line()[:200]).encode()))
    (found, (bad,)) = read_results(path)
    assert found == (results[0],) and isinstance(bad, BadLine) and "cut short" in str(bad)
    with pytest.raises(ValueError, match=f"format {FORMAT + 1} instead of"):
        RunResult.from_line({"format": FORMAT + 1})


def test_turns_are_weighted_by_their_number_and_sources_averaged(tmp_path):
    made = simulated.experiment(tmp_path, ("a",), seeds=(0,))
    tasks = {
        "base": {"multi_turn_base_0": TaskScore(0, 1, 1, 1), "multi_turn_base_1": TaskScore(0, 1, 0, 3)},
        "miss_func": {"multi_turn_miss_func_0": TaskScore(1, 1, 2, 2)},
    }
    validations = tuple(ValidationScores(4, source, found) for source, found in tasks.items())
    result = simulated.result(made, Cell("a", 0), validations)
    outcome = made.design.primary.model_copy(update={"set": "average", "metric": "turns"})
    assert panel([result], outcome).means == pytest.approx([(1 / 4 + 1) / 2])
    whole = outcome.model_copy(update={"metric": "pass"})
    assert panel([result], whole).means == pytest.approx([(0 + 1) / 2])
    runs = []
    for score in (
        TaskScore(1, 1, 2, 2),
        TaskScore(1, 1, 0, 0),
    ):  # no turn of the second has a label: unknown, not missed
        more = {**tasks, "base": {**tasks["base"], "multi_turn_base_2": score}}
        scores = tuple(ValidationScores(4, source, found) for source, found in more.items())
        runs.append(simulated.result(made, Cell("a", len(runs)), scores))
    assert panel(runs, outcome).means == pytest.approx([(1 / 4 + 1) / 2] * 2)


def test_runs_of_different_lengths_are_compared_at_their_own_last_validation(tmp_path):
    made = simulated.experiment(tmp_path, ("long", "short"), seeds=(0,))
    first, last = ({"multi_turn_base_0": TaskScore(passed, 4, passed, 4)} for passed in (1, 3))
    both = (ValidationScores(8, "base@1", first), ValidationScores(16, "base@1", last))
    long = simulated.result(made, Cell("long", 0), both)
    short = simulated.result(made, Cell("short", 0), (ValidationScores(8, "base@1", first),))
    outcome = made.design.primary
    assert np.subtract(*panel([long, short], outcome).means) == pytest.approx(0.5)
    assert np.subtract(*panel([long, short], outcome.model_copy(update={"step": 8})).means) == pytest.approx(0.0)
    with pytest.raises(ValueError, match="not every run validated base@1 at step 16; common steps are 8"):
        panel([long, short], outcome.model_copy(update={"step": 16}))
    with pytest.raises(ValueError, match="one validation of base@1 in common"):
        panel([long, short], outcome.model_copy(update={"area": True}))
    with pytest.raises(ValueError, match="a run was never validated on base@1"):
        panel([long, simulated.result(made, Cell("short", 0), ())], outcome)


def test_tasks_of_another_environment_are_scenarios_of_their_own(tmp_path):
    made = simulated.experiment(tmp_path, ("a",), seeds=(0,))
    tasks = {"say-1": TaskScore(1, 2, 1, 2), "say-2": TaskScore(2, 2, 2, 2)}
    result = simulated.result(made, Cell("a", 0), (ValidationScores(4, "sound/say", tasks),))
    found = panel([result], made.design.primary.model_copy(update={"set": "sound/say"}))
    assert found.means == pytest.approx([0.75]) and len(set(found.scenarios)) == 2


RESULTS = sorted(path.parent for path in (HOME / "benchmarks").glob("*/results.jsonl.gz"))
PUBLISHED = [folder for folder in RESULTS if (folder / "report.md").exists()]  # not what has runs to go


def apart(file):
    """A JSON value without its fractions, and these."""
    figures = []
    return json.loads(file.read_text(), parse_float=lambda each: figures.append(float(each))), figures


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_report_follows_from_registration_and_results_alone(folder, tmp_path):
    """The arms' present settings do not matter."""
    for name in ("registration.json", "results.jsonl.gz"):
        shutil.copy(folder / name, tmp_path)
    page, _picture = write_report(analyse(Experiment.read(tmp_path)))
    assert page.read_text() == (folder / page.name).read_text()
    (made, figures), (published, expected) = (apart(place / "report.json") for place in (tmp_path, folder))
    assert made == published and figures == pytest.approx(expected, rel=1e-9)  # processors differ in the last digits


def test_the_command_takes_a_published_folder(tmp_path, capsys):
    assert run(app, ["report", HOME / "benchmarks" / "async", "--out", tmp_path / "page.md"]) == 0
    assert "6 of 6 runs have finished" in " ".join(capsys.readouterr().out.split())
    assert run(app, ["report", tmp_path]) == 2
    assert "holds no registration.json" in capsys.readouterr().err
    shutil.copytree(HOME / "benchmarks" / "async", tmp_path, dirs_exist_ok=True)
    packed = (results := tmp_path / "results.jsonl.gz").read_bytes()
    for spoilt in (packed[:1000], packed[:20] + b"\0" * 99 + packed[119:], b"{" + packed):
        results.write_bytes(spoilt)
        assert run(app, ["report", tmp_path]) == 2
        assert "results.jsonl.gz:1: cannot be unpacked" in " ".join(capsys.readouterr().err.split())
