"""The launcher's reading of a run, during and after it: steps, reasons of failure, where to resume."""

import json
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from omegaconf import OmegaConf
from rich.console import Console
from rich.text import Text

from seal.launch.child import follow, name_tracked_run
from seal.launch.console import step_line
from seal.launch.recipe import Recipe, total_steps
from seal.launch.record import model_hashes, recipe_facts, record_folder
from seal.launch.run import Prepared, record
from seal.launch.start import OWNER, Start, find_start
from seal.records.changes import flatten
from seal.records.ending import Ending
from seal.records.folder import RunFolder
from seal.records.step import StepRecord, StepReport
from seal.settings.run import CheckpointSettings
from seal.settings.sentences import shown
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.files import write_json, write_text
from seal.system.paths import HOME
from seal.system.processes import start, stop_tree
from seal.system.text import without_secrets
from seal.training.checkpoints import FILES, Checkpoints, last_step
from seal.training.log import RunLog
from tests.support.checkpoints import write_step
from tests.support.processes import runs
from tests.support.recipes import composed

STEP = {
    "step": 3,
    "reward_mean": 0.5,
    "groups_with_spread": 6,
    "label_counts": {"pass": 10, "state_mismatch": 6, "invalid_tool_call": 3, "missing_tool_call": 1},
    "w": {"mean": 1.25, "min": 1.0, "max": 2.0},
    "omega": {"version": 1, "digest": "d", "cues": ["recover"]},
    "seconds": {"step": 21.4, "gen": 5.2, "update_actor": 8.9},
    "infra": {},
}


@pytest.mark.parametrize("label", ["state_mismatch", "correct_abstention", "l" * 70])
def test_a_step_is_one_line_of_a_terminal(label):
    counts = {"pass": 10, label: 6, "invalid_tool_call": 3, "missing_tool_call": 1}
    step = {**STEP, "step": 1234, "label_counts": counts, "infra": {"engine": 12}, "trained_share": 0.5}
    for line in (STEP, step, {**step, "seconds": {"step": 21043.0}}):
        shown = Text.from_markup(step_line(StepRecord.from_line(line))).plain
        assert len(shown) <= 80 and "\n" not in shown
        assert "reward 0.500" in shown and "signal 6" in shown and "w 1.25" in shown and "cues 1" in shown
    assert "infra 12" in shown and "21043 s" in shown


def test_the_labels_of_a_step_are_its_failures_first():
    assert "state_mismatch 30%  w 1.25" in step_line(StepRecord.from_line(STEP))
    assert "pass 100%  w 1.25" in step_line(StepRecord.from_line({**STEP, "label_counts": {"pass": 3}}))


def test_follow_shows_steps_and_ends_with_the_process(tmp_path):
    log = tmp_path / "seal_log"
    log.mkdir()
    train_log = tmp_path / "train.log"
    train_log.touch()

    def running():
        (log / "steps.jsonl").write_text(json.dumps(STEP) + "\n")
        return False

    console = Console(record=True, width=200)
    follow(tmp_path, train_log, running, deadline_s=30, console=console)
    assert "step    3" in console.export_text()


