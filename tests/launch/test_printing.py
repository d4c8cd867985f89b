"""`launcher.py` shows what a launch would be, and starts nothing."""

import shutil
from uuid import uuid4

import pytest
from omegaconf import OmegaConf

from seal.cli.main import execute, load
from seal.launch.recipe import read_recipe
from seal.launch.record import write_record
from seal.system.paths import HOME

RECIPE = HOME / "exp" / "quickstart.yaml"


@pytest.fixture
def name():
    """An experiment that nothing must be written for but its record."""
    made = f"test-{uuid4().hex[:8]}"
    yield made
    shutil.rmtree(HOME / "launcher_record" / made, ignore_errors=True)
    left = HOME / "experiments" / made
    existed = left.exists()
    shutil.rmtree(left, ignore_errors=True)
    assert not existed


@pytest.fixture
def printed(capsys):
    """The launcher's output in this process; tests/cli compares it with the output of a process of its own."""

    def run(*arguments: str) -> str:
        assert execute(load("train"), arguments, "launcher.py") == 0
        said = capsys.readouterr()
        assert not said.err
        return said.out

    return run


def test_the_configuration(name, printed):
    own = [f"trainer.experiment_name={name}", "actor_rollout_ref.rollout.n=4", "seal.name='[red]'"]
    said = printed("--conf", "exp/quickstart.yaml", "--print-config", "--", *own)
    assert OmegaConf.create(said) == read_recipe(RECIPE, own).config
    assert not (HOME / "launcher_record" / name).exists()


@pytest.mark.parametrize("override", ["seal.data.train.categories=[bass]", "seal.data.val=[/x]"])
def test_a_refusal_repeats_what_was_written(capsys, override):
    assert execute(load("train"), [str(RECIPE), "--print-config", override], "launcher.py") == 1
    assert override in capsys.readouterr().out


def test_a_recorded_launch_is_a_recipe(name, tmp_path, printed):
    own = [f"trainer.experiment_name={name}", f"seal.run_dir={tmp_path}/run", "seal.seed=7", "seal.name=mine"]
    recipe = read_recipe(RECIPE, own)
    config = recipe.config
    recipe.rows.write(config.data.train_files, config.data.val_files)
    record, _ = write_record(recipe, config, RECIPE, own, ["python", "launcher.py"], {})
    assert OmegaConf.create(printed("--conf", str(record / "recipe.yaml"), "--print-config", "--", *own)) == config
    said = OmegaConf.create(printed("--conf", str(record / "config.yaml"), "--print-config", "--", "seal.seed=8"))
    config.seal.seed = 8
    assert {key: value for key, value in said.items() if key != "data"} == {
        key: value for key, value in config.items() if key != "data"
    }
