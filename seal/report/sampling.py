"""What `seal.sampling` drew: how often each data source, and how well pass rates were foreseen."""

from collections.abc import Sequence

from rich.table import Table

from seal.evaluation.tables import percent, table
from seal.jsonl import Line, read_jsonl
from seal.report.run import Run


def sampling_table(run: Run) -> Table | None:
    """Draws by data source in the first and the last quarter of the steps, with the pass rate that was expected.

    None for a run that went through its tasks in order, or has fewer than two steps.
    """
    quarters = run.quarters
    if quarters is None or not run.folder.sampling.is_file():
        return None
    lines = (line.value for line in read_jsonl(run.folder.sampling) if isinstance(line, Line))
    by_step = {line["step"]: line.get("drawn", ()) for line in lines}
    parts = [[each for step in part for each in by_step.get(step.step, ())] for part in quarters]
    if not all(parts):
        return None
    made = table(
        "Prompts drawn where rollouts are likely to differ", ["data source", "first", "last", "expected pass rate"]
    )
    for source in sorted({each["data_source"] for part in parts for each in part}):
        shares = (percent(sum(each["data_source"] == source for each in part) / len(part)) for part in parts)
        made.add_row(source, *shares, " -> ".join(_expected(source, part) for part in parts))
    return made


def _expected(source: str, drawn: Sequence[dict]) -> str:
    means = [each["mean"] for each in drawn if each["data_source"] == source]
    return f"{sum(means) / len(means):.2f}" if means else "-"