def test_a_run_warns_once_of_what_its_harness_leaves_untrained(tmp_path):
    (log := tmp_path / "seal_log").mkdir()
    (tmp_path / "train.log").touch()

    def running():
        lines = ({**STEP, "step": step, "trained_share": 0.1, "unsampled_calls": 3} for step in (1, 2))
        (log / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return False

    console = Console(record=True, width=200)
    follow(tmp_path, tmp_path / "train.log", running, deadline_s=30, console=console)
    shown = console.export_text()
    assert shown.count("trained 10%") == 2 and shown.count("warning:") == 2


@pytest.mark.parametrize(
    ("signal", "share", "says"),
    [([0, 0, 0, 0], 0.0, "no rollout passed"), ([0, 0, 0, 0], 1.0, "train on harder tasks"), ([0, 1, 0, 0], 0.0, None)],
)
def test_a_run_that_learns_nothing_is_told_once_why_and_what_to_do(tmp_path, signal, share, says):
    log, console, polls = RunLog(tmp_path), Console(record=True, width=300), iter(enumerate(signal, start=1))

    def running():
        step, groups = next(polls, (None, 0))
        if step is not None:
            record = StepRecord.from_line({**STEP, "step": step, "groups_with_spread": groups, "pass_share": share})
            log.step(StepReport(record, {}, None))
        return step is not None

    follow(tmp_path, tmp_path / "none.log", running, deadline_s=30, console=console)
    said = console.export_text()
    assert said.count("nothing is learnt") == (says is not None) and (says or "") in said


def test_a_run_that_makes_no_progress_is_ended_and_says_who_waits_for_whom(tmp_path):
    log = RunLog(tmp_path)
    polls = iter(range(100))

    def running():
        if next(polls) == 0:
            log.stage("sync", step=7, of=9)
        return True

    with pytest.raises(LaunchError, match=r"step_deadline_s\) in step 7, .*wait for the rollout engine") as raised:
        follow(tmp_path, tmp_path / "none.log", running, deadline_s=1.5, console=Console(quiet=True))
    assert raised.value.code == 4


def test_a_start_shows_the_seconds_of_its_own_stages_and_names_one_that_hangs(tmp_path):
    log, console = RunLog(tmp_path), Console(record=True, width=200)
    for launched in (100.0, 1000.0):
        log.start("checks", at=launched)
        log.start("service", at=launched + 4)
    polls = iter([lambda: log.start("ray", at=1007.0), lambda: log.start("engine", at=1030.0)])

    def running():
        next(polls, lambda: None)()
        return True

    with pytest.raises(LaunchError, match=r"step_deadline_s\) in its start, engine: .* rollout engine") as raised:
        follow(tmp_path, tmp_path / "none.log", running, deadline_s=1.5, console=console)
    assert raised.value.code == 4
    shown = [line for line in console.export_text().splitlines() if "start" in line]
    assert shown == ["start: checks 4 s", "start: service 3 s", "start: ray 23 s"]


def test_a_pipe_is_told_how_many_prompts_are_played(tmp_path, monkeypatch):
    monkeypatch.setattr("seal.launch.console.PLAIN_S", 0.0)
    log, console = RunLog(tmp_path), Console(record=True, width=200)
    polls = iter(
        [
            lambda: log.stage("validate", step=0, of=9),
            lambda: write_json({"done": 4, "of": 9}, RunFolder(tmp_path).progress),
        ]
    )

    def running():
        act = next(polls, None)
        if act:
            act()
        return act is not None

    follow(tmp_path, tmp_path / "none.log", running, deadline_s=30, console=console)
    assert "4 of 9 prompts" in console.export_text()


def test_the_first_process_that_knows_tells_how_a_run_ended(tmp_path):
    assert Ending.read(tmp_path) is None
    told = Ending(exits.INFRASTRUCTURE, "engine", "The engine has died.")
    told.write(tmp_path)
    Ending(exits.FAILED, "error", "ValueError: an echo").write(tmp_path)
    assert Ending.read(tmp_path) == told


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "SIGKILL, perhaps because memory"),
        (signal.SIGTERM, "SIGTERM, .* launcher"),
        (signal.SIGSEGV, r"SIGSEGV\."),
    ],
)
def test_a_training_process_that_was_killed_has_an_ending(tmp_path, number, words):
    killed = Ending.of_code(-number, tmp_path)
    assert killed[:2] == (exits.INFRASTRUCTURE, "process") and re.search(words, killed.sentence)


def test_a_full_disk_ends_a_run_in_its_own_sentence(tmp_path, monkeypatch):
    assert Ending.of_code(1, tmp_path).code == exits.FAILED
    monkeypatch.setattr("seal.system.files.ROOM", 1 << 62)
    assert f"{tmp_path} has no space left" in Ending.of_code(1, tmp_path).sentence
    RunFolder(tmp_path).ending.with_suffix(".json.part").mkdir()  # stands for a place that takes no file
    Ending.of_code(1, tmp_path).write(tmp_path)
    assert Ending.read(tmp_path) is None


