"""`seal verify` finds nothing in a run as it was written, and finds what was changed in it, where it is."""

import json
import shutil
import subprocess
import sys

import pytest

from env_service.environments.bfcl.task_file import write_task_file
from seal.cli.main import execute, load
from seal.system.paths import HOME
from shelf.lab.verify import run_logs, verify
from shelf.statistics.launches import read_launches
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.support.played_run import SMALL, mixture_of, write_run

ABLATIONS = sorted(path.stem for path in (HOME / "exp" / "ablation").glob("*.yaml"))
TEACHER = ("seal.interface.share=0.5", "actor_rollout_ref.rollout.n=6", "seal.interface.teacher=retry")


def verified(run, url):
    logs = run_logs(run)
    return verify(run, logs, read_launches(logs[0].run), url)


def assert_holds(run, url):
    found = verified(run, url)
    assert not found.differs and found.compared == found.agree, found.differs[:1]
    return found


# --- runs as they were written ----------------------------------------------------------


def test_a_run_as_it_was_written_holds(run, url):
    found = assert_holds(run, url)
    assert (found.steps, found.validations) == (2, 2) and found.rollouts > 12
    assert found.agree["C_t"] == found.agree["rho"] == 2 and found.agree["Omega"] == 4
    assert found.agree["w"] == found.agree["advantages"] == 12
    lost = sum(number for what, number in found.unjudged.items() if "lost to infrastructure" in what)
    assert lost and found.agree["labels"] == found.rollouts - lost


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_ablation_holds(ablation, tmp_path, url):
    assert_holds(write_run(tmp_path / "run", *SMALL, f"ablation={ablation}", steps=3, validations=()), url)


@pytest.mark.parametrize(
    "overrides",
    [
        ("seal.diagnosis.source=permuted",),
        ("seal.diagnosis.taxonomy=release", "seal.reward.mode=t3rl"),
        ("seal.reward.cut=exclude", "seal.reward.mode=capped", "seal.rollout.max_steps=5"),
        ("algorithm.norm_adv_by_std_in_grpo=false", "actor_rollout_ref.rollout.val_kwargs.n=2"),
        ("seal.interface.share=0.67",),
        ("seal.interface.evolve={kinds: [schema, feedback, guideline], min_count: 1}",),
        ("env_service.prompt_mode=bfcl_qwen_fc", "data.max_prompt_length=16384", "data.max_response_length=8192",
         "actor_rollout_ref.rollout.max_model_len=32768", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768"),
    ],
)  # fmt: skip
def test_every_part_of_the_method_holds(overrides, tmp_path, url):
    assert_holds(write_run(tmp_path / "run", *SMALL, *overrides, steps=2, validations=(2,), lost=0.2, late=0.02), url)


@pytest.mark.parametrize("interface", ["{teacher: retry, entries: all}", "{teacher: share}"])
def test_a_run_with_a_teacher_holds_but_for_whom_it_taught(interface, tmp_path, url):
    asked = (*TEACHER, f"seal.interface={interface}")
    found = assert_holds(write_run(tmp_path / "run", *SMALL, *asked, steps=3, validations=(), seed=1), url)
    assert any("teacher's cues" in what for what in found.unjudged)


def test_a_run_that_was_resumed_with_other_settings_holds(tmp_path, url):
    """As a resumed trainer does: C_t, rho and Omega go on, what the recipe fixes is the new recipe's."""
    resumed = {1: (), 2: ("seal.diagnosis.window=2", "seal.reweighting.alpha=0.5", "seal.interface.enabled=false")}
    run = write_run(tmp_path / "run", *SMALL, steps=4, validations=(0, 2, 4), resumed=resumed)
    assert_holds(run, url)
    assert [launch.step for launch in read_launches(run_logs(run)[0].run)] == [0, 1, 2]


def test_groups_that_infrastructure_dropped_hold(tmp_path, url):
    run = write_run(tmp_path / "run", *SMALL, steps=2, validations=(), lost=0.9)
    steps = [json.loads(line) for line in (run / "seal_log" / "steps.jsonl").read_text().splitlines()]
    assert any(step["groups_dropped"] for step in steps)
    assert_holds(run, url)


def test_a_step_that_the_run_did_not_finish_is_not_judged(copy, url):
    log = copy / "seal_log" / "steps.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:1]))
    found = verified(copy, url)
    assert not found.differs and found.unjudged["steps that the run did not finish"] == 1
    (copy / "seal_log" / "trajectories" / "2.jsonl").unlink()
    (copy / "validation_log" / "2.jsonl").unlink()
    found = verified(copy, url)
    assert not found.differs and found.steps == 1 and sum("did not reach" in what for what in found.unjudged) == 1


def test_a_run_of_another_version_of_the_method_says_so(copy, url):
    log = copy / "seal_log" / "launches.jsonl"
    launch = json.loads(log.read_text()) | {"method": "1" * 64, "commit": "c" * 40}
    log.write_text(json.dumps(launch) + "\n")
    (note,) = verified(copy, url).notes
    assert "c" * 12 in note


# --- forgeries --------------------------------------------------------------------------


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copy")


def edit(path, change):
    """Change the first line for which `change` returns another one, or {} to remove it; that line as it was."""
    lines = [json.loads(line) for line in path.read_text().split("\n") if line]
    number, new = next((n, new) for n, line in enumerate(lines) if (new := change(line)) is not None)
    was, lines[number] = lines[number], new
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line))
    return was


