"""The job array that runs an experiment under Slurm: one task per missing run, each by scripts/slurm.sh."""

import math
import shlex
from collections.abc import Mapping

from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.lab.experiment.arms import ComposedArm
from shelf.lab.experiment.matrix import Experiment
from shelf.lab.experiment.plan import ExperimentPlan

LONGEST_H = 24
SLACK = 1.5
"""Room in the time limit; a run that does not fit is interrupted, saves, and goes on with the next submission."""

HEAD = """\
#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}%{jobs}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time={time}
#SBATCH --output={logs}/slurm-%A_%a.log
#SBATCH --signal=B:TERM@660
# The {count} runs that the experiment {name} lacks, at most {jobs} at a time. Submit it from the repository:
#   sbatch {script}
# Submit it again to resume runs that the time limit interrupted, and write it again to leave out those that have
# finished. Options of sbatch (--partition, --account, --time) override the lines above.
#   seal experiment report {source}
# takes in what has finished.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
case "$SLURM_ARRAY_TASK_ID" in
"""

TAIL = """\
  *) printf 'there is no run %s\\n' "$SLURM_ARRAY_TASK_ID" >&2; exit 1 ;;
esac
exec bash scripts/slurm.sh "$@"
"""


def slurm_script(experiment: Experiment, arms: Mapping[str, ComposedArm], plan: ExperimentPlan) -> str:
    """The script of the job array. LaunchError if nothing is missing, or if arms need different machines or no GPU."""
    missing = [cell for cell in experiment.cells if not experiment.result(cell).is_file()]
    if not missing:
        raise LaunchError(f"Every run of {experiment.design.name} has finished; there is nothing to submit.")
    shapes = {(arm.config.trainer.nnodes, arm.config.trainer.n_gpus_per_node) for arm in arms.values()}
    if len(shapes) > 1:
        raise LaunchError("The arms need different numbers of nodes or GPUs, and a job array has one: split the file.")
    if not all(arm.devices for arm in arms.values()):
        raise LaunchError("The recipe trains on a CPU, and scripts/slurm.sh starts runs on GPUs: name a CUDA recipe.")
    ((nodes, gpus),) = shapes
    head = HEAD.format(
        name=experiment.design.name,
        last=len(missing) - 1,
        jobs=plan.jobs,
        nodes=nodes,
        gpus=gpus,
        time=_limit(plan),
        count=len(missing),
        logs=experiment.folder,
        script=experiment.folder / "slurm.sh",
        source=experiment.source,
    )
    lines = []
    for index, cell in enumerate(missing):
        recipe = experiment.design.recipe_of(cell.arm)
        shown = recipe.relative_to(HOME) if recipe.is_relative_to(HOME) else recipe
        words = [str(shown), *experiment.overrides(cell.arm), *experiment.own_overrides(cell)]
        lines.append(f"  {index}) set -- {shlex.join(words)} ;;\n")
    return head + "".join(lines) + TAIL


def _limit(plan: ExperimentPlan) -> str:
    """The time limit of one run: its planned time with slack, at most a day; a day if unknown."""
    minutes = [arm.minutes for arm in plan.arms]
    known = [each for each in minutes if each is not None]
    hours = LONGEST_H if len(known) < len(minutes) else min(LONGEST_H, math.ceil(SLACK * max(known) / 60))
    return f"{max(1, hours):02d}:00:00"
