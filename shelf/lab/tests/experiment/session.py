"""A session of an experiment in a process of its own, with the stand-in launcher: FILE CONFIG JOBS."""

import sys
from pathlib import Path

from omegaconf import OmegaConf

from seal.system.errors import LaunchError
from shelf.lab.experiment.arms import ComposedArm
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.runner import SessionOptions, run_experiment

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


def main() -> int:
    file, config, jobs = sys.argv[1:]
    experiment = Experiment.read(Path(file))
    arms = {arm: ComposedArm(arm, OmegaConf.load(config), 4) for arm in experiment.design.arms}
    try:
        options = SessionOptions(STAND_IN, jobs=int(jobs))
        return run_experiment(experiment, arms, options, lambda text: print(text, flush=True)).code
    except LaunchError as error:
        print(f"error: {error}", flush=True)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
