"""The figures of a model card: validations before and after, and their changes."""

from dataclasses import dataclass

from seal.data.suspected import load_suspected
from seal.records.validation import read_validation_dir
from seal.statistics.comparison import Comparison, Side, compare
from seal.statistics.heldout import not_held_out
from seal.statistics.summary import Summary, informative, summarise_step, suspected_tasks
from shelf.handover.source import Source


@dataclass(frozen=True)
class Figures:
    """Rates of the first validation and of the last one up to the exported step.

    before, after: the rows of both, the same if there is one validation; at: their steps.
    changes: paired, by row name. suspected: how many of the validated tasks are suspected
    items. leak: the sentence about validated tasks that are trained on, None if there are none.
    """

    at: tuple[int, int]
    before: tuple[Summary, ...]
    after: tuple[Summary, ...]
    changes: dict[str, Comparison]
    suspected: int
    leak: str | None


def figures_of(source: Source) -> Figures | None:
    """The figures of a run up to the exported step; None if it had not validated."""
    if not source.run.validated:
        return None
    log = read_validation_dir(source.run.path)
    steps = [step for step in log.steps if step <= source.step]
    if not steps:
        return None
    at = steps[0], steps[-1]
    before, after = (informative(summarise_step(log.at(step))) for step in at)
    changes = {}
    if at[0] != at[1]:
        sides = (Side(str(step), (log.at(step),)) for step in at)
        changes = {row.name: row for row in compare(*sides)}
    suspected = suspected_tasks(log.at(at[1]), load_suspected())
    return Figures(at, before, after, changes, len(suspected), not_held_out(source.run.path, log.lines))
