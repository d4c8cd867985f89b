"""The model card: only what the run recorded, rendered by `card.md.jinja`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCard, ModelCardData, try_to_load_from_cache

from seal import __version__
from seal.launch.checks.model import HUB_ID
from seal.method.interface.cues import Omega
from seal.records.source import WHOLE, categories_to_average, parse_data_source
from seal.system.paths import HOME
from shelf.handover.source import Source
from shelf.statistics.comparison import Comparison, Side, compare
from shelf.statistics.log import Log, has_validations, read_validation_dir
from shelf.statistics.runs import not_held_out, provenance
from shelf.statistics.summary import (
    BFCL,
    Summary,
    informative,
    load_suspected,
    summarise_step,
    suspected_tasks,
    tasks_in_words,
)
from shelf.statistics.tables import percent, with_difference, with_interval
from shelf.view.report.run import training_cost

TEMPLATE = Path(__file__).with_name("card.md.jinja")
LEADERBOARD = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"
TAGS = ["seal", "grpo", "tool-use", "function-calling", "agent"]


class Figures(NamedTuple):
    """Rates of the first validation and of the last one up to the exported step, by row name.

    at: the two steps. before, after: their rows, the same if there is only one validation. changes: paired. suspected:
    how many of the validated tasks are suspected items. leak: the sentence about validated tasks that are also trained
    on. played: what was validated. data: the hashes of its data.
    """

    at: tuple[int, int]
    before: dict[str, Summary]
    after: dict[str, Summary]
    changes: dict[str, Comparison]
    suspected: int
    leak: str | None
    played: str
    data: Sequence[str]

    def labels(self) -> list[tuple[str, float, float]]:
        """The share of each label before and after, over all whole tasks (or over the shortest prefixes)."""
        sides = [{row.prefix: row.labels for row in side.values()} for side in (self.before, self.after)]
        prefix = min(sides[1])
        before, after = (side.get(prefix, {}) for side in sides)
        names = sorted({*before, *after}, key=lambda name: (-after.get(name, 0.0), name))
        return [(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]


def model_card(source: Source, kind: str, dtype: str | None, licence: str | None, omega: Omega | None) -> str:
    """The card as text. kind: "model" or "adapter". licence: None if it is not stated anywhere."""
    name = f"{source.name}-step-{source.step}"
    found = figures_of(source)
    results = _results(source, found)
    base = source.setting("actor_rollout_ref", "model", "path")
    data = ModelCardData(
        base_model=base if _on_hub(base) else None,
        eval_results=results or None,
        model_name=name if results else None,
        library_name="peft" if kind == "adapter" else "transformers",
        license=licence,
        pipeline_tag="text-generation",
        tags=TAGS,
    )
    values = {
        "name": name,
        "tasks": {kind: _tasks(source, kind) for kind in ("training", "validation")},
        "benchmark": BFCL,
        "version": __version__,
        "source": source,
        "kind": kind,
        "dtype": dtype,
        "base": base_name(source),
        "licence": licence,
        "omega": omega,
        "launch": source.launch,
        "cost": ", ".join(f"{value} {what}" for what, value in training_cost(source.run, source.step)),
        "found": found,
        "prefixes": found and any(row.prefix != WHOLE for row in found.after.values()),
        "percent": percent,
        "interval": with_interval,
        "difference": with_difference,
    }
    return ModelCard.from_template(data, template_path=str(TEMPLATE), **values).content.rstrip() + "\n"


def figures_of(source: Source) -> Figures | None:
    """The figures of a run up to the exported step; None if it had not validated by then."""
    if not has_validations(source.run):
        return None
    log = read_validation_dir(source.run.path)
    steps = [step for step in log.steps if step <= source.step]
    if not steps:
        return None
    at = steps[0], steps[-1]
    before, after = ({row.name: row for row in informative(summarise_step(log.at(step)))} for step in at)
    rows: Sequence[Comparison] = ()
    with suppress(ValueError):  # a resume may have changed all tasks
        rows = compare(*(Side(str(step), (log.at(step),)) for step in at)) if at[0] != at[1] else ()
    suspected = suspected_tasks(log.at(at[1]), load_suspected())
    leak = not_held_out(source.run.path, log.lines)
    lines, changes = log.at(at[1]), {row.name: row for row in rows}
    names, data = tasks_in_words(line.category for line in lines), provenance([Log(lines)])["data_hash"]
    return Figures(at, before, after, changes, len(suspected), leak, names, data)


def _tasks(source: Source, kind: str) -> str:
    """What the launch's training or validation tasks are."""
    rows = source.launch.rows(kind) if source.launch else ()
    return tasks_in_words(parse_data_source(name)[0] for name, _, _ in rows)


def base_name(source: Source) -> str:
    """The base model's name for others: on the hub, in this repository, or only the name of its folder."""
    base = source.setting("actor_rollout_ref", "model", "path")
    if base is None or not Path(base).is_absolute():
        return base or "unknown"
    return str(Path(base).relative_to(HOME)) if Path(base).is_relative_to(HOME) else Path(base).name


def stated_licence(source: Source) -> str | None:
    """The licence that the base model's own card states, in its folder or in the hub's cache; None if there is none."""
    base = source.setting("actor_rollout_ref", "model", "path")
    card: Any = HOME / Path(base).expanduser() / "README.md" if base else None
    if card and not card.is_file():
        card = try_to_load_from_cache(base, "README.md") if _on_hub(base) else None
    try:
        licence = ModelCard.load(card, ignore_metadata_errors=True).data.license if card else None
    except (OSError, ValueError):
        return None
    return licence if isinstance(licence, str) else None


def _on_hub(base: str | None) -> bool:
    """Return whether a model has a hub name and is not a folder of the repository, as when it was launched."""
    return bool(base and HUB_ID.fullmatch(base)) and not (HOME / base.split("/")[0]).is_dir()


def _results(source: Source, found: Figures | None) -> list[EvalResult]:
    """The figures of the exported model itself, on tasks on which it was not trained."""
    if found is None or found.at[1] != source.step or found.leak or not source.run.training_rows.is_file():
        return []
    whole = [row for row in found.after.values() if row.prefix == WHOLE]
    every = categories_to_average(row.name for row in whole if not row.is_average)
    own = {row.name: every if row.is_average else (row.name,) for row in whole}
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=LEADERBOARD if tasks_in_words(own[row.name]) == BFCL else found.played,
            dataset_name=f"{tasks_in_words(own[row.name])}, {row.name}",
            dataset_config=row.name,
            metric_type="pass_rate",
            metric_value=round(100 * row.rate.rate, 2),
            metric_args={"interval": [round(100 * row.rate.low, 2), round(100 * row.rate.high, 2)], "tasks": row.tasks},
        )
        for row in whole
        if row.rate is not None
    ]
