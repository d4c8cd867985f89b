"""Experiments over the quickstart: composed once, run by the stand-in launcher."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from env_service.environments.bfcl.splits import EVAL_SCENARIOS
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from shelf.lab.experiment.arms import ComposedArm
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.runner import SessionOptions, run_experiment
from shelf.lab.tests.experiment import simulated
from shelf.lab.tests.experiment.session import STAND_IN


@pytest.fixture(scope="session")
def quickstart() -> DictConfig:
    overrides = ("trainer.total_training_steps=4", "trainer.test_freq=2", "trainer.experiment_name=x")
    return read_recipe(HOME / "exp" / "quickstart.yaml", overrides).config


@dataclass
class Bench:
    """An experiment whose runs the stand-in makes; `plan` says what happens to which run."""

    experiment: Experiment
    arms: dict[str, ComposedArm]
    plan: Path
    said: list[str]

    def happening(self, **events) -> None:
        self.plan.write_text(json.dumps({name.replace("__", "-"): event for name, event in events.items()}))

    def run(self, **options):
        return run_experiment(self.experiment, self.arms, SessionOptions(STAND_IN, **options), self.said.append)

    @property
    def starts(self) -> list[dict]:
        """Every start of the stand-in, in order."""
        path = self.plan.with_suffix(".starts")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def finished(self) -> list[str]:
        return [str(cell) for cell, _result in self.experiment.finished()]

    def session(self, jobs: int = 1, step_s: float = 0.02) -> subprocess.Popen:
        """A session in a process of its own."""
        config = self.plan.with_name("config.yaml")
        OmegaConf.save(next(iter(self.arms.values())).config, config, resolve=True)
        command = [
            sys.executable,
            "-m",
            "shelf.lab.tests.experiment.session",
            str(self.experiment.source),
            str(config),
            str(jobs),
        ]
        env = {**os.environ, "STAND_IN_STEP_S": str(step_s)}
        return subprocess.Popen(command, cwd=HOME, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def make_bench(tmp_path, quickstart, monkeypatch):
    def make(arms=("vanilla", "seal"), seeds=(0, 1), **more) -> Bench:
        experiment = simulated.experiment(tmp_path, arms, seeds, **more)
        plan = tmp_path / "plan.json"
        plan.write_text("{}")
        monkeypatch.setattr("shelf.lab.experiment.runner.POLL_S", 0.05)
        monkeypatch.setenv("STAND_IN", str(plan))
        monkeypatch.setenv("STAND_IN_SCENARIOS", json.dumps(EVAL_SCENARIOS[:20]))
        return Bench(experiment, {arm: ComposedArm(arm, quickstart, 4) for arm in arms}, plan, [])

    return make
