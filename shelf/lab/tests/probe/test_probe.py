"""A probe's figures for a cue follow from its rollouts and from the policy's own gradients."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from seal.data.rows import TaskRow
from seal.method.interface.cues import Omega
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.system.net import free_port
from seal.system.paths import HOME
from shelf.lab.cli.probe import app
from shelf.lab.probe.documents import lines as table
from shelf.lab.probe.documents import lost_tasks, report
from shelf.lab.probe.measure import Policy, Question, gain, lines, questions
from shelf.lab.probe.rollouts import DialogueTokens, Job, Played
from tests.support.recipes import composed

TASKS = [TaskRow(f"multi_turn_base_{n}", "base", n, "train") for n in range(4)]
NOTHING = DialogueTokens([0, 1], [1])


def rollouts(task: int, scores: str, label: str = "argument_mismatch", said: str = "") -> list[Played]:
    """One for each digit of `scores`; those of which `said` has a 1 pass in a plain episode too."""
    names = {"task_id": TASKS[task].task_id, "data_source": "base", "category": "base", "split": "train"}
    records = [
        TrajectoryRecord(**names, sample=n, score=float(score), labels=("pass" if score == "1" else label,))
        for n, score in enumerate(scores)
    ]
    lessons = [NOTHING if n < len(said) and said[n] == "1" else None for n in range(len(scores))]
    return [Played(Job(task, each.sample), each, NOTHING, own) for each, own in zip(records, lessons, strict=True)]


def test_a_cue_is_asked_where_a_plain_rollout_fails_as_its_label_says():
    settings = SealSettings.of(composed(HOME / "exp" / "quickstart.yaml"))
    plain = {0: rollouts(0, "00"), 1: rollouts(1, "01"), 2: rollouts(2, "11"), 3: rollouts(3, "00", "state_mismatch")}
    asked = {each.cue: each for each in questions(settings, TASKS, plain)}
    assert set(asked["schema_required"].shown) == {0, 1} and asked["schema_required"].rate == 3 / 8
    assert asked["schema_required"].shown[0] == Omega.of(["schema_required"])
    assert set(asked["reread_state"].shown) == {3} and not asked["recover"].shown


def test_what_can_be_handed_on_is_lift_times_share_of_tasks_times_what_transfers():
    asked = Question("schema_required", "argument_mismatch", 0.5, {0: Omega(), 1: Omega()})
    plain = {0: rollouts(0, "00"), 1: rollouts(1, "01")}
    cued = {0: rollouts(0, "11", said="11"), 1: rollouts(1, "11", said="10")}
    row = gain(asked, TASKS, plain, cued, lambda seen, plain: 0.1)
    assert (row["tasks"], row["plain"], row["lift"], row["replayed"]) == (0.5, 0.25, 0.75, 0.75)
    assert row["low"] <= row["lift"] <= row["high"]
    assert row["taught"] == pytest.approx(0.5 * 0.75 * 0.75) and row["cued"] == pytest.approx(0.1 * row["taught"])
    # Task 1 passes without the cue too: what a step on its successes gives the plain prompt is no gain of the cue.
    plain, kept = {0: rollouts(0, "00"), 1: rollouts(1, "11")}, {0: rollouts(0, "11", said="11")}
    cued = kept | {1: [each._replace(lesson=DialogueTokens([7], [])) for each in rollouts(1, "11", said="11")]}
    row = gain(asked, TASKS, plain, cued, lambda seen, plain: 0.9 if plain.ids == [7] else 0.1)
    assert row["lift"] == 0.5 and row["transfer"] == pytest.approx(0.1)
    row = gain(asked._replace(shown={1: Omega()}), TASKS, plain, cued, lambda seen, plain: 0.9)
    assert row["lift"] == 0 and row["transfer"] is None and row["taught"] is None
    nothing = gain(asked._replace(shown={}), TASKS, plain, {}, lambda seen, plain: 0.1)
    assert nothing["tasks"] == 0 and nothing["lift"] is None and nothing["taught"] is None
    assert max(len(line) for text in lines([row, nothing]) for line in text.splitlines()) <= 80


def calls(task: int, score: str, *broken: str) -> Played:
    """A rollout that called these tools with wrong arguments, and `cp` with right ones."""
    played = rollouts(task, score)[0]
    wrong = [{"name": name, "available": True, "violations": ["missing"], "error": None} for name in broken]
    hidden = {"name": "hidden", "available": False, "violations": ["missing"], "error": "unavailable"}
    right = {"name": "cp", "available": True, "violations": [], "error": "execution"}
    evidence = ({"turn": 0, "actions": [{"calls": [*wrong, right, hidden], "refusals": []}]},)
    return played._replace(record=replace(played.record, evidence=evidence))


def test_the_entries_asked_about_are_those_of_the_visible_tools_whose_own_calls_broke_their_schema():
    plain = {0: [calls(0, "0", "mv"), calls(0, "0", "mv", "cd")], 1: [calls(1, "0", "mv"), calls(1, "1")]}
    plain |= {2: [calls(2, "0")], 3: [calls(3, "0", "mv")]}
    plain[3][0] = plain[3][0]._replace(record=replace(plain[3][0].record, infra="service"))
    lost = lost_tasks(plain)
    assert [(each.task, each.broken) for each in lost] == [(0, {"mv": 2, "cd": 1}), (2, {})]
    own, other, some = (lost[0].shown(arm) for arm in ("own", "other", "random"))
    assert (own.tools, own.others) == (("cd", "mv"), 0) and (other.tools, other.others) == (("cd", "mv"), 2)
    assert (some.tools, some.others) == ((), 2) and lost[0].shown("nothing") is None
    assert [lost[1].shown(arm) is None for arm in ("own", "other", "random", "all")] == [True, True, True, False]


def test_a_task_without_a_broken_call_counts_in_every_arm_as_without_an_entry():
    arms = {"nothing": "00", "other": "01", "random": "-0", "own": "11", "all": "11"}
    rows = [
        {"task": "a", "scenario": "a", "plain": "00", "broken": {"mv": 2}, "arms": arms},
        {"task": "b", "scenario": "b", "plain": "00", "broken": {}, "arms": {"nothing": "10", "all": "11"}},
        {"task": "c", "scenario": "c", "plain": "01", "broken": None, "arms": None},
    ]
    found = report(rows)
    assert (found["tasks"], found["lost"], found["diagnosed"], found["entries"]) == (3, 2, 1, 0.5)
    assert (found["rollouts"], found["without_verdict"]) == (20, 1)
    assert found["passed"] == {"nothing": 0.25, "other": 0.5, "random": 0.25, "own": 0.75, "all": 1.0}
    assert found["differences"]["lost"]["other"]["points"] == 0.25
    assert found["differences"]["diagnosed"]["other"]["points"] == 0.5
    assert [(each["tool"], each["tasks"], each["passes"]) for each in found["tools"]] == [("mv", 1, 1.0)]
    assert report(rows[2:])["lost"] == 0, "nothing was lost"
    assert report([rows[0], rows[0]])["lost"] == 2, "two prefixes of a task, or tasks of two environments"
    assert max(map(len, [*table(found), *table(report(rows[2:]))])) <= 80


def test_gradients_are_those_of_the_policys_own_tokens():
    policy = Policy(str(HOME / "data" / "quickstart_policy"), 1.0)
    one, other = DialogueTokens(list(range(5, 40)), [20, 21, 22]), DialogueTokens(list(range(50, 90)), [30, 31])
    assert policy.transfer(one, one) == pytest.approx(1)
    assert policy.transfer(one, other) == pytest.approx(
        policy.transfer(DialogueTokens(one.ids[:23], one.sampled), other), rel=1e-3
    )
    batch = [(one, 1.0, 2.0, 0), (other, -1.0, 2.0, 1), (other, 0.0, 1.0, 1)]
    weights, halves, weighted = policy.angles(batch)
    assert weights == pytest.approx(1) and halves == pytest.approx(weighted), "a common factor turns nothing"
    assert policy.angles([(one, 1.0, 2.0, 0), (other, -1.0, 0.5, 1)])[0] < 0.999


@pytest.mark.slow
def test_the_command_probes_a_policy(tmp_path):
    changes = ["seal.data.train.limit=4", "actor_rollout_ref.rollout.n=2", "data.train_batch_size=2"]
    url = f"env_service.env_url=http://127.0.0.1:{free_port()}"
    model, recipe = HOME / "data" / "quickstart_policy", HOME / "exp" / "quickstart.yaml"
    done = CliRunner().invoke(app, [str(model), str(recipe), url, *changes, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "probe.json").read_text())
    assert found["lost"] == 0 and found["rollouts"] > 8
    cues = {row["cue"] for row in found["gains"]}
    assert {"schema_required", "feedback_tools", "recover"} < cues
    assert any(row["transfer"] for row in found["gains"])


@pytest.mark.slow
def test_the_command_asks_which_documents_a_policy_lacks(tmp_path):
    changes = ["seal.data.train.limit=6", "actor_rollout_ref.rollout.n=2"]
    url = f"env_service.env_url=http://127.0.0.1:{free_port()}"
    model, recipe = HOME / "data" / "quickstart_policy", HOME / "exp" / "quickstart.yaml"
    done = CliRunner().invoke(app, [str(model), str(recipe), url, *changes, "--documents", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "documents.json").read_text())
    assert len(found["rows"]) == found["tasks"] >= 6 and found["without_verdict"] == 0
    assert report(found["rows"]).items() <= found.items(), "the figures follow from the rows"
    assert (tmp_path / "documents.png").read_bytes()[1:4] == b"PNG"
