"""The viewer's answers agree with the logs, and it gives them only to whom it should."""

import contextlib
import json
import re
import shutil
import sqlite3
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from env_service.environments.kit.tool_calls import write_message
from seal.method.interface.cues import catalogue
from seal.records.folder import RunFolder
from seal.records.step import SentOmega, StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.system.lock import lock
from shelf.statistics.log import Log, read_log, read_validation_dir
from shelf.view import plots
from shelf.view.app import POLICY, STATIC
from shelf.view.export import page, write_page
from shelf.view.headline import headline
from shelf.view.lifts import lift, withdrawal_log
from shelf.view.overview import reached
from shelf.view.query import Filters, counts, groups, trajectories
from shelf.view.report.run import read_run
from shelf.view.runs import find_runs
from shelf.view.tests.report.sample_run import write_run as write_older_run
from shelf.view.tests.viewer.conftest import client
from shelf.view.trajectory import place_messages, trajectory, whole_group
from shelf.view.viewed import Viewed

LABELS = ["", "pass", "state_mismatch", "argument_mismatch", "recovery_failure", "budget_cut"]


@pytest.fixture(scope="module")
def viewed(played) -> Viewed:
    found = Viewed(find_runs([str(played)], Path())[0])
    found.index.update()
    return found


@pytest.fixture(scope="module")
def logged(played) -> list:
    return list(Log.joined(read_log(played / f"seal_log/trajectories/{step}.jsonl") for step in range(1, 7)).lines)


def tools(line, turn: int) -> set[str]:
    evidence = line.evidence[turn]
    return {call["name"] for action in evidence["actions"] for call in action["calls"]} | set(evidence["needed"])


def fits(line, filters: Filters) -> bool:
    turns = [
        turn
        for turn, label in enumerate(line.labels)
        if filters.label in ("", label)
        and filters.blame in ("", line.diagnosis[turn]["blame"])
        and filters.turn in (None, turn)
        and (not filters.tool or filters.tool in tools(line, turn))
    ]
    asks_turn = filters.label or filters.blame or filters.tool or filters.turn is not None
    outcome = {
        "": True,
        "passed": line.passed and line.infra is None,
        "failed": not line.passed and line.infra is None,
        "infra": line.infra is not None,
        "excluded": line.excluded,
    }[filters.outcome]
    return bool(
        (turns or not asks_turn)
        and outcome
        and (filters.from_step is None or line.step >= filters.from_step)
        and (filters.to_step is None or line.step <= filters.to_step)
        and filters.category in ("", line.category)
        and filters.task in line.task_id
    )


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    label=st.sampled_from(LABELS),
    blame=st.sampled_from(["", "own", "inherited"]),
    tool=st.sampled_from(["", "cd", "fillFuelTank", "place_order", "no_such_tool"]),
    turn=st.sampled_from([None, 0, 1, 3]),
    outcome=st.sampled_from(["", "passed", "failed", "infra", "excluded"]),
    category=st.sampled_from(["", "base", "miss_func", "long_context"]),
    task=st.sampled_from(["", "base", "_1", "%", "'; DROP TABLE trajectory"]),
    span=st.sampled_from([(None, None), (2, 4), (6, None), (5, 3)]),
)
def test_the_list_holds_exactly_what_fits_the_filters(viewed, logged, span, **fields):
    filters = Filters(from_step=span[0], to_step=span[1], order="old", **fields)
    with viewed.index.reading() as db:
        found = trajectories(db, filters, 0, 500)
    wanted = [(line.step, line.task_id, line.sample) for line in logged if fits(line, filters)]
    assert [(row["step"], row["task"], row["sample"]) for row in found["rows"]] == wanted
    assert found["total"] == len(wanted)


@pytest.mark.parametrize("by", ["step", "category", "turn", "tool"])
def test_a_cell_of_the_table_counts_the_turns_of_the_logs(viewed, logged, by):
    wanted: Counter = Counter()
    for line in logged:
        for turn, label in enumerate(line.labels):
            places = {"step": [line.step], "category": [line.category], "turn": [turn]}.get(by) or tools(line, turn)
            wanted.update((place, label) for place in places)
    found: Counter = Counter()
    with viewed.index.reading() as db:
        for cell in counts(db, Filters(), by):
            found[cell["at"], cell["label"]] += cell["count"]
    assert found == wanted


