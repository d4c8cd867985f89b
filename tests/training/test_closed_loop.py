"""One step of Algorithm 1 without a trainer: what is weighed, what counts, what is kept."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from seal.launch.recipe import read_recipe
from seal.launch.start import KEPT
from seal.method.controls import exchanged_names
from seal.method.diagnosis.rules import PAPER
from seal.method.interface.cues import catalogue
from seal.method.profile import Profile
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.system.paths import HOME
from seal.training.closed_loop import ClosedLoop, mark_groups
from seal.training.stop import InfrastructureFailure, check_infrastructure


@cache
def settings(*overrides: str) -> SealSettings:
    return SealSettings.of(read_recipe(HOME / "exp" / "SEAL.yaml", list(overrides)).config)


def record(sample: int, labels=("state_mismatch",), score=0.0, **changes) -> TrajectoryRecord:
    base = TrajectoryRecord("multi_turn_base_0", "base@1", "base", "train", sample, score, labels=tuple(labels))
    return replace(base, **changes)


def batch() -> list[TrajectoryRecord]:
    wrong_call = [record(i, ("invalid_tool_call",)) for i in range(10)]
    return [*wrong_call, *(record(10 + i, ("pass",), 1.0) for i in range(6))]


def run(loop: ClosedLoop, step: int, records):
    groups = mark_groups(["group"] * len(records), records)
    return loop.step(step, records, groups)


def test_weights_follow_labels_and_a_weakness_changes_the_next_omega():
    loop = ClosedLoop(settings())
    weights, report = run(loop, 1, batch())
    assert {w for w in weights[:10]} == {2.0} and {w for w in weights[10:]} == {1.0}
    assert [(event.cue, event.on, event.figures["count"]) for event in report.record.events] == [
        ("listed_tools", True, 10)
    ]
    assert set(loop.omega_to_send()["cues"]["*"]) == {*report.record.omega.cues, "listed_tools"}
    assert {catalogue()[name].kind for name in report.record.omega.cues} == {"schema", "feedback"}


def test_switched_off_it_is_vanilla_grpo_that_still_diagnoses():
    loop = ClosedLoop(settings("seal.enabled=false"))
    weights, report = run(loop, 1, batch())
    assert [w for w in weights] == [1.0] * 16
    assert loop.omega_to_send() is None and report.record.omega is None and not report.record.events
    assert report.record.label_counts == {"invalid_tool_call": 10, "pass": 6}


def test_without_reweighting_weights_are_1_and_rho_stays():
    loop = ClosedLoop(settings("seal.reweighting.enabled=false"))
    rho = loop.state["rho"]
    weights, report = run(loop, 1, batch())
    assert set(weights) == {1.0} and dict(report.record.rho) == rho


def test_a_round_is_weighed_with_rho_of_its_own_profile():
    """Algorithm 1: C_t from round t, rho_t from C_t, w from rho_t."""
    loop = ClosedLoop(settings("seal.reweighting.beta=1.0"))
    records = [record(i, ("missing_tool_call",)) for i in range(32)]
    weights, report = run(loop, 1, records)
    target = min(1.5 * (1 + 1.0 * 1.0 * 1.0), 2.0)
    assert {w for w in weights} == {target} and report.record.rho["missing_tool_call"] == target
    assert loop.state["rho"] == report.record.rho


# --- the controls, through the whole loop --------------------------------------------


def weak_batch(step: int) -> list[TrajectoryRecord]:
    """64 trajectories of one to three turns, one weakness that grows and one that is mastered."""
    rng, records = random.Random(step), []
    for sample in range(64):
        shares = {"missing_tool_call": 0.05 * step, "state_mismatch": max(0.0, 0.45 - 0.05 * step), "pass": 0.5}
        row = rng.choices(list(shares), list(shares.values()), k=1 + sample % 3)
        records.append(record(sample, row, float(set(row) == {"pass"})))
    return records


def played(*overrides: str):
    """(active guidelines, weights by trajectory, label counts) of each of eight steps."""
    loop, steps = ClosedLoop(settings(*overrides)), []
    for step in range(1, 9):
        weights, report = run(loop, step, weak_batch(step))
        guidelines = {cue for cue in report.record.omega.cues if catalogue()[cue].kind == "guideline"}
        steps.append((guidelines, [each for each in weights], report.record.label_counts))
    return steps


def differing(ours, theirs) -> list[int]:
    """Trajectories whose weights differ, by step."""
    pairs = zip(ours, theirs, strict=True)
    return [sum(a != b for a, b in zip(mine[1], other[1], strict=True)) for mine, other in pairs]


def test_permuted_labels_lead_omega_and_the_weights_to_other_weaknesses():
    diagnosed, permuted = played(), played("ablation=permuted_labels")
    assert diagnosed[-1][0] == {"use_tools", "reread_state"}
    wrong = exchanged_names(PAPER, 0)
    weak = {catalogue()[cue].label for cue in permuted[-1][0]}
    assert weak == {wrong["missing_tool_call"], wrong["state_mismatch"]}
    for (ours, _, _), (theirs, _, _) in zip(diagnosed, permuted, strict=True):
        assert len(ours) == len(theirs) and (not ours or ours != theirs)
    assert all(differing(diagnosed, permuted))


def test_random_labels_move_the_weights_and_leave_omega_where_it_was():
    """They keep the shares of labels, from which Evolve chooses: only the weights lose their meaning."""
    diagnosed, control = played(), played("ablation=random_labels")
    assert control[-1][0] == diagnosed[-1][0]
    assert min(differing(diagnosed, control)) > 16


@pytest.mark.parametrize("override", [f"seal.diagnosis.source={each}" for each in ("verifier", "permuted", "random")])
def test_a_resumed_run_goes_on_as_it_would_have(override):
    first, second = ClosedLoop(settings(override)), ClosedLoop(settings(override))
    for step in (1, 2, 3):
        run(first, step, weak_batch(step))
    second.restore(first.state)
    assert run(first, 4, weak_batch(4)) == run(second, 4, weak_batch(4))
    assert first.state == second.state


# --- labels and logs -----------------------------------------------------------------


def test_random_labels_are_what_is_trained_on_and_the_diagnosed_ones_are_what_is_logged():
    loop, diagnosed = ClosedLoop(settings("ablation=random_labels")), Counter()
    for step in (1, 2):
        records = batch()
        weights, report = run(loop, step, records)
        diagnosed.update(label for each in records for label in each.labels)
        assert sum(report.record.label_counts.values()) == 16 and set(report.record.label_counts) <= set(diagnosed)
        assert len({w for w in weights[:10]}) == len({w for w in weights[10:]}) == 2  # both have either label
        assert report.record.trajectories == len(records)
    observed = Profile.from_json(loop.state["observed"]).recent().labels()
    assert {label: cell.count for label, cell in observed.items()} == diagnosed


def test_without_closed_loop_omega_and_rho_stay():
    loop = ClosedLoop(settings("seal.closed_loop=false"))
    before = (loop.omega_to_send(), loop.state["rho"])
    for step in (1, 2):
        run(loop, step, batch())
    assert (loop.omega_to_send(), loop.state["rho"]) == before
    assert before[0] == ClosedLoop(settings()).omega_to_send()


def test_infrastructure_failures_weigh_nothing_and_stay_out_of_the_profile():
    records = [*batch(), record(16, (), infra="engine")]
    loop = ClosedLoop(settings())
    weights, report = run(loop, 1, records)
    assert weights[16] == 0.0
    assert report.record.infra == {"engine": 1} and sum(report.record.label_counts.values()) == 16
    assert report.record.reward_mean == 6 / 16 and report.record.trajectories == 17


def test_a_group_with_one_survivor_is_dropped():
    records = [record(0, ("pass",), 1.0), record(1, (), infra="engine"), record(2), record(3, ("pass",), 1.0)]
    groups = mark_groups(["a", "a", "b", "b"], records)
    assert [group.counts for group in groups] == [False, False, True, True]


def test_a_resumed_run_has_the_window_and_the_static_rho_of_its_recipe():
    first = ClosedLoop(settings())
    for step in range(1, 5):
        run(first, step, batch())
    narrow = ClosedLoop(settings("seal.diagnosis.window=2"))
    narrow.restore(first.state)
    assert narrow.state["profile"]["window"] == 2
    assert [entry["step"] for entry in narrow.state["profile"]["steps"]] == [3, 4]
    for static in ("seal.closed_loop=false", "seal.reweighting.dynamic=false"):
        frozen = ClosedLoop(settings(static, "+seal.reweighting.rho.pass=0.7"))
        frozen.restore(first.state)
        assert frozen.state["rho"]["pass"] == 0.7


METHOD = {
    "enabled": "seal.enabled=false",
    "closed_loop": "seal.closed_loop=false",
    "diagnosis.source": "seal.diagnosis.source=random",
    "diagnosis.window": "seal.diagnosis.window=1",
    "interface.enabled": "seal.interface.enabled=false",
    "reweighting.enabled": "seal.reweighting.enabled=false",
    "reweighting.rho": "+seal.reweighting.rho.invalid_tool_call=0.6",
    "reweighting.w_min": "seal.reweighting.w_min=0.95",
    "reweighting.w_max": "seal.reweighting.w_max=1.1",
    "reweighting.dynamic": "seal.reweighting.dynamic=false",
    "reweighting.alpha": "seal.reweighting.alpha=0.1",
    "reweighting.beta": "seal.reweighting.beta=0.9",
    "reweighting.confidence": "seal.reweighting.confidence=4000",
}


@pytest.mark.parametrize("override", METHOD.values(), ids=METHOD)
def test_a_changed_setting_of_the_method_holds_in_the_next_step(override):
    first = ClosedLoop(settings())
    for step in range(1, 4):
        run(first, step, mixed())

    def fourth(*overrides):
        loop = ClosedLoop(settings(*overrides))
        loop.restore(first.state)
        return loop.omega_to_send(), run(loop, 4, mixed())

    assert fourth(override) != fourth()


def mixed():
    """Passes and failures; the weights of some of them are at the bounds."""
    return [*batch(), *(record(16 + i, ("pass", "state_mismatch")) for i in range(4))]


def test_each_setting_of_the_method_is_refused_on_resume_or_holds_in_the_next_step():
    blocks = {name: getattr(settings(), name) for name in ("diagnosis", "interface", "reweighting")}
    keys = {f"{name}.{key}" for name, block in blocks.items() for key in type(block).model_fields}
    by_rollout = {
        "interface.share",
        "interface.teacher",
        "interface.entries",
    }  # `Row` and the agent loop read them anew in each rollout
    assert (
        keys - METHOD.keys() - by_rollout
        == {"diagnosis.taxonomy", "interface.evolve"}
        <= {kept.removeprefix("seal.") for kept in KEPT}
    )


def test_a_resumed_run_with_a_static_omega_has_the_cues_of_its_recipe():
    first = ClosedLoop(settings())
    run(first, 1, batch())
    assert {"listed_tools", "schema_types"} <= set(first.state["omega"]["cues"]["*"])
    frozen = ClosedLoop(settings("seal.closed_loop=false", "seal.interface.evolve.left_out=[schema_types]"))
    start = frozen.omega_to_send()
    frozen.restore(first.state)
    assert frozen.omega_to_send() == start and "schema_types" not in start["cues"]["*"]


def test_a_checkpoint_of_an_earlier_version_resumes():
    """It also held the evidence against each cue of a retry."""
    loop = ClosedLoop(settings(*RETRY))
    loop.restore(loop.state | {"lessons": {"against": {f"bfcl/{CUE}": 24.0}, "retired": [f"bfcl/{CUE}"]}})
    assert loop.state == ClosedLoop(settings(*RETRY)).state


def test_excluded_trajectories_count_nowhere():
    cut = record(16, ("invalid_tool_call",), stop="max_steps", excluded=True)
    weights, report = run(ClosedLoop(settings()), 1, [*batch(), cut])
    plain_weights, plain = run(ClosedLoop(settings()), 1, batch())
    assert weights[16] == 0.0 and weights[:16] == plain_weights
    assert (report.record.label_counts, report.profile) == (plain.record.label_counts, plain.profile)
    assert report.record.reward_mean == plain.record.reward_mean
    assert report.record.stops["max_steps"] == 1


def test_a_step_tells_how_trajectories_ended():
    records = [
        record(0, ("pass",), 1.0, stop="completed"),
        record(1, stop="model_length", rebuilt=2),
        record(2, stop="model_length"),
        record(3, (), infra="engine"),
    ]
    records.append(replace(record(0, (), infra="engine_timeout"), task_id="multi_turn_base_1"))
    groups = mark_groups([r.task_id for r in records], records)
    _, report = ClosedLoop(settings()).step(1, records, groups)
    line, metrics = report.record.line(), report.record.metrics()
    assert line["stops"] == {"completed": 1, "model_length": 2}
    assert (line["groups_dropped"], line["episodes_rebuilt"]) == (1, 2)
    assert metrics["seal/stop/model_length"] == 2
    assert metrics["seal/infra/engine"] == 1 and metrics["seal/groups_dropped"] == 1


def test_random_labels_do_not_depend_on_the_order_of_trajectories():
    records = batch()
    forward, backward = (ClosedLoop(settings("seal.diagnosis.source=random")) for _ in range(2))
    weights, _ = run(forward, 1, records)
    reverse, _ = run(backward, 1, records[::-1])
    assert [w for w in weights] == [w for w in reverse[::-1]]


def test_the_lift_compares_rollouts_of_the_same_prompt_with_and_without_omega():
    def rollout(sample: int, score: float, omega_version: int | None, **fields) -> TrajectoryRecord:
        return replace(record(sample, ("pass",), score, **fields), omega_version=omega_version)

    rows = [
        *(rollout(0, 1.0, 3), rollout(1, 1.0, 3), rollout(2, 0.0, None), rollout(3, 1.0, None)),
        *(rollout(4, 0.0, 3), rollout(5, 1.0, None), rollout(6, 1.0, None, infra="engine")),
        *(rollout(7, 1.0, 3), rollout(8, 1.0, 3)),
    ]
    uids = ["easier with cues"] * 4 + ["harder with cues"] * 3 + ["only with cues"] * 2
    _, report = ClosedLoop(settings()).step(1, rows, mark_groups(uids, rows))
    lift = report.record.lift
    assert (lift.prompts, lift.mean) == (2, (0.5 - 1.0) / 2) and lift.standard_error == pytest.approx(0.75)
    assert StepRecord.from_line(report.record.line()).lift == lift
    assert report.record.metrics()["seal/lift/mean"] == -0.25
    _, without = ClosedLoop(settings()).step(1, rows[7:], mark_groups(uids[7:], rows[7:]))
    assert without.record.lift is None and "seal/lift/mean" not in without.record.metrics()


def test_too_many_lost_trajectories_stop_the_run_naming_the_causes():
    check_infrastructure([record(0), record(1), record(2), record(3), record(4, infra="engine")], limit=0.2)
    with pytest.raises(InfrastructureFailure, match="engine 2"):
        check_infrastructure([record(0), record(1, infra="engine"), record(2, infra="engine")], limit=0.2)
    hung = [record(i, infra="engine_timeout", infra_message="message 3 did not come") for i in range(3)]
    with pytest.raises(InfrastructureFailure, match="the first engine_timeout: message 3 did not come"):
        check_infrastructure([record(3, infra="engine"), *hung], limit=0.2)


def test_a_refused_episode_stops_the_run_at_once():
    refused = record(1, infra="environment_refused", infra_message="interface leak in multi_turn_base_0")
    with pytest.raises(InfrastructureFailure, match="interface leak"):
        check_infrastructure([record(0), refused, *(record(i) for i in range(2, 20))], limit=1.0)


# --- the teacher ---------------------------------------------------------------------

RETRY = ("seal.interface.teacher=retry", "seal.interface.share=0.5", "seal.diagnosis.window=3")
CUE = "schema_required"


def retried(passed: int, control: float = 0.0) -> list[TrajectoryRecord]:
    """A prompt whose four plain rollouts fail; `passed` of its three retries pass, and its control scores `control`."""
    plain = [record(sample, ("argument_mismatch",)) for sample in (0, 2, 4, 6)]
    won = [record(sample, ("pass",), 1.0, omega_version=0, cues=(CUE,), taught=True) for sample in (1, 3, 5)[:passed]]
    lost = [
        record(sample, ("state_mismatch",), omega_version=0, cues=(CUE,), silent=True) for sample in (1, 3, 5)[passed:]
    ]
    return [*plain, *won, *lost, record(7, ("pass",) if control else ("argument_mismatch",), control)]


def taught(loop: ClosedLoop, step: int, passed: int, control: float = 0.0, prompts: int = 8):
    """A step of `prompts` such prompts."""
    rows = [row for _ in range(prompts) for row in retried(passed, control)]
    uids = [str(number) for number in range(prompts) for _ in range(8)]
    transfers = {i: -2.0 for i, row in enumerate(rows) if row.taught}
    return loop.step(step, rows, mark_groups(uids, rows), transfers)[1]


def test_with_a_teacher_the_profile_counts_what_saw_no_cues():
    seen = taught(ClosedLoop(settings(*RETRY)), 1, passed=3).profile
    off = taught(ClosedLoop(settings()), 1, passed=3).profile
    counts = [
        {label: row[0] for label, row in each["steps"][0]["category_label"]["base"].items()} for each in (seen, off)
    ]
    assert counts == [{"argument_mismatch": 40}, {"argument_mismatch": 40, "pass": 24}]


def test_a_step_tells_what_each_cue_gave():
    record = taught(ClosedLoop(settings(*RETRY)), 1, passed=2).record
    figures = {"shown": 24, "passed": 16, "taught": 16, "prompts": 8, "lift": pytest.approx(2 / 3), "transfer": -2.0}
    assert record.teaching == {f"bfcl/{CUE}": figures}
    assert StepRecord.from_line(record.line()).teaching == record.teaching
    assert record.metrics()[f"seal/teaching/bfcl/{CUE}/lift"] == pytest.approx(2 / 3)
    assert taught(ClosedLoop(settings()), 1, passed=2).record.teaching == {}


def test_a_prompt_that_passes_only_with_cues_and_teaches_nothing_has_no_signal():
    """Its plain rollouts are compared with each other, and the cued ones have no gradient: every advantage is 0."""

    def signal(rows) -> int:
        return run(ClosedLoop(settings(*RETRY)), 1, rows)[1].record.groups_with_spread

    assert signal(retried(passed=2)) == 1 and signal(retried(passed=0)) == 0
    for control in (0.0, 1.0):
        untaught = [replace(each, taught=False, silent=bool(each.cues)) for each in retried(2, control)]
        assert signal(untaught) == control


def test_the_lift_of_retries_is_none_of_the_choice_of_their_prompts():
    record = taught(ClosedLoop(settings(*RETRY)), 1, passed=3, control=1.0).record
    assert record.lift.mean == 0.0 and record.lift.prompts == 8


def test_with_a_share_a_cue_is_judged_where_its_failure_was_seen():
    rows = [
        record(0, ("argument_mismatch",)),
        record(1, ("pass",), 1.0, omega_version=0, cues=(CUE,), taught=True),
    ]
    rows[0] = replace(rows[0], diagnosis=({"turn": 0, "label": "argument_mismatch", "signals": ["argument_mismatch"]},))
    loop = ClosedLoop(settings("seal.interface.teacher=share", "seal.interface.share=0.5"))
    assert run(loop, 1, rows)[1].record.teaching[f"bfcl/{CUE}"]["lift"] == 1.0
