"""The benchmark's tasks in whose states a model may look for new tasks: those of the training side."""

from collections.abc import Sequence

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS, side_of_scenario
from seal.diagnosis.categories import SCENARIO_COUNT, task_id
from shelf.testbed.synthesis.check import evaluation_state


def seed_tasks(scenarios: Sequence[int] | None) -> tuple[Task, ...]:
    """The plain tasks of these scenarios, of all that may be used by default.

    ValueError for one that belongs to the evaluation side, or that starts in the state of one
    that does.
    """
    if scenarios is None:
        every = (load_tasks()[task_id("base", scenario)] for scenario in TRAIN_SCENARIOS)
        return tuple(task for task in every if evaluation_state(task.initial_config) is None)
    found = []
    for scenario in dict.fromkeys(scenarios):
        if not 0 <= scenario < SCENARIO_COUNT:
            raise ValueError(f"--scenarios has {scenario}: the benchmark's are 0 to {SCENARIO_COUNT - 1}.")
        if side_of_scenario(scenario) == "eval":
            raise ValueError(
                f"Scenario {scenario} belongs to the evaluation side: name scenarios of the training side."
            )
        task = load_tasks()[task_id("base", scenario)]
        if shared := evaluation_state(task.initial_config):
            raise ValueError(f"Scenario {scenario} starts in {shared}: name another one.")
        found.append(task)
    return tuple(found)
