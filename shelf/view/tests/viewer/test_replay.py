"""A replay reproduces what was logged, and names what the cues had added."""

import copy
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.task_file import write_task_file
from env_service.environments.bfcl.tools import Toolbox
from seal.method.interface.cues import catalogue
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.view.cli.view import app
from shelf.view.replayer import SERVICE, Replayer, _lengths, _plain
from shelf.view.simulated import compare, leaves
from tests.support.errand_rollout import SERVED, errand_rollout
from tests.support.played_run import SMALL, mixture_of
from tests.support.played_run import write_run as write_mixed_run

NO_RUN = RunFolder(Path("none"))


@pytest.fixture(scope="module")
def lines(played) -> list[dict]:
    files = sorted((played / "seal_log/trajectories").glob("*.jsonl"), key=lambda path: int(path.stem))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def replay():
    replayer = Replayer()
    yield lambda line, step, run=NO_RUN: replayer.replay(line, step, run)
    replayer.close()


def test_a_replay_gives_the_logged_results_and_the_verifiers_verdict_on_the_state(lines, replay):
    compared = 0
    for line in lines[::3]:
        if line["infra"]:
            continue
        found = replay(line, line["step"])
        assert [turn["other_results"] for turn in found["turns"]] == [[]] * len(found["turns"])
        for turn in found["turns"]:
            match = line["evidence"][turn["turn"]]["state_match"]
            differs = any(not row["equal"] for row in turn["state"]["rows"])
            if match is not None:
                assert differs == (not match), (line["task_id"], turn)
                compared += 1
    assert compared > 50


def test_marks_cover_exactly_what_the_cues_added(lines, replay):
    marked = 0
    fixed = {cue.name: cue.compact for cue in catalogue().values() if cue.compact and "{" not in cue.compact}
    for line in lines:
        if line["infra"]:
            continue
        found, messages = replay(line, line["step"])["plain"], [*line["input"], *line["output"]]
        assert len(found) == len(messages)
        for length, message in zip(found, messages, strict=True):
            if message["role"] == "assistant":
                assert length is None
                continue
            assert length is not None, "the environment's own words were not recognised"
            own, added = message["content"][:length], message["content"][length:]
            marked += bool(added)
            assert not any(text in own for text in fixed.values())
            if line["omega_version"] == 0:
                assert not added
    assert marked > 10


def test_a_mark_begins_after_the_characters_that_take_two_units_in_a_page():
    sent, logged = ([{"role": "user", "content": f"\U0001f600 ls{added}"}] for added in ("", " List the folder."))
    assert _lengths(logged, sent) == [len("\ud83d\ude00 ls")]


def test_a_validation_has_no_marks(played, replay):
    line = json.loads((played / "validation_log/0.jsonl").read_text().splitlines()[0])
    assert set(replay(line, 0)["plain"]) == {None}


def test_a_result_that_differs_from_the_log_is_told(lines, replay):
    line = copy.deepcopy(next(each for each in lines if each["calls"] > 2 and not each["infra"]))
    first = next(action["calls"] for turn in line["evidence"] for action in turn["actions"] if action["calls"])[0]
    first["result"] = "forged"
    found = replay(line, line["step"])["turns"]
    assert sum(len(turn["other_results"]) for turn in found) == 1


def test_what_cannot_be_replayed_says_so_and_the_next_line_can(lines, replay):
    made = lines[3] | {"task_id": "made_base_1", "data_source": "base", "category": "base"}
    assert "why" in replay(made, 1)
    assert "why" in replay({"task_id": "multi_turn_base_0"}, 1)
    assert replay(lines[3], 1)["turns"]


def test_the_cues_of_another_environment_are_marked(monkeypatch):
    record = errand_rollout()
    monkeypatch.setitem(SERVICE, "BFCL_ENVIRONMENTS", f"{SERVICE['BFCL_ENVIRONMENTS']},{SERVED}")
    replayer = Replayer()
    found = replayer.replay(record.line(), 1, NO_RUN)
    replayer.close()
    assert found["turns"] == []  # states of its own tools are not shown
    added = [
        message["content"][length:]
        for message, length in zip(record.messages, found["plain"], strict=True)
        if length is not None and length < len(message["content"])
    ]
    assert len(added) == 2 and all(text.strip() for text in added)  # the system text, and the failed call's answer


