"""The index says what the logs say, also while they grow, are rewritten or are damaged."""

import json
import sqlite3
import time
from pathlib import Path

import pytest

from seal.records.folder import RunFolder
from seal.records.format import FORMAT
from shelf.statistics.log import read_log
from shelf.view import index
from shelf.view.index import INDEX_FILE, Index, Indexer
from shelf.view.query import Filters, bad_lines, groups, trajectories
from shelf.view.trajectory import trajectory


def rows(index: Index, **filters) -> list[dict]:
    with index.reading() as db:
        return trajectories(db, Filters(order="old", **filters), 0, 500)["rows"]


def indexed(folder) -> Index:
    index = Index(RunFolder(folder))
    index.update()
    return index


def test_every_line_is_indexed_as_the_records_read_it(run):
    found = rows(indexed(run))
    logged = [line for step in range(1, 7) for line in read_log(run / f"seal_log/trajectories/{step}.jsonl").lines]
    assert len(found) == len(logged) == 6 * 24
    for row, line in zip(found, logged, strict=True):
        assert (row["task"], row["sample"], row["score"], row["step"]) == (
            line.task_id,
            line.sample,
            line.score,
            line.step,
        )
        assert (tuple(row["labels"]), row["w"], row["advantage"]) == (line.labels, line.w, line.advantage)
        assert row["blames"] == [each["blame"] for each in line.diagnosis]
        assert (row["infra"], row["turns_passed"], row["stop"]) == (line.infra, line.turns_passed, line.stop)


def test_the_trainers_log_holds_w_and_advantage_of_what_counts(run):
    lines = read_log(run / "seal_log/trajectories/3.jsonl").lines
    assert all((line.w == 0) == (line.infra is not None) for line in lines)
    assert any(line.advantage for line in lines) and all(0.5 <= line.w <= 2 for line in lines if line.infra is None)


def test_new_steps_and_appended_lines_are_added(run):
    later = run / "seal_log/trajectories/6.jsonl"
    text = later.read_text()
    later.unlink()
    index = indexed(run)
    assert len(rows(index)) == 5 * 24
    lines = text.splitlines(keepends=True)
    half = "".join(lines[:10]) + lines[10][:500]
    later.write_text(half)
    assert index.update()
    assert len(rows(index)) == 5 * 24 + 10
    with index.reading() as db:
        assert bad_lines(db)["count"] == 1  # the half line is not passed over in silence
    with later.open("a") as file:
        file.write(text[len(half) :])
    assert index.update()
    assert len(rows(index)) == 6 * 24
    with index.reading() as db:
        assert bad_lines(db)["count"] == 0
    assert not index.update()


def test_a_resumed_run_replaces_what_it_dropped(run):
    index = indexed(run)
    (run / "seal_log/trajectories/6.jsonl").unlink()
    path = run / "seal_log/trajectories/5.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.unlink()
    path.write_text("".join(lines[:8]))
    index.update()
    assert len(rows(index)) == 4 * 24 + 8
    with index.reading() as db:
        for table in ("turn", "tool"):
            orphans = f"SELECT count(*) FROM {table} WHERE trajectory NOT IN (SELECT id FROM trajectory)"
            assert db.execute(orphans).fetchone()[0] == 0


@pytest.mark.parametrize("damage", [b"not a database", b"SQLite format 3\0" + b"\xff" * 4000, b""])
def test_a_damaged_index_is_built_again(run, damage):
    indexed(run)
    (run / INDEX_FILE).write_bytes(damage)
    assert len(rows(indexed(run))) == 6 * 24


def test_an_index_of_another_version_is_built_again(run):
    indexed(run)
    with sqlite3.connect(run / INDEX_FILE) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("DELETE FROM trajectory")
    db.close()
    assert len(rows(indexed(run))) == 6 * 24


