"""Writes the reference calls and answers of AgentDojo's user tasks as JSON; run by the suite's own environment.

``python dojo_references.py BENCHMARK OUT``. A task is named ``suite/task``.
"""

import json
import sys
from pathlib import Path

from agentdojo.task_suite.load_suites import get_suites


def references(benchmark):
    """By task: the calls as pairs of a name and arguments, and the last message."""
    found = {}
    for name, suite in get_suites(benchmark).items():
        for task in suite.user_tasks.values():
            environment = task.init_environment(suite.load_and_inject_default_environment({}))
            calls = [call.model_dump(mode="json") for call in task.ground_truth(environment)]
            pairs = [[call["function"], call["args"]] for call in calls]
            found[f"{name}/{task.ID}"] = {"calls": pairs, "output": task.GROUND_TRUTH_OUTPUT}
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(references(sys.argv[1])))
