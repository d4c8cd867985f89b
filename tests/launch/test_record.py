"""The contents of a launch's record, and the part that a run's log takes."""

import json
import shutil
import subprocess
from uuid import uuid4

import pytest
from omegaconf import OmegaConf

from seal.launch import record as module
from seal.launch.recipe import read_recipe
from seal.launch.record import write_record
from seal.system.paths import HOME
from seal.system.text import HIDDEN, without_secrets

NAME = f"test-{uuid4().hex[:8]}"
RECIPE = HOME / "exp" / "quickstart.yaml"
COMMAND = ["python", "launcher.py", "--conf", "exp/quickstart.yaml", "--with-bfcl"]


@pytest.fixture
def recorded(tmp_path):
    own = [f"trainer.experiment_name={NAME}", f"seal.run_dir={tmp_path}/{NAME}", "seal.seed=7"]
    recipe = read_recipe(RECIPE, own)
    config = recipe.config
    recipe.rows.write(config.data.train_files, config.data.val_files)
    resumed = OmegaConf.merge(config, {"trainer": {"val_before_train": False}})
    yield write_record(recipe, resumed, RECIPE, [], COMMAND, {"protocol": 1, "data_hash": "d"})
    shutil.rmtree(HOME / "launcher_record" / NAME)


def test_a_record_outside_the_repository_starts_from_the_same_model(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("defaults: [quickstart, _self_]\nactor_rollout_ref: {model: {path: my start}}\n")
    shutil.copytree(HOME / "data" / "quickstart_policy", tmp_path / "my start")
    recipe = read_recipe(mine, [f"trainer.experiment_name={NAME}"])
    recipe.rows.write(recipe.config.data.train_files, recipe.config.data.val_files)
    record, _ = write_record(recipe, recipe.config, mine, [], COMMAND, {})
    again = read_recipe(record / "recipe.yaml", json.loads((record / "launch.json").read_text())["overrides"])
    assert again.config.actor_rollout_ref.model.path == str(tmp_path / "my start")
    shutil.rmtree(record.parent)


def test_a_diff_in_any_encoding_is_kept(tmp_path, monkeypatch):
    for command in (["init", "-q"], ["add", "a"], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
        (tmp_path / "a").write_bytes(b"before\n")
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "a").write_bytes(b"caf\xe9\n")
    monkeypatch.setattr(module, "HOME", tmp_path)
    assert b"+caf\xe9\n" in module._git("diff", "HEAD")


def test_what_goes_into_the_runs_log_has_no_secrets(recorded):
    record, facts = recorded
    assert facts["config"]["seal"]["seed"] == 7 and facts["service"]["data_hash"] == "d"
    assert facts["config"] == without_secrets(OmegaConf.to_container(OmegaConf.load(record / "config.yaml")))
    sources = {(source, split) for source, _task, split in facts["rows"]["training"]}
    assert {("base@1", "train"), ("synth_train_base", "train")} <= sources
    config = {
        "process_env": {"WANDB_API_KEY": "k", "HF_TOKEN": "t", "TOKENIZERS_PARALLELISM": "false"},
        "max_token_len": 5,
        "data": {"prompt_key": "prompt", "wandb_api_key": "k", "hf_token": "t", "GITHUB_PAT": "p"},
        "urls": ["http://me:secret@10.0.0.5:8082/x", "HF_TOKEN=t", "https://a.b/c?api_key=k&x=1", "max_tokens=5"],
        "harness": ["agent", "--api-key=k", "--openai-api-key", "k", "--token", "t", "--steps", "5"],
    }
    assert without_secrets(config) == {
        "process_env": {"WANDB_API_KEY": HIDDEN, "HF_TOKEN": HIDDEN, "TOKENIZERS_PARALLELISM": "false"},
        "max_token_len": 5,
        "data": {"prompt_key": "prompt", "wandb_api_key": HIDDEN, "hf_token": HIDDEN, "GITHUB_PAT": HIDDEN},
        "urls": [
            "http://10.0.0.5:8082/x",
            f"HF_TOKEN={HIDDEN}",
            f"https://a.b/c?api_key={HIDDEN}&x=1",
            "max_tokens=5",
        ],
        "harness": ["agent", f"--api-key={HIDDEN}", "--openai-api-key", HIDDEN, "--token", HIDDEN, "--steps", "5"],
    }
    assert record.stat().st_mode & 0o077 == 0  # its command and configuration are as they were given