def test_logs_that_cannot_be_written_get_an_index_elsewhere(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (run / INDEX_FILE).mkdir()  # nobody, not even root, can make the index beside these logs
    index = indexed(run)
    assert index.path.is_relative_to(tmp_path / "cache")
    assert len(rows(index)) == 6 * 24


def test_bad_lines_are_counted_with_their_place_and_spoil_nothing_else(run):
    path = run / "seal_log/trajectories/2.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = '{"task_id": 7}'
    lines[5] = "[1, 2]"
    lines[7] = lines[7].replace(f'"format": {FORMAT}', '"format": 77')
    lines[9] = "\ufffd{"
    lines[11] = json.dumps(json.loads(lines[11]) | {"labels": 5})
    lines[13] = "[" * 100_000
    path.write_text("\n".join(lines) + "\n")
    index = indexed(run)
    with index.reading() as db:
        found = bad_lines(db)
    assert found["count"] == 6
    assert [each["line"] for each in found["first"]] == [4, 6, 8, 10, 12, 14]
    assert "task_id" in found["first"][0]["problem"] and "77" in found["first"][2]["problem"]
    assert len(rows(index, step=2)) == 18


def test_the_samples_of_a_validation_are_those_of_its_statistics(run):
    path = run / "validation_log/6.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    unnumbered = [{name: found for name, found in line.items() if name != "sample"} for line in lines[1:]]
    path.write_text("".join(json.dumps(line) + "\n" for line in (lines[0], lines[0], *unnumbered, *unnumbered)))
    index, log = indexed(run), read_log(path)
    found = [(row["task"], row["sample"]) for row in rows(index, log="validation", step=6)]
    assert found == [(line.task_id, line.sample) for line in log.lines] and len(found) == 2 * len(lines) - 1
    assert [each["line"] for each in index.ask(bad_lines)["first"]] == [each.line for each in log.bad] == [2]


def test_a_line_of_another_step_than_its_file_s_has_a_page(run):
    path = run / "validation_log/6.jsonl"
    path.write_text(path.read_text().replace('"step": 6', '"step": 7'))
    index = indexed(run)
    first = rows(index, log="validation", step=7)[0]
    assert index.ask(trajectory, index.folder, first["key"])["record"]["task_id"] == first["task"]


ODD = {
    "actions are a number": {"evidence": [{"actions": 5}]},
    "actions of a turn without a label are a number": {"labels": [], "evidence": [{"actions": 5}]},
    "an action is a number": {"evidence": [{"actions": [5]}]},
    "a call has no name": {"evidence": [{"actions": [{"calls": [{}]}]}]},
    "needed is a number": {"evidence": [{"needed": 5}]},
    "blame is an object": {"labels": ["pass"], "diagnosis": [{"turn": 0, "blame": {}}]},
    "a label is half a character": {"labels": ["\ud800"]},
    "stop is half a character": {"stop": "\udfff"},
    "a version is beyond 64 bits": {"omega_version": 2**63},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_line_is_one_bad_line(run, odd):
    path = run / "seal_log/trajectories/2.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = json.dumps(json.loads(lines[3]) | odd)
    path.write_text("\n".join(lines) + "\n")
    index = indexed(run)
    found = index.ask(bad_lines)
    assert [(each["name"], each["line"]) for each in found["first"]] == [("2.jsonl", 4)] and found["first"][0][
        "problem"
    ]
    assert len(rows(index)) == 6 * 24 - 1


def test_an_index_that_is_removed_or_emptied_under_a_viewer_is_made_again(run):
    index = Index(RunFolder(run))
    indexer = Indexer([index])
    try:
        for damage in (lambda path: None, Path.unlink, lambda path: path.write_bytes(b"")):
            damage(run / INDEX_FILE)
            deadline = time.monotonic() + 60
            while (read := attempt(index)) != 6 * 24 or not index.progress.ready:
                assert time.monotonic() < deadline, read
                time.sleep(0.1)
    finally:
        indexer.close()


def attempt(index: Index) -> int | sqlite3.Error:
    try:
        return len(rows(index))
    except sqlite3.Error as error:
        return error


def test_two_viewers_may_index_the_same_run(run):
    first, second = Index(RunFolder(run)), Index(RunFolder(run))
    assert first.update() and not second.update()
    assert len(rows(second)) == 6 * 24


def test_a_file_that_another_viewer_reads_at_the_same_moment_is_indexed_once(run, monkeypatch):
    other, read = Index(RunFolder(run)), index._read_file

    def overtaken(*arguments):
        monkeypatch.setattr(index, "_read_file", read)
        other.update()
        return read(*arguments)

    monkeypatch.setattr(index, "_read_file", overtaken)
    mine = Index(RunFolder(run))
    mine.update()
    assert not mine.update() and not other.update()
    assert len(rows(mine)) == 6 * 24


def test_a_rollout_without_a_reward_is_in_the_list_and_neither_failed_nor_in_a_mean(tmp_path):
    rows_of = (("unscored/chat", "a", 0.0), ("foreign/chat", "b", 0.0), ("foreign/chat", "c", 1.0))
    lines = [{"task_id": task, "category": of, "data_source": of, "score": score} for of, task, score in rows_of]
    (tmp_path / "validation_log").mkdir()
    (tmp_path / "validation_log" / "0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = indexed(tmp_path)
    told = {name: {row["task"] for row in rows(found, outcome=name, log="validation")} for name in ("", "failed")}
    assert told == {"": {"a", "b", "c"}, "failed": {"b"}}
    means = found.ask(groups, Filters(log="validation"), 0, 10, False)["rows"]
    assert {row["task"]: (row["counted"], row["mean"]) for row in means} == {
        "a": (0, None),
        "b": (1, 0.0),
        "c": (1, 1.0),
    }
