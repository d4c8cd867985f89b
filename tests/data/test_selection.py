"""A recipe's data block selects tasks, and says in one sentence why it cannot."""

import json
import re
from dataclasses import replace

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.splits import task_ids
from env_service.environments.bfcl.task_file import read_task_file as read_made_tasks
from env_service.environments.bfcl.task_file import write_task_file
from env_service.environments.registry import register
from seal.data.rows import whole_rows, write_rows
from seal.data.selection import RunRows, Selection, read_task_file, selected_rows
from seal.records.source import WHOLE, parse_data_source
from seal.settings.data import DataSettings
from shelf.task_rows import read_rows
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.support.errands import Errands


def ids(config):
    return [row.task_id for row in selected_rows(Selection.read(config))]


def test_an_empty_block_is_the_whole_training_side():
    assert len(ids({})) == 400


def test_sides_and_subsets_are_the_splits_of_the_benchmark():
    for split in ("train", "eval"):
        assert tuple(ids({"split": split})) == task_ids()[split]
        released = {"split": split, "subset": f"released_ids_{split}"}
        assert tuple(ids(released)) == task_ids("released_ids")[split]
        assert ids(released | {"mixture": {"tasks": "bfcl"}}) == ids(released)
        assert {row.split for row in selected_rows(Selection.read(released))} == {split}
    assert selected_rows(Selection()) == whole_rows(task_ids()["train"], "train")
    for subset in ("base", "eval", "released_ids_eval"):
        with pytest.raises(ValueError, match=f"subset={subset}: of bfcl it may be released_ids_train"):
            ids({"subset": subset})


def test_a_subset_of_another_environment_is_on_the_side_that_its_tasks_are_logged_with():
    register("errands", "tests.support.errands:Errands")
    own = {"environment": "errands"}
    assert ids(own | {"split": "eval", "subset": "test"}) == ids(own | {"split": "eval"}) == ["errand-2"]
    assert ids(own | {"subset": "train"}) == ids(own) and len(ids(own | {"subset": "bag"})) == 3
    for split, subset in (("train", "eval"), ("train", "test"), ("eval", "train")):
        with pytest.raises(ValueError, match=rf"^subset={subset} of errands is on the side (eval|train): set split="):
            ids(own | {"split": split, "subset": subset})


def test_a_category_that_reads_like_a_prefix_is_refused(monkeypatch):
    register("errands", "tests.support.errands:Errands")
    task = replace(next(iter(Errands().load())), category="bag@2")
    monkeypatch.setattr(Errands, "load", lambda _: [task])
    with pytest.raises(ValueError, match="errands has a category 'bag@2', and @ marks prefixes of tasks"):
        ids({"environment": "errands"})


def test_filters_narrow_together():
    tasks = load_tasks()
    chosen = ids({"categories": ["base", "miss_func"], "limit": 7})
    assert len(chosen) == 14
    for task in chosen:
        assert tasks[task].category in ("base", "miss_func")


def test_prefixes_are_tasks_of_their_own_with_unique_indices(tmp_path):
    selection = Selection.read({"categories": "base", "prefix_turns": [1, 2]})
    write_rows(selected_rows(selection), tmp_path / "x.parquet")
    rows = read_rows(tmp_path / "x.parquet")
    assert len(rows) == len(set(rows))
    assert {row.data_source for row in rows} == {"base@1", "base@2"}
    tasks = load_tasks()
    assert all(row.turns <= len(tasks[row.task_id].users) for row in rows)
    assert sum(row.turns == 1 for row in rows) == 100


def test_evaluation_side_and_even_limit():
    rows = selected_rows(Selection(split="eval", limit=5))
    assert [row.data_source for row in rows] == ["base"] * 5 + ["miss_func"] * 5 + ["miss_param"] * 5 + [
        "long_context"
    ] * 5
    assert {row.split for row in rows} == {"eval"}
    scenarios = [row.scenario for row in rows[:5]]
    assert scenarios == sorted(scenarios) and scenarios[-1] - scenarios[0] > 100


def test_selections_of_a_validation_may_overlap():
    val = [{"split": "eval"}, {"split": "eval", "categories": ["base"]}]
    settings = DataSettings.read({"val": val})
    assert len(RunRows.of(settings, "bfcl").val) == len(selected_rows(Selection(split="eval")))