def _other_score(line):
    return None if line["infra"] else line | {"score": 1.0 - line["score"]}


def _other_label(line):
    if line["infra"]:
        return None
    first = "recovery_failure" if line["labels"][0] == "pass" else "pass"
    return line | {"labels": [first, *line["labels"][1:]]}


@pytest.mark.parametrize(
    ("change", "what", "field"),
    [
        (_other_score, "verdicts", "score"),
        (_other_label, "labels", "labels[0]"),
        (lambda line: line | {"advantage": line["advantage"] + 1}, "advantages", "advantage"),
        (lambda line: line | {"w": 7.0}, "w", "w"),
    ],
)
@pytest.mark.parametrize("step", [1, 2])
def test_a_changed_value_of_a_rollout_is_found_where_it_is(copy, url, step, change, what, field):
    line = edit(copy / "seal_log" / "trajectories" / f"{step}.jsonl", change)
    found = verified(copy, url)
    place = f"step {step}, {line['task_id']}, sample {line['sample']}: {field}: "
    assert found.compared[what] - found.agree[what] == 1
    assert len(found.differs) == 1 and found.differs[0].startswith(place)


def test_a_changed_verdict_of_a_validation_is_found(copy, url):
    line = edit(copy / "validation_log" / "2.jsonl", _other_score)
    (only,) = verified(copy, url).differs
    assert only.startswith(f"the validation at step 2, {line['task_id']}, sample 0: score: ")


def test_labels_that_fit_each_other_but_not_what_was_said_are_found(copy, url):
    """Who changes reward, labels, diagnosis and evidence together still cannot change the simulators."""

    def passed(line):
        if line["score"] or line["infra"]:
            return None
        new = {"score": 1.0, "stop": "completed", "turns_passed": line["turns"], "progress": 1.0}
        for turn, diagnosis in zip(line["evidence"], line["diagnosis"], strict=False):
            turn |= {"state_match": True, "response_match": True, "blame": None, "absent": []}
            diagnosis |= {"label": "pass", "signals": ["pass"], "rule": "verifier_met", "blame": None}
        return line | new | {"labels": ["pass"] * len(line["labels"])}

    line = edit(copy / "seal_log" / "trajectories" / "1.jsonl", passed)
    found = verified(copy, url)
    assert found.differs[0].startswith(f"step 1, {line['task_id']}, sample {line['sample']}: ")
    assert found.compared["verdicts"] - found.agree["verdicts"] == 1


