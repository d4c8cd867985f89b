"""Launches that another version recorded."""

import pytest

from seal.settings import BLOCKS, SealSettings, SettingsError
from seal.settings.base import recipe_defaults
from shelf.statistics.launches import Launch, due_validations, launch_of_step, read_config


def test_a_record_of_another_version_is_read_without_what_only_that_version_knows():
    config = {name: recipe_defaults(block) for name, block in BLOCKS.items()}
    config["seal"]["name"] = "x"
    known = SealSettings.of(config)
    config["seal"]["interface"]["departed"] = config["seal"]["data"]["train"]["departed"] = True
    with pytest.raises(SettingsError, match="departed is not a setting"):
        SealSettings.of(config)
    assert SealSettings.of(read_config(config)) == known
    config["seal"]["seed"] = "y"
    with pytest.raises(SettingsError, match=r"seal\.seed is 'y'"):
        read_config(config)


def test_a_run_from_another_ones_checkpoint_validates_first_where_it_begins():
    config = {name: recipe_defaults(block) for name, block in BLOCKS.items()}
    config["seal"]["name"] = "x"
    config["data"] = {"train_batch_size": 8}
    config["trainer"] = {"total_training_steps": 48, "test_freq": 20, "val_before_train": True}
    launches = [Launch(step, {"config": config}, SealSettings.of(config)) for step in (24, 30)]
    assert due_validations(launches, 48) == [24, 40, 48] and due_validations(launches, 35) == [24]
    assert [launch_of_step(launches, step) for step in (24, 25, 30, 31)] == [0, 0, 0, 1]


def test_an_environment_may_have_a_prompt_mode_of_its_own():
    config = {name: recipe_defaults(block) for name, block in BLOCKS.items()}
    config["seal"]["name"] = "x"
    config["env_service"] |= {"prompt_mode": "bfcl_qwen_fc", "prompt_modes": {"tau2_telecom": "hermes"}}
    launch = Launch(0, {"config": config}, SealSettings.of(config))
    assert (launch.mode("bfcl"), launch.mode("tau2_telecom")) == ("bfcl_qwen_fc", "hermes")