def test_task_files_of_every_form(tmp_path):
    (tmp_path / "a.txt").write_text("multi_turn_base_0  # the first\n\nmulti_turn_base_2\n")
    (tmp_path / "b.json").write_text(json.dumps(["multi_turn_base_0", "multi_turn_base_2"]))
    (tmp_path / "c.json").write_text(json.dumps({"tasks": [{"task_id": "multi_turn_base_0", "turns": 1}]}))
    assert ids({"task_file": str(tmp_path / "a.txt")}) == ids({"task_file": str(tmp_path / "b.json")})
    assert read_task_file(tmp_path / "c.json") == (("multi_turn_base_0", 1),)
    assert ids({"task_file": str(tmp_path / "c.json"), "prefix_turns": 1}) == ["multi_turn_base_0"]
    with pytest.raises(ValueError, match="set prefix_turns to match"):
        ids({"task_file": str(tmp_path / "c.json")})
    (tmp_path / "c.json").write_text(json.dumps([{"task_id": "multi_turn_base_0", "turns": [1]}]))
    with pytest.raises(ValueError, match="turns of multi_turn_base_0"):
        ids({"task_file": str(tmp_path / "c.json")})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"catgories": ["base"]}, "did you mean categories?"),
        ({"categories": ["basic"]}, "must be 'base', 'miss_func'"),
        ({"prefix_turns": 0}, "greater than or equal to 1"),
        ({"prefix_turns": 1.5}, "must be a valid integer"),
        ({"limit": "many"}, "must be a valid integer"),
        ({"split": "val"}, "must be 'train' or 'eval'"),
        ({"task_file": "nowhere.json"}, "does not exist"),
    ],
)
def test_bad_blocks_are_one_sentence(config, said):
    with pytest.raises(ValueError, match=said) as caught:
        ids(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"), [("a.txt", b"\xff\xfe"), ("b.json", b"[1"), ("c.json", b"[" * 99_999), ("d.json", b"9" * 9999)]
)
def test_a_list_of_tasks_that_cannot_be_read_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / name))) as caught:
        ids({"task_file": str(tmp_path / name)})
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for level in ("train", "phrases"):
        write_task_file(synthesise(Grammar(), 60, 0, level), folder / f"{level}.jsonl")
    return {level: str(folder / f"{level}.jsonl") for level in ("train", "phrases")}


def test_a_mixture_has_the_proportions_of_its_weights_everywhere(task_files):
    mixture = [{"tasks": "bfcl", "weight": 1}, {"tasks": task_files["train"], "weight": 3}]
    rows = selected_rows(Selection.read({"mixture": mixture}))
    assert len(rows) == len(set(rows)) == 80
    for start in range(0, 80, 20):
        made = [row.task_id.startswith("synth_train_") for row in rows[start : start + 20]]
        assert 14 <= sum(made) <= 16


def test_a_source_may_have_its_own_prefixes(task_files):
    own = {"tasks": task_files["train"], "prefix_turns": []}
    selection = {"mixture": [{"tasks": "bfcl"}, own], "prefix_turns": [1]}
    turns = {(row.task_id.startswith("synth"), row.turns) for row in selected_rows(Selection.read(selection))}
    assert turns == {(False, 1), (True, WHOLE)}


def test_a_mixture_of_one_file_is_the_file(task_files):
    made = [task.id for task in read_made_tasks(task_files["train"])]
    assert ids({"mixture": {"tasks": task_files["train"]}}) == made


def test_filters_prefixes_and_files_of_ids_hold_for_synthesised_tasks(task_files, tmp_path):
    mixture = {"tasks": task_files["train"]}
    tasks = {task.id: task for task in read_made_tasks(task_files["train"])}
    for task in ids({"mixture": mixture, "categories": "miss_func"}):
        assert tasks[task].category == "miss_func"
    (tmp_path / "band.json").write_text(json.dumps({"tasks": list(tasks)[:4]}))
    assert ids({"mixture": mixture, "task_file": str(tmp_path / "band.json")}) == list(tasks)[:4]
    selection = Selection.read({"mixture": mixture, "categories": "base", "prefix_turns": [1, 2]})
    write_rows(selected_rows(selection), tmp_path / "x.parquet")
    rows = read_rows(tmp_path / "x.parquet")
    assert rows == selected_rows(selection)
    assert {row.data_source for row in rows} == {"synth_train_base@1", "synth_train_base@2"}
    assert {parse_data_source(row.data_source) for row in rows} == {("synth_train_base", 1), ("synth_train_base", 2)}


def test_training_refuses_held_out_levels_and_validation_takes_them(task_files):
    with pytest.raises(ValueError, match="which is not for split=train"):
        ids({"mixture": {"tasks": task_files["phrases"]}})
    chosen = ids({"split": "eval", "mixture": {"tasks": task_files["phrases"]}})
    assert len(chosen) == 60 and all(task.startswith("synth_phrases_") for task in chosen)


def test_a_mixture_says_what_is_wrong_with_a_source(task_files):
    with pytest.raises(ValueError, match="nowhere"):
        ids({"mixture": [{"tasks": "nowhere.jsonl"}]})
    with pytest.raises(ValueError, match="weight"):
        ids({"mixture": [{"tasks": task_files["train"], "weight": 0}]})
    for weight in (0.001, 1e-7):
        with pytest.raises(ValueError, match=f"weight {weight:g} leaves no task of source 2"):
            ids({"mixture": [{"tasks": "bfcl"}, {"tasks": task_files["train"], "weight": weight}]})


def test_a_source_without_tasks_is_named_and_no_other_ones_weight(monkeypatch):
    register("errands", "tests.support.errands:Errands")
    monkeypatch.setattr(Errands, "load", lambda self, load=Errands.load: [x for x in load(self) if x.side == "train"])
    mixture = {"mixture": [{"tasks": "bfcl"}, {"tasks": "errands"}]}
    assert len(ids(mixture)) == 4
    with pytest.raises(ValueError, match=r"^mixture: errands has no task for eval"):
        ids(mixture | {"split": "eval"})
