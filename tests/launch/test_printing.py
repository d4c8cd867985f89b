"""`launcher.py` shows what a launch would be, and starts nothing."""

import re
import shutil
from uuid import uuid4

import pytest
from omegaconf import OmegaConf

from seal.cli.main import execute, load
from seal.launch.plan import step_plan
from seal.launch.recipe import compose_recipe, read_recipe
from seal.launch.record import Replay, write_record
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
    """What the launcher prints, in this process: tests/cli compares it with what a process of its own prints."""

    def run(*arguments: str) -> str:
        assert execute(load("train"), arguments, "launcher.py") == 0
        said = capsys.readouterr()
        assert not said.err
        return said.out

    return run


def test_the_plan_of_a_step(name, printed):
    own = [f"trainer.experiment_name={name}", "actor_rollout_ref.rollout.n=4"]
    said = printed("--conf", "exp/quickstart.yaml", "--print-plan", "--", *own)
    assert f"A training step of {name}" in said
    rows = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in said.strip().splitlines()[1:])
    assert rows == dict(step_plan(compose_recipe(RECIPE, own)).lines())
    assert not (HOME / "launcher_record" / name).exists()


def test_the_configuration(name, printed):
    own = [f"trainer.experiment_name={name}", "actor_rollout_ref.rollout.n=4", "seal.name='[red]'"]
    said = printed("--conf", "exp/quickstart.yaml", "--print-config", "--", *own)
    assert OmegaConf.create(said) == compose_recipe(RECIPE, own)
    assert not (HOME / "launcher_record" / name).exists()


def test_the_configuration_of_a_recorded_launch(name, tmp_path, printed):
    recipe = read_recipe(RECIPE, [f"trainer.experiment_name={name}", f"seal.run_dir={tmp_path}/run", "seal.seed=7"])
    config = recipe.config
    recipe.rows.write(config.data.train_files, config.data.val_files)
    record = write_record(config, config, RECIPE, [], ["python", "launcher.py"])
    own = ["trainer.experiment_name=again", "trainer.save_freq=3"]
    said = OmegaConf.create(printed("--replay", str(record), "--print-config", "--", *own))
    assert said == Replay(record).recorded(own).config
    assert (said.seal.seed, said.trainer.save_freq, said.seal.run_dir) == (7, 3, f"{tmp_path}/again")
