"""What it took to reach a score: the held-out curve against the cost of the training before it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from seal.records.folder import RunFolder
from seal.records.step import StepRecord, read_steps
from seal.records.validation import Log
from seal.statistics.cost import Cost, Devices, known, of_rollouts, of_steps
from seal.statistics.summary import Summary
from seal.statistics.tables import RATES, percent, table

TRAINING, VALIDATION = "training", "validation"


class Spent(NamedTuple):
    """The cost of one thing of a run: of its training up to a step, or of the validation at it."""

    run: str
    step: int
    what: str
    cost: Cost


class Reached(NamedTuple):
    """Where a run's curve first reached a score, and what its training had cost by then.

    name: of the average over categories. at: the validation that reached it; None if none did,
    and then `best` is the highest one and there is no cost.
    """

    run: str
    name: str
    target: float
    at: Summary | None
    best: Summary
    cost: Cost | None


class Ledger:
    """The costs of one run: of its training steps, and of the validations in a log."""

    def __init__(self, folder: Path | str, log: Log, devices: int | None = None):
        """devices: replaces the number that the run's launches say."""
        run = RunFolder(folder)
        self._run, self._log = str(folder), log
        self._devices = Devices(((0, devices),)) if devices is not None else Devices.of(run)
        self._steps: tuple[StepRecord, ...] = read_steps(run.steps)[0] if run.steps.is_file() else ()

    @property
    def kind(self) -> str:
        """The kind of the run's devices; "" if unknown."""
        return self._devices.kind

    def training(self, step: int) -> Cost:
        """The cost of the training up to and including a step."""
        return of_steps([each for each in self._steps if each.step <= step], self._devices)

    def spent(self, steps: Iterable[int] | None = None) -> tuple[Spent, ...]:
        """The costs at these validations, at all of them by default."""
        found = []
        for step in self._log.steps if steps is None else steps:
            if step and self._steps:
                found.append(Spent(self._run, step, TRAINING, self.training(step)))
            found.append(Spent(self._run, step, VALIDATION, of_rollouts(self._log.at(step), self._devices.at(step))))
        return tuple(found)

    def reached(self, target: float, rows: Sequence[Summary]) -> tuple[Reached, ...]:
        """For each average of the summaries, where it first reached `target`, a share from 0 to 1."""
        curves: dict[str, list[Summary]] = {}
        for row in rows:
            if row.is_average and row.rate is not None:
                curves.setdefault(row.name, []).append(row)
        found = []
        for name, curve in curves.items():
            at = next((row for row in curve if row.rate.rate >= target), None)
            best = max(curve, key=lambda row: row.rate.rate)
            found.append(Reached(self._run, name, target, at, best, self.training(at.step) if at else None))
        return tuple(found)


def spent_record(spent: Spent, per_hour: float | None) -> dict[str, Any]:
    """A cost as one flat record."""
    return {"run": spent.run, "step": spent.step, "what": spent.what, **spent.cost.record(per_hour)}


def reached_record(reached: Reached, per_hour: float | None) -> dict[str, Any]:
    """What it took to reach a score as one flat record; null costs and step if it was not reached."""
    rate = reached.at.rate if reached.at else None
    cost = reached.cost.record(per_hour) if reached.cost else dict.fromkeys(Cost().record())
    return {
        "run": reached.run,
        "category": reached.name,
        "target": reached.target,
        "step": reached.at.step if reached.at else None,
        **{f"pass_rate{end}": rate and getattr(rate, name) for end, name in RATES.items()},
        "best_step": reached.best.step,
        "best_pass_rate": reached.best.rate.rate,
        **cost,
    }


def cost_table(records: Sequence[Mapping[str, Any]], kind: str = "") -> Table | None:
    """The costs of records of `spent_record`; None if nothing is known."""
    if not known(records):
        return None
    several = len({each["run"] for each in records}) > 1
    made = table("Cost", [*(["run"] if several else []), "step", "what", *_columns(records, kind)])
    for each in records:
        what = f"training to step {each['step']}" if each["what"] == TRAINING else each["what"]
        made.add_row(*([each["run"]] if several else []), str(each["step"]), what, *_cells(each, records))
    return made


def reached_table(found: Sequence[Reached], per_hour: float | None, kind: str = "") -> Table:
    """What it took each run to reach the score."""
    records = [reached_record(each, per_hour) for each in found]
    title = f"Training until the held-out curve first reaches {percent(found[0].target)} %"
    made = table(title, ["run", "category", "step", "pass %", "best %", *_columns(records, kind)])
    for each, record in zip(found, records, strict=True):
        at = (str(each.at.step), percent(each.at.rate.rate)) if each.at else ("never", "-")
        made.add_row(each.run, each.name, *at, percent(each.best.rate.rate), *_cells(record, records))
    return made


def cost_cells(cost: Cost, kind: str = "") -> list[tuple[str, str]]:
    """A cost as pairs of a name and a text; what is unknown is left out."""
    record = cost.record()
    cells = zip(_columns([record], kind), _cells(record, [record]), strict=True)
    return [(name, text) for name, text in cells if text not in ("-", "0")]


def _columns(records: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    hours = f"{kind} hours" if kind else "device hours"
    priced = any(each["price"] is not None for each in records)
    return ["rollouts", "tokens in", "tokens out", "wall time", hours, *(["price"] if priced else [])]


def _cells(record: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [_count(record[name]) for name in ("rollouts", "tokens_in", "tokens_out")]
    hours = record["device_hours"]
    cells += [_duration(record["seconds"]), "-" if hours is None else f"{hours:.3g}"]
    if any(each["price"] is not None for each in records):
        cells.append("-" if record["price"] is None else f"{record['price']:,.2f}")
    return cells


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