def test_pages_of_the_list_join_to_the_whole(viewed):
    whole = viewed.trajectories(Filters(order="w"), 0, 500)["rows"]
    parts = [row for offset in range(0, 160, 40) for row in viewed.trajectories(Filters(order="w"), offset, 40)["rows"]]
    assert parts == whole and len(whole) == 144


def test_a_text_is_found_where_the_dialogue_holds_it(viewed, logged):
    text = logged[5].messages[1]["content"][10:40]
    found = {row["key"] for row in viewed.trajectories(Filters(text=text.upper()), 0, 500)["rows"]}
    wanted = {
        f"train:{line.step}:{1 + i % 24}" for i, line in enumerate(logged) if text.lower() in line.to_json().lower()
    }
    assert found == wanted != set()
    assert viewed.trajectories(Filters(text="(.*"), 0, 1)["total"] == sum("(.*" in line.to_json() for line in logged)


def test_a_trajectory_is_what_its_line_holds(viewed, logged):
    shown = viewed.ask(trajectory, viewed.run.folder, "train:2:5")
    line = logged[24 + 4]
    assert [(each["role"], each["content"]) for each in shown["messages"]] == [
        (m["role"], m["content"]) for m in line.messages
    ]
    assert shown["figures"]["w"] == line.w and shown["record"]["labels"] == list(line.labels)
    assert {each["sample"] for each in shown["siblings"]} == set(range(8))


def test_each_message_of_the_policy_stands_beside_its_own_calls(viewed, logged):
    for key, line in (("train:2:5", logged[28]), ("train:4:20", logged[91])):
        for message in viewed.ask(trajectory, viewed.run.folder, key)["messages"]:
            if message["role"] != "assistant":
                continue
            for call in line.evidence[message["turn"]]["actions"][message["action"]]["calls"]:
                assert call["name"] in message["content"]


def test_a_group_shows_every_rollout_and_what_the_user_asked(viewed, logged):
    line = logged[30]
    shown = viewed.ask(whole_group, viewed.run.folder, "train", line.step, line.data_source, line.task_id, None)
    assert [member["sample"] for member in shown["members"]] == list(range(8))
    users = [message["content"] for message in line.messages if message["role"] == "user"]
    assert shown["users"]["0"] == users[0]


def test_the_overview_is_that_of_the_steps_log(viewed, played):
    steps = [json.loads(line) for line in (played / "seal_log/steps.jsonl").read_text().splitlines()]
    shown = viewed.overview()
    assert shown["reward"] == [step["reward_mean"] for step in steps]
    assert shown["w"]["max"] == [step["w"]["max"] for step in steps]
    assert shown["total_seconds"] == [step["seconds"]["step"] for step in steps]
    for label, values in shown["labels"].items():
        assert [value or 0 for value in values] == [step["label_counts"].get(label, 0) for step in steps]
    run, log = read_run(played), read_validation_dir(played)
    validation = viewed.validation()
    assert validation["headline"] == headline(run.folder, run.steps, log.lines)  # as the report's first line
    assert {row["step"] for row in validation["validation"]} == {0, 6}
    for row in validation["validation"]:
        assert 0 <= row["rate"]["low"] <= row["rate"]["rate"] <= row["rate"]["high"] <= 1


def test_the_first_look_is_a_group_with_signal_and_a_task_that_was_learnt(run):
    task, other = "multi_turn_base_1", "multi_turn_base_2"
    for step, scores in ((0, (0.0, 0.0, 0.0)), (6, (1.0, 1.0, 0.0))):
        lines = [
            TrajectoryRecord(name, "base", "base", "eval", sample, score, ("pass" if score else "state_mismatch",))
            for name, sample, score in zip((task, task, other), (0, 1, 0), scores, strict=True)
        ]
        text = "".join(json.dumps(replace(line, step=step).line()) + "\n" for line in lines)
        (run / f"validation_log/{step}.jsonl").write_text(text)
    viewed = Viewed(find_runs([str(run)], Path())[0])
    viewed.index.update()
    shown = viewed.examples()
    assert shown["learnt"]["before"]["record"]["task_id"] == task == shown["learnt"]["after"]["record"]["task_id"]
    assert (shown["learnt"]["before"]["key"], shown["learnt"]["turn"]) == ("validation:0:1", 0)
    group, others = shown["group"], viewed.ask(groups, Filters(), 0, 500, True)["rows"]
    assert [member["passed"] for member in group["pair"]] == [1, 0] and group["users"]["0"]
    assert _distance(group) == min(map(_distance, others)) and others[0]["step"] == 6  # the list is newest first


