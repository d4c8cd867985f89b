"""A run in one sentence: how far it is, and what its validations say."""

from collections.abc import Sequence

from seal.records.folder import RunFolder
from seal.records.source import WHOLE, categories_to_average
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.comparison import compare_lines
from shelf.statistics.log import MET, Log, has_verdict, planned_steps, read_stages
from shelf.statistics.runs import not_held_out
from shelf.statistics.summary import label_shares, played, summarise_step


def headline(folder: RunFolder, steps: Sequence[StepRecord], validated: Sequence[TrajectoryRecord]) -> str:
    """The results of a run in one sentence, for the first line of everything that shows it.

    steps: its training steps, ascending. validated: the lines of its validations. The pass rate of whole tasks
    (or of the shortest prefix if there are none) is averaged over categories; its change from the first validation to
    the last is paired by task, with a 95 % interval; then comes the failure label whose share of these turns changed
    most. Tasks are called held out if the run recorded its training tasks and no validated task is among them.
    """
    done, of = steps[-1].step if steps else 0, planned_steps(read_stages(folder))
    reached = f", {done} of {of} steps" if of else f", {done} steps" if done else ""
    lines = [line for line in validated if has_verdict(line)]
    prefix = min((line.prefix for line in lines), default=WHOLE)
    lines = [line for line in lines if line.prefix == prefix]
    categories = categories_to_average(line.category for line in lines)
    log = Log(tuple(line for line in lines if line.category in categories))
    if not log.lines:
        ran, lost = any(line.infra is None for line in validated), "infrastructure lost every rollout"
        why = "no rollout has a reward" if ran else lost if validated else "no validation yet"
        return f"{folder.path.name}{reached}: {why}"
    held_out = folder.training_rows.is_file() and not not_held_out(folder.path, log.lines)
    what = f"{'held-out' if held_out else 'validated'} {'tasks' if prefix == WHOLE else 'first turns'}"
    return f"{folder.path.name}{reached}: {what} passed {_passed(log)}"


def _passed(log: Log) -> str:
    first, last = log.steps[0], log.steps[-1]
    both = played(log.at(first)) & played(log.at(last))
    if first == last or not both:
        rate = summarise_step(log.at(last))[-1].rate
        return f"{100 * rate.rate:.1f} % (95 % {100 * rate.low:.1f} to {100 * rate.high:.1f}) at step {last}"
    sides = [[line for line in log.at(step) if played([line]) & both] for step in (first, last)]
    rate = compare_lines("first", "last", "average", WHOLE, sides).pass_rate
    spread = f"95 % {100 * rate.low:+.1f} to {100 * rate.high:+.1f}" if rate.low < rate.high else "all tasks alike"
    change = f"{100 * rate.difference:+.1f}, {spread}"
    return f"{100 * rate.mean_a:.1f} % -> {100 * rate.mean_b:.1f} % ({change}){_moved(sides)}"


def _moved(sides: Sequence[Sequence[TrajectoryRecord]]) -> str:
    before, after = map(label_shares, sides)
    moves = {label: after.get(label, 0.0) - before.get(label, 0.0) for label in {*before, *after} - MET}
    label = max(sorted(moves), key=lambda label: abs(moves[label]), default=None)
    if label is None or not round(100 * moves[label]):
        return ""
    return f"; of their turns {label} {100 * before.get(label, 0.0):.0f} % -> {100 * after.get(label, 0.0):.0f} %"