@pytest.mark.parametrize(
    ("log", "change", "what"),
    [
        ("omega", lambda line: line | {"omega": line["omega"] | {"cues": {"*": []}}}, "Omega"),
        ("profile", lambda line: line | {"profile": {}}, "C_t"),
        ("steps", lambda line: line | {"rho": {name: value + 0.5 for name, value in line["rho"].items()}}, "rho"),
        ("steps", lambda line: {}, "rho"),
    ],
)
def test_a_changed_round_is_found_in_its_step(tmp_path, url, log, change, what):
    run = write_run(tmp_path / "run", *SMALL, "seal.interface.evolve.min_count=1", steps=2, validations=(), seed=4)
    edit(run / "seal_log" / f"{log}.jsonl", change)
    found = verified(run, url)
    assert found.compared[what] - found.agree[what] and all(each.startswith("step 1: ") for each in found.differs)


@pytest.mark.parametrize("log", ["seal_log/trajectories/2.jsonl", "validation_log/2.jsonl"])
def test_a_missing_task_is_found(copy, url, log):
    line = edit(copy / log, lambda line: {})
    found = verified(copy, url)
    assert f"{line['task_id']}, sample {line['sample']}: this rollout" in found.differs[0]
    assert "is missing" in found.differs[0] and found.compared["tasks"] - found.agree["tasks"] == 1


def test_a_rollout_that_stands_twice_is_found(copy, url):
    path = copy / "validation_log" / "0.jsonl"
    path.write_text(path.read_text() * 2)
    assert all("2 times" in each for each in verified(copy, url).differs)


def test_a_missing_step_is_found_and_nothing_follows_from_it(tmp_path, url):
    run = write_run(tmp_path / "run", *SMALL, steps=3, validations=(0, 3))
    (run / "seal_log" / "trajectories" / "2.jsonl").unlink()
    found = verified(run, url)
    assert found.differs == ["step 2: its trajectories are missing"] and found.agree["C_t"] == 1
    assert sum(number for what, number in found.unjudged.items() if "C_t" in what) == 1
    (run / "validation_log" / "3.jsonl").unlink()
    assert verified(run, url).differs[1:] == ["the validation at step 3: it is missing"]


# --- the command ------------------------------------------------------------------------


def seal_verify(*arguments):
    return execute(load("verify"), [*map(str, arguments), "--processes", "1"], "seal verify")


def test_the_command_needs_no_engine_and_tells_by_its_exit_code(copy):
    code = (
        "import sys; from seal.cli.main import main; "
        f"sys.argv = ['seal', 'verify', {str(copy)!r}, '--processes', '2']\n"
        "code = main(); assert not {'torch', 'verl', 'ray', 'vllm'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=HOME)
    assert done.returncode == 0, done.stdout + done.stderr
    edit(copy / "seal_log" / "trajectories" / "1.jsonl", _other_score)
    assert seal_verify(copy) == 1


def test_synthesised_tasks_are_served(tmp_path, capsys):
    file = tmp_path / "tasks.jsonl"
    write_task_file(synthesise(Grammar(), 12, 3, "train"), file)
    run = write_run(tmp_path / "run", *SMALL, *mixture_of(file), steps=1, validations=(0,))
    assert seal_verify(run) == 0
    assert "does not play" not in capsys.readouterr().out
    file.rename(tmp_path / "elsewhere.jsonl")
    assert seal_verify(run) == 2 and "is a synthesised task: name its file with --tasks" in capsys.readouterr().err
    assert seal_verify(run, "--tasks", tmp_path / "elsewhere.jsonl") == 0


@pytest.mark.parametrize("what", ["no run", "no launch", "nothing kept", "another format", "not JSON"])
def test_what_cannot_be_verified_is_one_sentence(copy, tmp_path, capsys, what):
    log, path = copy / "seal_log" / "launches.jsonl", copy / "seal_log" / "trajectories" / "1.jsonl"
    if what == "no launch":
        log.write_text("")
    if what == "nothing kept":
        shutil.rmtree(copy / "validation_log")
        shutil.rmtree(copy / "seal_log" / "trajectories")
    if what == "another format":
        path.write_text(path.read_text().replace('"format": 3', '"format": 1'))
    if what == "not JSON":
        path.write_text("x\n")
    assert seal_verify(tmp_path / "none" if what == "no run" else copy) == 2
    assert capsys.readouterr().err.count("\n") == 1