def test_a_group_whose_advantages_are_0_has_no_signal_though_its_rewards_differ(run):
    """A teacher's: its plain rollouts failed alike, and no cued one taught."""
    for path in (run / "seal_log" / "trajectories").iterdir():
        lines = [{**json.loads(line), "advantage": 0.0} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    viewed = Viewed(find_runs([str(run)], Path())[0])
    viewed.index.update()
    whole, signal = (viewed.ask(groups, Filters(), 0, 500, spread)["rows"] for spread in (False, True))
    assert any(0 < group["passed"] < group["size"] for group in whole) and not signal
    assert not any(page_of(viewed, group)["signal"] for group in whole)


def page_of(viewed: Viewed, row: dict) -> dict:
    """The page of a group in the list."""
    place = [row[name] for name in ("step", "source", "task", "prompt")]
    return viewed.ask(whole_group, viewed.run.folder, "train", *place)


def test_a_rollout_that_infrastructure_lost_is_none_of_those_that_did_not_pass(viewed, logged):
    lost = next(line for line in logged if line.infra)
    rows = viewed.ask(groups, Filters(step=lost.step, task=lost.task_id), 0, 500, False)["rows"]
    (row,) = (row for row in rows if row["task"] == lost.task_id)
    assert (row["size"], row["counted"], row["infra"]) == (8, 7, 1)


def test_two_prompts_of_a_step_with_the_same_task_are_two_groups(run):
    path = run / "seal_log" / "trajectories" / "6.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    own, same = ([line for line in lines if line["group"] == number] for number in (1, 2))
    for line, other in zip(own, same, strict=True):
        other |= {name: line[name] for name in ("task_id", "data_source", "category")}
        line |= {"excluded": line["score"] == 1.0}  # the reward that differs does not count
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    viewed = Viewed(find_runs([str(run)], Path())[0])
    viewed.index.update()
    task, found = own[0]["task_id"], viewed.ask(groups, Filters(step=6), 0, 500, False)["rows"]
    pages = [page_of(viewed, row) for row in found if row["task"] == task]
    assert [len(page["members"]) for page in pages] == [8, 8]
    assert [page["signal"] for page in pages] == [False, True]
    one = viewed.ask(trajectory, viewed.run.folder, pages[1]["members"][0]["key"])
    assert [each["key"] for each in one["siblings"]] == [each["key"] for each in pages[1]["members"]]


def _distance(group):
    return group["infra"] > 0, abs(2 * group["passed"] / group["counted"] - 1)


def test_a_message_says_who_speaks_whatever_its_role():
    said = ["system", "user", "assistant", "user", "assistant", "user", "assistant", "user", "user"]
    evidence = [{"actions": [{"calls": [{}]}, {"calls": []}]}, {"actions": [{"calls": []}]}]
    shown = place_messages([{"role": role, "content": ""} for role in said], evidence)
    assert [message["speaker"] for message in shown] == [
        "system", "user", "policy", "tool", "policy", "user", "policy", "environment", "environment",
    ]  # fmt: skip
    unknown = place_messages([{"role": role, "content": ""} for role in ("user", "assistant", "user", "tool")], None)
    assert [message["speaker"] for message in unknown] == ["user", "policy", "environment", "tool"]


def test_an_api_s_tool_calls_are_shown_as_calls():
    made = [{"id": "1", "type": "function", "function": {"name": "cd", "arguments": '{"folder": "a"}'}}, {"id": "2"}]
    said = [("assistant", write_message("I go.", made)), ("tool", "ok"), ("assistant", write_message("", ()))]
    shown = place_messages([{"role": role, "content": content} for role, content in said], None)
    assert [(each["speaker"], each["content"]) for each in shown] == [
        ("policy", 'I go.\ncd({"folder": "a"})\nNone(None)'),
        ("tool", "ok"),
        ("policy", ""),
    ]


def test_a_run_whose_last_step_is_logged_has_finished_unless_it_still_works(run):
    viewed = Viewed(find_runs([str(run)], Path())[0])
    assert viewed.listed()["stage"] | {"seconds": 0, "of": 0} == {
        "stage": "validate", "step": 6, "of": 0, "planned": 6, "seconds": 0, "running": None, "finished": True,
    }  # fmt: skip
    with lock(run / "launcher.lock"):
        stage = viewed.listed()["stage"]
        assert (stage["running"], stage["finished"]) == (True, False)
    lines = viewed.run.folder.steps.read_text().splitlines()
    viewed.run.folder.steps.write_text("\n".join(lines[:-1]) + "\n")
    assert not viewed.listed()["stage"]["finished"]


def test_every_cue_that_was_active_has_its_steps_words_and_causes(viewed, played):
    steps = [json.loads(line) for line in (played / "seal_log/steps.jsonl").read_text().splitlines()]
    shown = {cue["name"]: cue for cue in viewed.omega()["cues"]}
    active = {cue for step in steps for cue in step["omega"]["cues"]}
    assert active and active <= set(shown)
    for name, cue in shown.items():
        assert list(cue["steps"]) == [step["step"] for step in steps if name in step["omega"]["cues"]]
        assert cue["events"] == [event for step in steps for event in step["events"] if event["cue"] == name]
        assert cue["text"] and cue["label"]
    assert viewed.omega()["other_wording"] is False


def test_the_lift_of_the_interface_is_that_of_the_report(viewed, played):
    wanted = lift(withdrawal_log(RunFolder(played)).lines)
    shown = viewed.omega()["lift"]
    assert shown["bad"] == 0
    found = shown["overall"]
    assert (found["pairs"], found["lift"]) == (wanted.overall.pairs, wanted.overall.difference)
    assert (found["low"], found["high"]) == (wanted.overall.low, wanted.overall.high)
    assert found["with"] - found["without"] == pytest.approx(found["lift"])
    assert [each["step"] for each in shown["steps"]] == list(wanted.at) == [0, 6]
    assert shown["steps"][-1]["lift"] == wanted.at[6].difference


def test_lifts_follow_the_log_of_the_withdrawals(run):
    viewed = Viewed(find_runs([str(run)], Path())[0])
    before, signature = viewed.omega()["lift"], viewed.listed()["signature"]
    path = run / "seal_log/withdrawal/6.jsonl"
    path.write_text("{\n" + path.read_text())
    after = viewed.omega()["lift"]
    assert after == before | {"bad": 1} and viewed.listed()["signature"] != signature
    path.unlink()
    assert [each["step"] for each in viewed.omega()["lift"]["steps"]] == [0]
    shutil.rmtree(path.parent)
    assert viewed.omega()["lift"] is None


def test_what_cannot_be_asked_for_is_refused_in_a_sentence(played):
    with client(played) as found:
        for address, status in (
            ("/api/trajectory?run=played_s0&key=../../etc", 400),
            ("/api/trajectory?run=played_s0&key=train:1:9999", 400),
            ("/api/trajectories?run=played_s0&order=sideways", 400),
            ("/api/trajectories?run=played_s0&turn=-1", 400),
            ("/api/failures?run=played_s0&by=mood", 400),
            ("/api/group?run=played_s0&step=1&source=base&task=none", 400),
            ("/api/overview?run=other", 404),
            ("/../pyproject.toml", 404),
            ("/static/app.js", 404),
            ("/%2e%2e/%2e%2e/pyproject.toml", 404),
        ):
            answer = found.get(address)
            assert answer.status_code == status, address
            assert len(answer.json()["error"]) > 10
        for method in ("post", "put", "delete", "patch"):
            assert getattr(found, method)("/api/runs").status_code == 405


def test_every_answer_carries_the_policy(played):
    with client(played) as found:
        for address in ("/", "/app.js", "/api/runs", "/api/overview?run=none", "/nothing"):
            headers = found.get(address).headers
            assert headers["Content-Security-Policy"] == POLICY
            assert headers["X-Content-Type-Options"] == "nosniff"
    assert "unsafe" not in POLICY and "*" not in POLICY


def test_a_web_site_cannot_reach_the_viewer_through_a_name_of_its_own(played):
    with client(played) as found:
        assert found.get("/api/runs", headers={"Host": "evil.example"}).status_code == 421
        assert found.get("/api/runs", headers={"Host": "localhost:8090"}).status_code == 200
        assert found.get("/api/runs", headers={"Host": "[::1]:8090"}).status_code == 200


def test_a_token_is_asked_for_once_and_kept_in_a_cookie(played):
    with client(played, host="0.0.0.0", token="s3cret") as found:
        assert found.get("/api/runs").status_code == 401
        assert found.get("/").status_code == 401
        assert found.get("/api/runs?token=wrong").status_code == 401
        found.cookies.set("seal_view_token", "s3cre")
        assert found.get("/api/runs").status_code == 401
        found.cookies.clear()
        first = found.get("/?token=s3cret", follow_redirects=False)
        assert first.status_code == 303 and first.headers["Location"] == "/"
        assert "HttpOnly" in first.headers["Set-Cookie"] and "samesite=strict" in first.headers["Set-Cookie"].lower()
        assert found.get("/api/runs").status_code == 200


def test_logs_of_earlier_versions_are_shown(tmp_path):
    folder = write_older_run(tmp_path / "older")
    with client(folder) as found:
        shown = found.get("/api/overview?run=older").json()["runs"][0]
        assert len(shown["step"]) == 40 and shown["cues"]
        rows = found.get("/api/trajectories?run=older&log=validation").json()
        assert rows["total"] == 1200
        one = found.get(f"/api/trajectory?run=older&key={rows['rows'][0]['key']}").json()
        assert one["figures"]["w"] is None and one["messages"] == []
        assert found.get("/api/omega?run=older").status_code == 200


@pytest.mark.parametrize("what", ["empty", "empty_files", "garbage", "directory"])
def test_an_empty_or_damaged_run_has_pages(tmp_path, what):
    folder = tmp_path / "broken"
    (folder / "seal_log/trajectories").mkdir(parents=True)
    text = {"empty_files": b"", "garbage": b'{"step": 1\n\xff\xfe\n[]\n{"step": "x"}\n'}.get(what)
    if text is not None:
        for name in ("steps.jsonl", "omega.jsonl", "stages.jsonl", "trajectories/1.jsonl"):
            (folder / "seal_log" / name).write_bytes(text)
    if what == "directory":
        (folder / "seal_log/trajectories/1.jsonl").mkdir()
        (folder / "launcher.lock").write_text("{")
    with client(folder) as found:
        for page in ("runs", "overview", "choices", "failures", "trajectories", "groups", "omega"):
            answer = found.get(f"/api/{page}", params={} if page == "runs" else {"run": "broken"})
            assert answer.status_code == 200, (page, answer.text)
        if what == "garbage":
            shown = found.get("/api/overview?run=broken").json()["runs"][0]
            assert len(shown["bad_steps"]) == 4 and shown["bad"]["count"] == 4


def test_a_line_that_is_damaged_inside_is_shown_as_it_is(run):
    path = run / "seal_log/trajectories/1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[4] |= {"output": ["text", {"content": 5}, {"role": None}, None], "evidence": [{"actions": None}, 7]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with client(run) as found:
        shown = found.get("/api/trajectory?run=played_s0&key=train:1:5").json()
        assert [each["content"] for each in shown["messages"][-4:]] == ["text", "5", "", ""]
        assert "cannot be played again" in found.get("/api/replay?run=played_s0&key=train:1:5").json()["why"]


def test_a_line_that_is_nested_deeply_or_holds_half_a_character_has_a_page(run):
    path = run / "seal_log/trajectories/1.jsonl"
    lines = path.read_text().splitlines()
    deep = "[" * 900 + "]" * 900
    lines[2] = lines[2].replace('"evidence":', f'"evidence_2": {deep}, "evidence":', 1)
    lines[3] = json.dumps(json.loads(lines[3]) | {"infra_message": "\ud800", "evidence": [{"deep": json.loads(deep)}]})
    path.write_text("\n".join(lines) + "\n")
    with client(run) as found:
        assert found.get("/api/overview?run=played_s0").json()["runs"][0]["bad"]["count"] == 0
        for line in (3, 4):
            for page in ("trajectory", "replay"):
                answer = found.get(f"/api/{page}?run=played_s0&key=train:1:{line}")
                assert answer.status_code == 200, answer.text
        row = found.get("/api/trajectory?run=played_s0&key=train:1:4").json()
        where = {"run": "played_s0", "step": 1, "source": row["figures"]["source"], "task": row["record"]["task_id"]}
        assert found.get("/api/group", params=where).status_code == 200


BEYOND = "9" * 20


@pytest.mark.parametrize(
    "asked",
    [
        f"trajectories?offset={BEYOND}", f"trajectories?step={BEYOND}", f"trajectories?omega={BEYOND}",
        f"trajectories?turn={BEYOND}", f"trajectories?from_step={BEYOND}", f"groups?offset={BEYOND}",
        f"trajectory?key=train:{BEYOND}:1", f"group?step={BEYOND}&source=a&task=b", f"failures?to_step=-{BEYOND}",
    ],
)  # fmt: skip
def test_a_number_beyond_64_bits_is_refused(played, asked):
    page, _, rest = asked.partition("?")
    with client(played) as found:
        answer = found.get(f"/api/{page}?run=played_s0&{rest}")
        assert answer.status_code == 400 and answer.json()["error"].endswith(".")
        assert answer.headers["Content-Security-Policy"] == POLICY


def test_a_run_that_is_moved_away_is_called_gone_until_it_is_back(run, tmp_path):
    with client(run) as found:
        run.rename(tmp_path / "elsewhere")
        for page in ("overview", "trajectories", "omega"):
            answer = found.get(f"/api/{page}?run=played_s0")
            assert (answer.status_code, "is gone" in answer.json()["error"]) == (410, True)
        assert found.get("/api/runs").status_code == 200
        (tmp_path / "elsewhere").rename(run)
        deadline = time.monotonic() + 60
        while (answer := found.get("/api/trajectories?run=played_s0")).status_code != 200 or not answer.json()["total"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_runs_are_named_and_joined_to_arms(tmp_path):
    for name in ("a/seal_s0", "a/seal_s1", "a/vanilla", "b/vanilla"):
        (tmp_path / name / "seal_log").mkdir(parents=True)
    at = str(tmp_path)
    runs = find_runs([f"{at}/a/seal_s0", f"{at}/a/seal_s1", f"base={at}/a/vanilla,{at}/b/vanilla"], tmp_path)
    assert [(each.name, each.arm) for each in runs] == [
        ("seal_s0", "seal"), ("seal_s1", "seal"), ("a/vanilla", "base"), ("b/vanilla", "base"),
    ]  # fmt: skip
    assert [each.name for each in find_runs([], tmp_path / "a")] == ["seal_s0", "seal_s1", "vanilla"]
    arms = {"layers2": "layers2", "layers4": "layers4", "x_seed1": "x", "xseed2": "x", "y.s-3": "y"}
    for name in arms:
        (tmp_path / "arms" / name / "seal_log").mkdir(parents=True)
    assert {each.name: each.arm for each in find_runs([], tmp_path / "arms")} == arms
    for odd in ("lr=1e-4", "a,b"):
        (tmp_path / "odd" / odd / "seal_log").mkdir(parents=True)
        assert [each.name for each in find_runs([f"{at}/odd/{odd}"], tmp_path)] == [odd]
    for wrong in ([f"{at}/none"], [f"{at}/a"], [f"{at}/a/vanilla"] * 2, ["x="]):
        with pytest.raises(ValueError, match=r"name a run|name each run once|names no folder"):
            find_runs(wrong, tmp_path)
    with pytest.raises(ValueError, match="holds no run"):
        find_runs([], tmp_path)


def test_the_exported_page_of_a_run_that_trained_nothing_holds_its_validations(run, tmp_path):
    shutil.rmtree(run / "seal_log")
    write_page(find_runs([str(run)], Path()), tmp_path / "page.html", 2)
    held = re.search(r'id="seal-export">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)[1]
    answers, validated = json.loads(held), read_validation_dir(run).lines
    sample = answers["api/sample?run=played_s0"]
    assert sample["of"] == len(validated) and len(sample["keys"]) == 2
    assert all(answers[f"api/trajectory?key={key}&run=played_s0"]["log"] == "validation" for key in sample["keys"])
    cells = answers["api/failures?by=step&run=played_s0"]["cells"]
    assert sum(cell["count"] for cell in cells) == sum(len(line.labels) for line in validated) > 0


def test_the_built_front_end_belongs_to_its_sources():
    import hashlib

    import shelf.view

    web = Path(shelf.view.__file__).parent / "web"
    sources = sorted(path.relative_to(web).as_posix() for path in (web / "src").rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for name in ["package.json", "build.mjs", *sources]:
        digest.update(f"{name}\0".encode() + (web / name).read_bytes() + b"\0")
    built = (web.parent / "static/sources.sha256").read_text().strip()
    assert built == digest.hexdigest(), "run `npm ci && npm run build` in shelf/view/web"
    assert sum(path.stat().st_size for path in (web.parent / "static").iterdir()) < 500_000


def test_the_page_and_the_picture_of_the_report_colour_labels_alike():
    light = (STATIC / "app.css").read_text().split("data-theme=dark")[0]
    numbers = dict(re.findall(r"(\w+): (\d+)", (STATIC.parent / "web/src/text.js").read_text().split("COLOURS =")[1]))
    for label, colour in plots.LABELS.items():
        assert f"--label-{numbers.pop(label)}:{colour}" in light.replace(": ", ":")
    assert not numbers and f"--label-0:{plots.OTHER}" in light.replace(": ", ":")


def test_an_exported_page_holds_what_no_json_of_utf_8_does():
    answers = {"text": "</script>\ud800", "deep": json.loads("[" * 400 + "]" * 400)}
    held = re.search(r'id="seal-export">(.*?)</script>', page(answers), re.DOTALL)[1]
    assert json.loads(held)["text"].startswith("</script>")


def test_an_export_whose_index_another_program_holds_is_refused_in_a_sentence(run, tmp_path, monkeypatch):
    monkeypatch.setattr("shelf.view.index.WAIT_S", 0.1)
    with contextlib.closing(sqlite3.connect(Viewed(find_runs([str(run)], Path())[0]).index.path)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="cannot be written"):
            write_page(find_runs([str(run)], Path()), tmp_path / "page.html", 1)


def test_a_line_whose_file_was_written_again_is_not_shown_as_another(run):
    viewed = Viewed(find_runs([str(run)], Path())[0])
    viewed.index.update()
    path = run / "seal_log/trajectories/1.jsonl"
    text = path.read_text()
    for changed in (text[100:], text.replace(text.split('"task_id": "')[1].split('"')[0], "multi_turn_base_0", 1)):
        path.write_text(changed)
        with pytest.raises(ValueError, match="has changed since"):
            viewed.line("train:1:1")


def test_a_label_of_the_release_is_reached_by_the_cue_of_its_synonym():
    cue = next(cue for cue in catalogue().values() if cue.label == "missing_tool_call")
    step = StepRecord(1, SentOmega(0, "", (cue.name,)), label_counts={"empty_turn_model_response": 3})
    assert [(row["turns"], row["with_cue"], row["has_cue"]) for row in reached([step])] == [(3, 3, True)]


@pytest.mark.parametrize("omega", [5, [1], {"version": "x"}])
def test_a_damaged_interface_in_the_log_leaves_its_page(run, omega):
    path = run / "seal_log/omega.jsonl"
    path.write_text("".join(json.dumps({"step": step, "omega": omega}) + "\n" for step in range(6)))
    shown = Viewed(find_runs([str(run)], Path())[0]).omega()
    assert shown["cues"] and shown["other_wording"] is None


def test_reading_leaves_the_logs_as_they_were(run):
    before = {path: path.read_bytes() for path in run.rglob("*.jsonl")}
    viewed = Viewed(find_runs([str(run)], Path())[0])
    viewed.index.update()
    with viewed.index.reading() as db:
        trajectory(db, viewed.run.folder, "train:1:2")
    assert {path: path.read_bytes() for path in run.rglob("*.jsonl")} == before
    assert {path.name for path in run.iterdir()} - {"seal_log", "validation_log"} == {"view_index.sqlite"}
    assert RunFolder(run).steps.is_file()