def test_stopping_a_process_stops_what_it_started(tmp_path):
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    process = start([sys.executable, "-c", script + "time.sleep(60)"], log=tmp_path / "log", cwd=tmp_path, env={})
    deadline = time.monotonic() + 60
    while not (children := psutil.Process(process.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children
    stop_tree(process, grace_s=5)
    assert process.poll() is not None
    assert not any(runs(child.pid) for child in children)


LAST = 24
"""Steps of the quickstart."""


@pytest.fixture
def config(tmp_path):
    config = composed(HOME / "exp" / "quickstart.yaml")
    config.seal.run_dir = f"{tmp_path}/run"
    config.trainer.default_local_dir = f"{tmp_path}/run/checkpoints"
    return config


@pytest.fixture
def saved(tmp_path):
    """Save checkpoints of the run."""
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints", CheckpointSettings(keep_last=9))
    return lambda *steps: [write_step(checkpoints, step) for step in steps]


def validated(tmp_path, step):
    path = tmp_path / "run" / "validation_log" / f"{step}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.touch()


def test_a_new_run_starts_over_and_an_interrupted_one_resumes(config, saved):
    start = find_start(Recipe.of(config), "auto")
    assert start == Start(0) and start.settings == {"resume_mode": "disable"}
    saved(10)
    start = find_start(Recipe.of(config), "auto")
    checkpoint = Recipe.of(config).checkpoints / "global_step_10"
    resume = {"resume_mode": "resume_path", "resume_from_path": str(checkpoint)}
    assert start == Start(10) and start.settings == resume | {"val_before_train": False, "val_only": False}


def test_a_resumed_run_makes_up_for_the_validation_that_it_lacks(config, tmp_path, saved):
    config.trainer.test_freq = 10
    saved(10)
    assert find_start(Recipe.of(config), "auto").settings["val_before_train"]
    validated(tmp_path, 10)
    assert not find_start(Recipe.of(config), "auto").settings["val_before_train"]


def test_a_complete_run_is_not_trained_again(config, tmp_path, saved):
    assert total_steps(config, 0) == LAST
    saved(LAST)
    start = find_start(Recipe.of(config), "auto")
    assert not start.complete and start.settings["val_only"]
    validated(tmp_path, LAST)
    assert find_start(Recipe.of(config), "auto").complete
    with pytest.raises(LaunchError, match="already holds a run"):
        find_start(Recipe.of(config), "never")


def test_finding_the_start_changes_no_setting(config, saved):
    saved(10)
    before = config.copy()
    find_start(Recipe.of(config), "auto")
    assert config == before


def test_a_run_that_epochs_bound_ends_with_the_last_whole_batch():
    config = composed(HOME / "exp" / "SEAL.yaml")
    assert config.trainer.total_training_steps is None
    assert total_steps(config, len(Recipe.of(config).rows.train)) == 400 // 32 * 6


def test_a_run_starts_from_the_checkpoint_of_another(config, tmp_path):
    other = tmp_path / "other"
    write_step(Checkpoints(other, CheckpointSettings()), 4)
    start = find_start(Recipe.of(config), str(other / "global_step_4"))
    assert start == Start(4)
    assert start.settings == {"resume_mode": "resume_path", "resume_from_path": str(other / "global_step_4")}


def test_the_steps_of_a_run_are_not_replaced_by_another_runs(config, tmp_path, saved):
    other = tmp_path / "other"
    write_step(Checkpoints(other, CheckpointSettings()), 4)
    saved(10)
    with pytest.raises(LaunchError, match=r"has steps of its own up to 10: continue it without --resume .*step_4"):
        find_start(Recipe.of(config), str(other / "global_step_4"))


def test_a_launch_that_ends_before_it_trains_keeps_logs_and_checkpoint_together(config, tmp_path, saved):
    config.trainer.experiment_name = name = f"test-{uuid4().hex[:8]}"
    saved(10, 20)
    recipe = Recipe.of(config)
    start = find_start(recipe, str(tmp_path / "run" / "checkpoints" / "global_step_10"))
    assert last_step(recipe.checkpoints) == 20
    record(Prepared(recipe, HOME / "exp" / "quickstart.yaml", start, lock=-1), recipe.config, [], {}, began=0.0)
    shutil.rmtree(record_folder(recipe))
    assert last_step(recipe.checkpoints) == 10 and record_folder(recipe).name == name


def test_a_path_that_is_not_a_checkpoint_is_named(config):
    with pytest.raises(LaunchError, match="--resume nowhere is not a checkpoint"):
        find_start(Recipe.of(config), "nowhere")


@pytest.fixture
def launched(config, saved):
    """A run that was launched with the recipe's settings and has saved step 10."""
    facts = json.loads(json.dumps({"config": without_secrets(OmegaConf.to_container(Recipe.of(config.copy()).config))}))
    RunLog(HOME / config.seal.run_dir).launch(facts, step=0)
    saved(10)
    return config


def test_a_resume_tells_what_it_changes(launched):
    assert find_start(Recipe.of(launched), "auto").changes == ()
    launched.actor_rollout_ref.actor.optim.lr = 0.5
    launched.seal.reweighting.w_max = 3.0
    rate, bound = find_start(Recipe.of(launched), "auto").changes
    assert rate.startswith("after step 10 actor_rollout_ref.actor.optim.lr changes from ") and rate.endswith(" to 0.5.")
    assert bound == "after step 10 seal.reweighting.w_max changes from 2.0 to 3.0."


def test_a_launch_that_trained_nothing_is_no_change(launched):
    facts = {"config": {"trainer": {"total_epochs": 99}}}
    RunLog(HOME / launched.seal.run_dir).launch(facts, step=10)
    assert find_start(Recipe.of(launched), "auto").changes == ()


def test_a_repository_that_has_moved_resumes_and_a_model_elsewhere_is_another(launched, tmp_path):
    model = Path(launched.actor_rollout_ref.model.path).relative_to(HOME)
    launched.actor_rollout_ref.model.path = str(tmp_path / model)
    with pytest.raises(LaunchError, match=r"model.path is .* set it back"):
        find_start(Recipe.of(launched), "auto")
    agents = Path(launched.actor_rollout_ref.rollout.agent.agent_loop_config_path).relative_to(HOME)
    launched.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(tmp_path / agents)
    assert len(find_start(Recipe.of(launched), "auto").changes) == 2
    launched.actor_rollout_ref.model.path = str(tmp_path / "another")
    with pytest.raises(LaunchError, match=r"model.path is .*another.* set it back"):
        find_start(Recipe.of(launched), "auto")


def test_a_resume_refuses_another_model_of_the_same_name(launched, tmp_path):
    model = tmp_path / Path(launched.actor_rollout_ref.model.path).name
    model.mkdir()
    (model / "config.json").write_text("{}")
    facts = {"config": without_secrets(OmegaConf.to_container(Recipe.of(launched.copy()).config))}
    log = RunLog(HOME / launched.seal.run_dir)
    log.launch({**json.loads(json.dumps(facts)), "hashes": model_hashes(Recipe.of(launched))}, step=0)
    launched.actor_rollout_ref.model.path = str(model)
    with pytest.raises(LaunchError, match=r"model.path is .* set it back"):
        find_start(Recipe.of(launched), "auto")


def test_two_runs_do_not_share_a_folder_of_checkpoints(config, tmp_path):
    config.trainer.default_local_dir = str(tmp_path / "disk")
    write_step(Checkpoints(tmp_path / "disk", CheckpointSettings()), 4)
    with pytest.raises(LaunchError, match=r"disk holds the checkpoints of another run, .*: name a folder"):
        find_start(Recipe.of(config), "auto")
    (tmp_path / "disk" / OWNER).write_text("first")
    with pytest.raises(LaunchError, match=r"disk holds the checkpoints of first, .*: name a folder .*disk/second"):
        config.trainer.experiment_name = "second"
        find_start(Recipe.of(config), "auto")
    config.trainer.experiment_name = "first"
    with pytest.raises(LaunchError, match=r"of first, of which .*/run has no log: name a folder .*, or remove"):
        find_start(Recipe.of(config), "auto")  # another one of that name, or the same without its folder
    RunLog(tmp_path / "run").launch(recipe_facts(Recipe.of(config.copy())), step=0)
    assert find_start(Recipe.of(config), "auto") == Start(4)


def test_two_runs_of_one_name_do_not_share_a_folder_before_the_first_checkpoint(config, tmp_path):
    config.trainer.default_local_dir, config.trainer.experiment_name = str(tmp_path / "disk"), "first"
    write_text("first", tmp_path / "disk" / OWNER)
    with pytest.raises(LaunchError, match="disk holds the checkpoints of first"):
        find_start(Recipe.of(config), "auto")


def test_a_launch_that_ends_before_its_log_owns_no_folder_of_checkpoints(config, tmp_path):
    config.trainer.default_local_dir = str(tmp_path / "disk")
    config.trainer.experiment_name = f"test-{uuid4().hex[:8]}"
    config.data.train_files, config.data.val_files = f"{tmp_path}/run/train.parquet", f"{tmp_path}/run/val.parquet"
    recipe = Recipe.of(config)
    with pytest.raises(FileNotFoundError):
        record(Prepared(recipe, tmp_path / "gone.yaml", Start(0), lock=-1), recipe.config, [], {}, began=0.0)
    shutil.rmtree(record_folder(recipe))
    assert find_start(recipe, "auto") == Start(0)


def test_a_run_whose_checkpoints_are_gone_keeps_its_logs(launched, tmp_path):
    log = RunLog(tmp_path / "run")
    for step in (1, 12):
        log.step(StepReport(StepRecord.from_line({**STEP, "step": step}), {}, None))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(LaunchError, match=r"has logged step 12, but .* holds no checkpoint"):
        find_start(Recipe.of(launched), "auto")
    log.launch({"config": {"trainer": {"save_freq": -1}}}, step=0)
    assert find_start(Recipe.of(launched), "auto") == Start(0)


def test_a_run_that_began_with_another_runs_checkpoint_and_saved_none_does_not_start_over(config, tmp_path):
    log = RunLog(tmp_path / "run")
    log.launch({"config": {"trainer": {"save_freq": 4}}}, step=4)
    for ended in (None, 4, 7):  # before it read the checkpoint, which brings the log of its own step; later
        if ended:
            log.step(StepReport(StepRecord.from_line({**STEP, "step": ended}), {}, None))
        with pytest.raises(LaunchError, match="began after step 4 of another run's checkpoint and has saved none"):
            find_start(Recipe.of(config), "auto")


def test_a_resume_that_would_train_nothing_or_discard_steps_is_refused(config, tmp_path, saved):
    write_step(Checkpoints(tmp_path / "other", CheckpointSettings()), LAST)
    with pytest.raises(LaunchError, match=f"of step {LAST} and .* ends with step {LAST}, so nothing would be trained"):
        find_start(Recipe.of(config), str(tmp_path / "other" / f"global_step_{LAST}"))
    saved(10, 20)
    config.trainer.val_only = True
    with pytest.raises(LaunchError, match=r"would discard what .* has after that step"):
        find_start(Recipe.of(config), str(tmp_path / "run" / "checkpoints" / "global_step_10"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seal.seed", 7),
        ("data.train_batch_size", 4),
        ("seal.data.train.limit", 5),
        ("data.shuffle", False),
        ("data.seed", 7),
        ("data.dataloader_num_workers", 2),
        ("actor_rollout_ref.actor.strategy", "fsdp"),
        ("actor_rollout_ref.actor.optim.optimizer", "SGD"),
        ("actor_rollout_ref.actor.optim.override_optimizer_config.amsgrad", True),
        ("actor_rollout_ref.model.target_modules", "q_proj"),
    ],
)
def test_a_resume_refuses_what_its_checkpoint_depends_on(launched, key, value):
    OmegaConf.update(launched, key, value, force_add=True)
    with pytest.raises(LaunchError, match=f"{key} is {shown(value)}, but .* to step 10: set it back, or set another"):
        find_start(Recipe.of(launched), "auto")


OTHER = {
    "seal.diagnosis.source": "random",
    "seal.interface.share": 0.5,
    "seal.reweighting.rho": {"pass": 0.7},
    "seal.reward.mode": "capped",
    "seal.reward.cut": "zero",
    "seal.rollout.harness": ["true"],
    "seal.rollout.harness_failure": "failed",
    "seal.rollout.harness_env": ["TZ"],
    "seal.data.val": [{"split": "eval", "limit": 3}],
    "env_service.env_url": "http://127.0.0.1:8083",
    "trainer.logger": ["console"],
    "data.train_max_samples": 20,
}
"""Another value of keys whose present one does not give it."""


def test_every_changed_setting_reaches_the_trainer_or_is_refused(launched):
    """All of ours that a run can change, and all switches and numbers of verl's trainer, data and algorithm."""
    refused, names = set(), ("seal.data.train", "seal.data.withdrawal", "seal.process_env")
    for key, value in flatten(OmegaConf.to_container(launched)):
        ours = key.startswith(("seal.", "env_service.")) and not key.startswith(names)
        simple = isinstance(value, bool | int | float) and (ours or key.startswith(("trainer.", "data.", "algorithm.")))
        if key not in OTHER and not simple:
            continue
        config = launched.copy()
        asked = OTHER[key] if key in OTHER else _another(value)
        OmegaConf.update(config, key, asked, force_add=True)
        try:
            start = find_start(Recipe.of(config), "auto")
        except LaunchError as error:
            assert key in str(error)
            refused.add(key)
            continue
        given = {f"trainer.{name}": found for name, found in start.settings.items()}
        assert given.get(key, OmegaConf.select(config, key)) == asked, key
        assert value == asked or config.trainer.val_only or any(f" {key}" in change for change in start.changes), key
    assert {"seal.seed", "seal.interface.evolve.min_count", "data.train_batch_size", "trainer.nnodes"} <= refused


def _another(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2


def test_a_validation_before_the_next_step_can_be_asked_for_and_off(launched, tmp_path):
    assert not find_start(Recipe.of(launched), "auto").settings["val_before_train"]
    facts = OmegaConf.to_container(Recipe.of(launched.copy()).config)
    facts["trainer"]["val_before_train"] = False
    RunLog(HOME / launched.seal.run_dir).launch({"config": facts}, step=0)
    assert find_start(Recipe.of(launched), "auto").settings["val_before_train"]
    validated(tmp_path, 10)
    assert not find_start(Recipe.of(launched), "auto").settings["val_before_train"]  # the log has it


def test_a_run_of_an_earlier_version_resumes_without_the_cues_that_showed_nothing(launched):
    facts = OmegaConf.to_container(Recipe.of(launched.copy()).config)
    facts["seal"]["interface"]["evolve"]["left_out"] = []
    RunLog(HOME / launched.seal.run_dir).launch({"config": facts}, step=0)
    assert find_start(Recipe.of(launched), "auto").changes == ()


def test_a_resume_from_another_run_refuses_what_its_checkpoint_depends_on(launched, tmp_path):
    other = launched.copy()
    other.seal.run_dir, other.trainer.default_local_dir = f"{tmp_path}/new", f"{tmp_path}/new/checkpoints"
    path = str(tmp_path / "run" / "checkpoints" / "global_step_10")
    other.seal.reweighting.w_max = 3.0
    assert find_start(Recipe.of(other), path) == Start(10)
    other.data.train_batch_size = 4
    with pytest.raises(LaunchError, match=r"train_batch_size is 4, but .*/run was trained with 8 to step 10: .*export"):
        find_start(Recipe.of(other), path)
    other.trainer.val_only = True
    assert find_start(Recipe.of(other), path) == Start(10)


def test_an_asynchronous_resume_refuses_other_prompts_under_way(launched):
    launched.trainer.v1.trainer_mode = "seal_async"
    facts = OmegaConf.to_container(Recipe.of(launched.copy()).config)
    RunLog(HOME / launched.seal.run_dir).launch({"config": facts}, step=0)
    launched.trainer.v1.colocate_async.num_warmup_batches += 1
    with pytest.raises(LaunchError, match=r"num_warmup_batches is .* to step 10: set it back"):
        find_start(Recipe.of(launched), "auto")


@pytest.mark.parametrize("mode", ["auto", "path"])
def test_a_resume_asks_for_no_part_that_the_checkpoint_lacks(config, tmp_path, saved, mode):
    saved(10)
    folder = tmp_path / "run" / "checkpoints" / "global_step_10"
    if mode == "path":
        config.seal.run_dir, config.trainer.default_local_dir = f"{tmp_path}/two", f"{tmp_path}/two/checkpoints"
    where = "auto" if mode == "auto" else str(folder)
    config.trainer.n_gpus_per_node = 2
    with pytest.raises(LaunchError, match=r"has the parts of 1 processes, but .*n_gpus_per_node=2 are 2: set them"):
        find_start(Recipe.of(config), where)
    config.trainer.n_gpus_per_node = 1
    for part in ("optim", "extra_state"):
        listed = json.loads((folder / FILES).read_text())
        del listed["files"][f"actor/{part}_world_size_1_rank_0.pt"]
        (folder / FILES).write_text(json.dumps(listed))
    with pytest.raises(LaunchError, match="saved without extra and optimizer: remove that from"):
        find_start(Recipe.of(config), where)
    config.actor_rollout_ref.actor.checkpoint.load_contents = ["model"]
    assert find_start(Recipe.of(config), where).step == 10


def test_a_resume_refuses_files_of_tasks_with_other_contents(config, saved):
    recipe = Recipe.of(config)
    rows = [[row.data_source, row.task_id, row.split] for row in recipe.rows.train]
    log = RunLog(HOME / config.seal.run_dir)
    facts = {"config": without_secrets(OmegaConf.to_container(recipe.config))}
    for known in (rows, rows[1:]):
        log.launch({**facts, "rows": {"training": known}}, step=0)
        saved(10)
        if known == rows:
            assert find_start(recipe, "auto").step == 10
    with pytest.raises(LaunchError, match=r"seal.data.train selects other tasks than .* to step 10: restore its files"):
        find_start(recipe, "auto")


def test_a_validation_of_other_tasks_does_not_replace_the_one_that_is_there(config, saved):
    recipe = Recipe.of(config)
    recipe.config.trainer.val_only = True
    rows = [[row.data_source, row.task_id, row.split] for row in recipe.rows.val]
    facts = {"config": without_secrets(OmegaConf.to_container(recipe.config))}
    RunLog(HOME / config.seal.run_dir).launch({**facts, "rows": {"validation": rows[1:]}}, step=0)
    saved(10)
    assert find_start(recipe, "auto").step == 10
    recipe.folder.validations.mkdir(parents=True)
    (recipe.folder.validations / "10.jsonl").touch()
    with pytest.raises(LaunchError, match=r"seal.data.val selects other tasks .*experiment_name with --resume PATH"):
        find_start(recipe, "auto")


def test_a_measurement_of_another_model_or_other_tasks_does_not_replace_the_first(config, tmp_path):
    recipe = Recipe.of(config)
    recipe.config.trainer.val_only = True
    RunLog(HOME / config.seal.run_dir).launch(recipe_facts(recipe), step=0)
    other = recipe.config.copy()
    other.actor_rollout_ref.model.path = str(tmp_path / "another")
    for mode in ("auto", "never"):
        assert find_start(Recipe.of(other.copy()), mode) == Start(0)  # the first one has no result yet
    validated(tmp_path, 0)
    assert find_start(recipe, "auto") == Start(0)
    with pytest.raises(LaunchError, match="already holds a run"):
        find_start(recipe, "never")
    with pytest.raises(LaunchError, match=r"model.path is .*another.*: set it back, or set another .*_name\.$"):
        find_start(Recipe.of(other), "auto")
    recipe.config.seal.data.val = [{"split": "eval", "limit": 3}]
    with pytest.raises(LaunchError, match=r"seal.data.val selects other tasks .*, or set another .*_name\.$"):
        find_start(Recipe.of(recipe.config), "auto")


def test_weights_and_biases_goes_on_with_the_same_run(tmp_path):
    log = RunLog(tmp_path)
    log.launch({}, step=0)
    first = name_tracked_run(RunFolder(tmp_path))
    log.launch({}, step=5)
    assert name_tracked_run(RunFolder(tmp_path)) == first and first["WANDB_RESUME"] == "allow"
    log.keep_through(-1)
    log.launch({}, step=0)
    assert name_tracked_run(RunFolder(tmp_path)) != first