def test_a_user_that_a_model_played_speaks_again_without_cues(monkeypatch):
    known = {"task_id": "t", "data_source": "shop/a", "category": "shop/a", "split": "train", "sample": 0}
    told = {"omega_version": 1, "prompt_mode": "xml", "user": ({"text": "Hello.", "source": "m"},)}
    record, ways = TrajectoryRecord(**known, **told, score=0.0), []
    monkeypatch.setattr("shelf.view.replayer.play_again", lambda asked, _url: ways.extend(asked) or [record, record])
    assert _plain("", record) == [] and [way.params["user"] for way in ways] == [True, True]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """A run on the benchmark's and on synthesised tasks, whose file lies beside it."""
    folder = tmp_path_factory.mktemp("mixed")
    write_task_file(synthesise(Grammar(), 12, 3, "train"), folder / "tasks.jsonl")
    return write_mixed_run(folder / "run", *SMALL, *mixture_of(folder / "tasks.jsonl"), steps=2, validations=(0,))


def synthesised(run: Path) -> dict:
    """The line of a synthesised task's trajectory with several messages."""
    files = [run / f"seal_log/trajectories/{step}.jsonl" for step in (1, 2)]
    lines = [json.loads(text) for file in files for text in file.read_bytes().splitlines()]
    return next(line for line in lines if line["task_id"].startswith("synth_") and line["calls"])


def test_a_synthesised_task_is_replayed_from_the_file_that_its_run_names(mixed, monkeypatch, tmp_path, replay):
    monkeypatch.chdir(tmp_path)
    line = synthesised(mixed)
    found = replay(line, line["step"], RunFolder(mixed))
    assert [turn["other_results"] for turn in found["turns"]] == [[]] * len(line["labels"])
    for turn, seen in zip(found["turns"], line["evidence"], strict=True):
        assert turn["reference"] and len(turn["reference"]) == seen["expected_calls"]
        assert all(row["equal"] for row in turn["state"]["rows"]) == seen["state_match"]
    assert all(
        (length is None) == (message["role"] == "assistant")
        for length, message in zip(found["plain"], [*line["input"], *line["output"]], strict=True)
    )


def test_a_synthesised_task_whose_file_has_gone_or_changed_says_so(mixed, replay):
    line = synthesised(mixed)
    run, file = RunFolder(mixed), mixed.parent / "tasks.jsonl"
    kept = file.read_text()
    try:
        assert "no launches.jsonl" in replay(line, 1, RunFolder(mixed.parent))["why"]
        file.write_text(kept.replace(line["task_id"], "synth_train_base_000000000000"))
        assert "is in none of the run's task files" in replay(line, 1, run)["why"]
        file.unlink()
        assert f"the task file {file} is gone" in replay(line, 1, run)["why"]
        file.write_text(kept)
        assert replay(line, 1, run)["turns"]
    finally:
        file.write_text(kept)


def test_a_replay_that_does_not_end_is_ended(lines):
    replayer = Replayer(deadline_s=0.001)
    try:
        # A deadline this short may pass while the connection opens or after it.
        assert re.search("did not answer within|Connection timeout", replayer.replay(lines[3], 1, NO_RUN)["why"])
    finally:
        replayer.close()


def test_the_command_that_the_page_offers_refuses_what_is_no_trajectory(played):
    refused = CliRunner().invoke(app, [str(played), "--replay", "train:2"])
    assert refused.exit_code == 2 and "names no trajectory" in refused.output


def test_states_are_compared_leaf_by_leaf():
    before = {"A.x": 1, "A.y": [1, 2], "A.gone": "g"}
    after = {"A.x": 2, "A.y": [1, 2], "A.new": True}
    expected = {"A.x": 3, "A.y": [1, 2], "A.new": True}
    found = compare(before, after, expected)["rows"]
    assert found == [
        {"path": "A.x", "equal": False, "before": 1, "after": 2, "expected": 3},
        {"path": "A.new", "equal": True, "after": True, "expected": True},
        {"path": "A.gone", "equal": True, "before": "g"},
    ]
    assert compare({"a": 1}, {"a": 1.0}, {"a": 1.0})["rows"]  # the verifier may tell them apart, so the page does


def test_a_state_of_every_simulator_is_plain_json():
    seen = set()
    for task in load_tasks().values():
        if not set(task.involved_classes) <= seen or task.long_context:
            seen |= set(task.involved_classes)
            json.dumps(leaves(Toolbox(task).instances), allow_nan=False)
    assert len(seen) == 8
