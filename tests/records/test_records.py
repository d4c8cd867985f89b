"""Trajectories and steps survive their logs."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.evolve import Event
from seal.records import method
from seal.records.benchmark import CATEGORIES
from seal.records.source import ALL_CATEGORIES, categories_to_average
from seal.records.step import Range, SentOmega, StepRecord, harness_warnings, nothing_learnt, read_steps
from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.log import read_line

CUE = next(iter(catalogue()))
SHARES = st.floats(0, 1)
COUNTS = st.integers(0, 1000)
LABELS = st.lists(st.sampled_from(("pass", "state_mismatch", "correct_abstention")), max_size=4).map(tuple)


@st.composite
def trajectories(draw) -> TrajectoryRecord:
    category = draw(st.sampled_from(ALL_CATEGORIES))
    number = draw(st.integers(0, 199))
    turns = draw(COUNTS)
    return TrajectoryRecord(
        f"multi_turn_{category}_{number}" if category in CATEGORIES else f"{category}_{number:012x}",
        category + draw(st.sampled_from(("", "@1", "@3"))),
        category,
        draw(st.sampled_from(("train", "eval"))),
        draw(COUNTS),
        draw(st.floats(-1, 1)),
        labels=draw(LABELS),
        evidence=draw(st.sampled_from(((), ({"turn": 0},) * 3))),
        spans=draw(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), max_size=3)),
        turns=turns,
        turns_passed=draw(st.integers(0, turns)),
        cluster=draw(st.none() | COUNTS),
        progress=draw(SHARES),
        infra=draw(st.none() | st.just("engine")),
        messages=draw(st.sampled_from(((), ({"role": "user", "content": "u"}, {"role": "assistant", "content": ""})))),
        step=draw(COUNTS),
    )


@given(trajectories())
@settings(max_examples=80)
def test_a_trajectory_survives_its_log_and_its_json_text(record):
    assert TrajectoryRecord.from_json(record.to_json()) == record
    assert read_line(json.loads(record.to_json())) == (record, True)


def test_a_step_with_figures_of_an_earlier_version_is_read():
    assert StepRecord.from_line(StepRecord(2).line() | {"pilots": {"piloted": 3}}) == StepRecord(2)


def test_a_step_says_what_part_of_the_sampled_tokens_its_trained_dialogues_hold():
    known = {"task_id": "t", "data_source": "base", "category": "base", "split": "train", "score": 0.0}
    played = [
        TrajectoryRecord(**known, sample=0, tokens=400, trained_share=0.75, unsampled_calls=2),
        TrajectoryRecord(**known, sample=1, tokens=500, trained_share=0.1),
        TrajectoryRecord(**known, sample=2, infra="harness"),
    ]
    step = StepRecord.of(1, played)
    assert (step.trained_share, step.unsampled_calls) == (350 / 900, 2)
    assert set(harness_warnings(step)) == {"trained in part", "unsampled calls"}
    assert harness_warnings(StepRecord.of(1, played[:1] * 3)).keys() == {"unsampled calls"}
    assert StepRecord.of(1, played[2:]).trained_share == 1.0 and not harness_warnings(StepRecord.of(1, []))


def test_a_step_survives_its_log(tmp_path):
    blamed = ({"turn": 0, "blame": "own"}, {"turn": 1, "blame": "inherited"}, {"turn": 2, "blame": None})
    played = [
        TrajectoryRecord("t", "base", "base", "train", i, float(i), stop="completed", diagnosis=blamed)
        for i in range(2)
    ]
    step = replace(
        StepRecord.of(3, played),
        omega=SentOmega.of(Omega.of([CUE], version=2)),
        label_counts={"pass": 3, "state_mismatch": 1},
        w=Range.of([0.5, 1.5]),
        events=(Event(3, CUE, True, "*", {"prevalence": 0.2}),),
    )
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 2, "reward_mean": null, "label_counts": {}}\n' + json.dumps(step.line()) + "\nbroken\n")
    (before, read), (bad,) = read_steps(path)
    assert read == step and before.step == 2 and bad.line == 3
    assert step.blames == {"own": 2, "inherited": 2}
    assert (step.reward_mean, step.pass_share, step.w.mean, step.cues) == (0.5, 0.5, 1.0, (CUE,))
    assert json.loads(json.dumps(step.line()))["label_shares"] == {"pass": 0.75, "state_mismatch": 0.25}


def test_log_probs_that_were_not_compared_are_null_in_earlier_logs_too(tmp_path):
    path = tmp_path / "steps.jsonl"
    line = json.dumps(StepRecord(1).line(), allow_nan=False)
    path.write_text(
        line + "\n" + line.replace('"step": 1', '"step": 2').replace('"logp_diff_max": null', '"logp_diff_max": NaN')
    )
    steps, bad = read_steps(path)
    assert "NaN" in path.read_text() and not bad and [step.logp_diff_max for step in steps] == [None, None]


def test_of_a_step_logged_twice_the_later_line_counts(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(StepRecord(1, reward_mean=reward).line()) + "\n" for reward in (0.25, 0.75)))
    ((step,), bad) = read_steps(path)
    assert step.reward_mean == 0.75 and not bad


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        ((0.0, 0.0, 0.0), "no rollout passed"),
        ((0.0, None, 0.0), "no rollout passed"),
        ((1.0, 1.0, None), "every rollout passed"),
        ((0.0, 1.0, 0.0), "have the same reward"),
        ((None, None, None), None),
    ],
)
def test_steps_without_signal_are_told_apart_and_lost_ones_are_not_judged(passed, said):
    notice = nothing_learnt([StepRecord(step, pass_share=share) for step, share in enumerate(passed, 1)])
    assert said in notice if said else notice is None


def test_tables_average_over_the_benchmark_if_it_is_there():
    made = ("synth_paths_base", "synth_values_base")
    assert categories_to_average(iter((*made, "miss_func", "base"))) == ("base", "miss_func")
    assert categories_to_average(made) == ("synth_values_base", "synth_paths_base")


def test_another_log_prob_is_another_method(tmp_path, monkeypatch):
    monkeypatch.setattr(method, "HOME", tmp_path)
    (tmp_path / "seal" / "backends").mkdir(parents=True)
    before = method.method_digest()
    (tmp_path / "seal" / "backends" / "packed_attention.py").write_text("")
    assert method.method_digest() != before
