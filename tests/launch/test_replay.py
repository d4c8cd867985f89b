"""A recorded launch runs again in a folder of its own, and says what is not as recorded."""

import json
import shutil
from uuid import uuid4

import pytest
from omegaconf import OmegaConf

from seal.launch.recipe import read_recipe
from seal.launch.record import HIDDEN, Replay, add_service, launch_facts, without_secrets, write_record
from seal.system.errors import LaunchError
from seal.system.paths import HOME

NAME = f"test-{uuid4().hex[:8]}"
RECIPE = HOME / "exp" / "quickstart.yaml"
COMMAND = ["python", "launcher.py", "--conf", "exp/quickstart.yaml", "--with-bfcl"]


@pytest.fixture
def record(tmp_path):
    own = [f"trainer.experiment_name={NAME}", f"seal.run_dir={tmp_path}/{NAME}", "seal.seed=7"]
    recipe = read_recipe(RECIPE, own)
    config = recipe.config
    recipe.rows.write(config.data.train_files, config.data.val_files)
    resumed = OmegaConf.merge(config, {"trainer": {"val_before_train": False}})
    folder = write_record(config, resumed, RECIPE, [], COMMAND)
    add_service(folder, {"protocol": 1, "data_hash": "d"})
    yield folder
    shutil.rmtree(HOME / "launcher_record" / NAME)


def test_the_configuration_is_the_recorded_one_beside_the_old_run(record, tmp_path):
    config = Replay(record).recorded(["trainer.experiment_name=again", "trainer.save_freq=3"]).config
    assert (config.seal.seed, config.trainer.save_freq, config.trainer.val_before_train) == (7, 3, True)
    assert config.seal.run_dir == f"{tmp_path}/again"
    assert config.trainer.default_local_dir == f"{tmp_path}/again/checkpoints"
    assert f"{tmp_path}/{NAME}" not in OmegaConf.to_yaml(config)
    assert Replay(record).with_bfcl
    assert Replay(record).recorded([]).name.startswith(f"{NAME}-replay-")


def test_a_key_that_the_record_does_not_know_is_named(record):
    with pytest.raises(LaunchError, match="save_frequency"):
        Replay(record).recorded(["trainer.save_frequency=3"])


def test_what_is_not_as_recorded_is_named(record):
    assert list(Replay(record).differences(record)) == []
    old = record.with_name("old")
    shutil.copytree(record, old)
    facts = json.loads((old / "launch.json").read_text())
    facts["packages"]["torch"] = "1.0"
    facts["hashes"]["data/train.parquet"] = "another"
    (old / "launch.json").write_text(json.dumps(facts))
    (old / "service.json").write_text(json.dumps({"protocol": 1, "data_hash": "e"}))
    found = list(Replay(old).differences(record))
    assert [sentence.split(" was ")[0] for sentence in found] == [
        "package torch",
        "file data/train.parquet",
        "service data_hash",
    ]


def test_a_folder_that_is_no_record_is_named(tmp_path):
    with pytest.raises(LaunchError, match="launcher_record/NAME/TIME"):
        Replay(tmp_path)


def test_what_goes_into_the_runs_log_has_no_secrets(record):
    facts = launch_facts(record, {"data_hash": "d"})
    assert facts["config"]["seal"]["seed"] == 7 and facts["service"] == {"data_hash": "d"}
    sources = {(source, split) for source, _task, split in facts["rows"]["training"]}
    assert {("base@1", "train"), ("synth_train_base", "train")} <= sources
    config = {
        "process_env": {"WANDB_API_KEY": "k", "HF_TOKEN": "t", "TOKENIZERS_PARALLELISM": "false"},
        "max_token_len": 5,
        "urls": ["http://me:secret@10.0.0.5:8082/x"],
    }
    assert without_secrets(config) == {
        "process_env": {"WANDB_API_KEY": HIDDEN, "HF_TOKEN": HIDDEN, "TOKENIZERS_PARALLELISM": "false"},
        "max_token_len": 5,
        "urls": ["http://10.0.0.5:8082/x"],
    }
