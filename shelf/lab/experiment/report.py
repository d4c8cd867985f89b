"""The report of an experiment: its registration, effects, levels, and what is doubtful about the data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from seal.method.diagnosis.categories import environment_of
from seal.system.files import text_sha256, write_json, write_text
from shelf.lab.experiment.crossed import CrossedMean
from shelf.lab.experiment.effects import Curve, Effect, Missing, Runs, by_arm, curves, family, levels
from shelf.lab.experiment.matrix import Cell, Experiment, Registration
from shelf.lab.experiment.picture import draw
from shelf.lab.experiment.records import RunResult
from shelf.statistics.tables import p_value, percent

ABOUT_EFFECTS = (
    "Differences in percentage points, paired by seed and task; intervals and p-values count seeds and scenarios as "
    "samples. p Holm corrects for the number of comparisons: primary, secondary and unregistered outcomes apart. "
    "Detectable: the difference that this comparison finds with a probability of 80 % after the correction."
)


class Section(NamedTuple):
    """A heading with sentences, then a table (rows below columns; the first column is text), then notes."""

    title: str
    text: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """All that the finished runs show. area: the area under the primary outcome's curve, by comparison."""

    experiment: Experiment
    registration: Registration | None
    results: tuple[RunResult, ...]
    runs: Runs
    primary: tuple[Effect, ...]
    secondary: tuple[Effect, ...]
    area: tuple[Effect, ...]
    missing: tuple[Missing, ...]
    levels: Mapping[str, CrossedMean]
    curves: tuple[Curve, ...]


def analyse(experiment: Experiment) -> Analysis:
    """Judge the finished runs. ValueError if there are none."""
    design = experiment.design
    results = tuple(result for _cell, result in experiment.finished())
    if not results:
        raise ValueError(f"no run of {design.name} has finished: seal experiment run {quote(str(experiment.source))}")
    runs = by_arm(design, results)
    primary, missing = family(design.contrasts, design.primaries, runs)
    secondary, more = family(design.contrasts, design.secondary, runs)
    under = design.primary.model_copy(update={"area": True})
    area = () if under in design.outcomes else family(design.contrasts, [under], runs)[0]
    return Analysis(
        experiment=experiment,
        registration=Registration.read(experiment.folder),
        results=results,
        runs=runs,
        primary=primary,
        secondary=secondary,
        area=area,
        missing=(*missing, *more),
        levels=levels(design.primary, runs),
        curves=curves(design.primary, runs),
    )


def write_report(analysis: Analysis, page: Path | None = None) -> tuple[Path, Path]:
    """Write the page and, beside it, the picture and the figures (JSON); returns the paths of page and picture.

    If the figures have not changed, the old picture stays: another machine's fonts would change its bytes.
    """
    page = page or analysis.experiment.folder / "report.md"
    figures, picture = page.with_suffix(".json"), page.with_suffix(".png")
    before = figures.read_bytes() if figures.is_file() else b""
    write_json(_figures(analysis), figures)
    design = analysis.experiment.design
    drawn = [effect for effect in analysis.primary if effect.outcome == design.primary]
    if figures.read_bytes() != before or not picture.is_file():
        draw(design, drawn, analysis.area, analysis.curves, picture)
    write_text(markdown(design.name, sections(analysis), picture.name), page)
    return page, picture


def sections(analysis: Analysis) -> list[Section]:
    """The report, section by section."""
    design = analysis.experiment.design
    parts = [_registration(analysis), *_doubts(analysis)]
    for outcome in design.primaries:
        chosen = [effect for effect in analysis.primary if effect.outcome == outcome]
        parts.append(_effects(f"Primary outcome: {outcome.title}", chosen, explain=outcome == design.primary))
    for outcome in design.secondary:
        chosen = [effect for effect in analysis.secondary if effect.outcome == outcome]
        parts.append(_effects(f"Secondary outcome: {outcome.title}", chosen))
    if analysis.area:
        title = f"Not registered as an outcome: {analysis.area[0].outcome.title}"
        parts.append(_effects(title, analysis.area))
    parts.append(_arms(analysis))
    return parts


def _figures(analysis: Analysis) -> dict[str, Any]:
    """The effects for programs."""
    kinds = {"primary": analysis.primary, "secondary": analysis.secondary, "area": analysis.area}
    return {
        "format": 2,
        "experiment": analysis.experiment.design.name,
        "registered": analysis.registration.sha256 if analysis.registration else None,
        "finished": len(analysis.results),
        "planned": len(analysis.experiment.cells),
        "effects": [{"family": name} | _flat(effect) for name, effects in kinds.items() for effect in effects],
    }


def _flat(effect: Effect) -> dict[str, Any]:
    outcome = effect.outcome.model_dump(exclude=None if effect.outcome.tasks else {"tasks"})
    found = asdict(effect) | {"outcome": outcome} | effect.contrast.model_dump()
    del found["contrast"]
    return found | {"arm_mean": effect.arm, "against_mean": effect.against}


def _registration(analysis: Analysis) -> Section:
    design, registered = analysis.experiment.design, analysis.registration
    asked = registered.design if registered else design
    text = [
        f"Question: {' '.join(asked.question.split())}",
        f"Primary outcome: {'; '.join(each.title for each in asked.primaries)}. Control: {asked.control}.",
        f"Stopping rule: {' '.join(asked.stopping.split())}",
    ]
    if registered:
        text.append(f"Registered {registered.time}, before the first run; sha256 of the file {registered.sha256}.")
        changes = registered.changes(analysis.experiment.text)
        if changes:
            now = text_sha256(analysis.experiment.text)
            text.append(f"THE FILE HAS CHANGED since the first run started (now {now[:12]}): {'; '.join(changes)}.")
    done, planned = len(analysis.results), len(analysis.experiment.cells)
    interim = "" if done == planned else ": an INTERIM look, and the stopping rule is not met"
    text.append(f"{done} of {planned} runs have finished{interim}.")
    return Section("Registration", tuple(text))


def _effects(title: str, effects: Sequence[Effect], explain: bool = False) -> Section:
    rows = tuple(
        (
            f"{effect.contrast.arm} - {effect.contrast.against}",
            str(len(effect.seeds)),
            str(effect.difference.scenarios),
            percent(effect.arm),
            percent(effect.against),
            _interval(effect.difference, lambda value: f"{100 * value:+.1f}"),
            p_value(effect.difference.p),
            p_value(effect.p_holm),
            percent(effect.detectable),
        )
        for effect in effects
    )
    shares = "arm %", "against %", "difference [95%]"
    columns = ("comparison", "seeds", "scenarios", *shares, "p", "p Holm", "detectable")
    left_out = max((effect.left_out for effect in effects), default=0)
    notes = [ABOUT_EFFECTS] if explain and rows else [] if rows else ["No comparison can be made yet."]
    notes += [f"Up to {left_out} tasks are left out because a run lacks them."] if left_out else []
    if any(len(effect.seeds) == 1 for effect in effects):
        notes.append("With one seed an interval covers the choice of tasks only.")
    return Section(title, columns=columns, rows=rows, notes=tuple(notes))


def _arms(analysis: Analysis) -> Section:
    design = analysis.experiment.design
    rows = []
    for arm in design.arms:
        runs = list(analysis.runs[arm].values())
        mean = _interval(analysis.levels[arm], percent) if arm in analysis.levels else "-"
        steps = [step for run in runs for step in run.steps]
        rewards = [step.reward for run in runs for step in run.steps[-max(1, len(run.steps) // 4) :]]
        rows.append(
            (
                arm,
                f"{len(runs)} of {len(design.seeds_of(arm))}",
                mean,
                _mean([step.w for step in steps]),
                _mean(rewards),
                _mean([step.seconds for step in steps], 1),
                "/".join(map(str, sorted({len(run.steps) for run in runs}))) or "-",
                design.arms[arm].about or "; ".join(design.arms[arm].overrides) or "the recipe",
            )
        )
    score = f"{design.primary.set} % [95%]"
    columns = ("arm", "runs", score, "mean w", "last reward", "s per step", "steps", "what it is")
    note = "Last reward: mean training reward of the last quarter of the steps, under the arm's own interface."
    return Section("Arms", columns=columns, rows=tuple(rows), notes=(note,))


def _doubts(analysis: Analysis) -> list[Section]:
    """Notes on the data that a reader should see before the figures."""
    results = analysis.results
    environments = {environment_of(each.source) for result in results for each in result.validations}
    notes = [f"NOT HELD OUT in {Cell(each.arm, each.seed)}: {each.leak}" for each in results if each.leak][:1]
    for values, what in (
        ([tuple(each.commit.removesuffix("+").split()) for each in results], "commits of the code"),
        ([(each.inputs,) for each in results], "models or validation tasks"),
        ([each.prompt_modes for each in results], "prompt modes"),
        ([each.data_hashes for each in results], "versions of the benchmark's data"),
    ):
        kinds = sorted({kind for value in values for kind in value if kind})
        if len(set(filter(any, values))) > 1 or len(kinds) > max(1, len(environments)):  # each has one of its own
            notes.append(f"The runs used {len(kinds)} {what}: {', '.join(kind[:12] for kind in kinds)}.")
    if changed := [str(Cell(each.arm, each.seed)) for each in results if each.commit.endswith("+")]:
        notes.append(
            f"Files differed from the commit in {', '.join(changed)} (see launcher_record/NAME/TIME/diff.patch)."
        )
    if lost := sum(each.infra for result in results for each in result.validations):
        notes.append(f"{lost} validation rollouts failed for reasons other than the policy and are in no score.")
    bad = sum(each.bad_lines for each in results)
    notes += [f"{bad} lines of the logs could not be read."] if bad else []
    again = [str(Cell(each.arm, each.seed)) for each in results if each.launches > 1]
    notes += [f"Runs that were interrupted and resumed: {', '.join(again)}."] if again else []
    notes += _missing(analysis)
    return [Section("About the data", notes=tuple(notes))] if notes else []


def _missing(analysis: Analysis) -> list[str]:
    """One sentence for each comparison that cannot be made, with the outcomes concerned."""
    outcomes: dict[tuple[str, str], list[str]] = {}
    for each in analysis.missing:
        name = f"{each.contrast.arm} - {each.contrast.against}"
        outcomes.setdefault((name, each.reason), []).append(each.outcome.title)
    every = len(analysis.experiment.design.outcomes)
    return [
        f"{name}: {reason}." if len(titles) >= every else f"{name}, {'; '.join(titles)}: {reason}."
        for (name, reason), titles in outcomes.items()
    ]


def _interval(mean: CrossedMean, form: Callable[[float], str]) -> str:
    return f"{form(mean.value)} [{form(mean.low)}, {form(mean.high)}]"


def _mean(values: Sequence[float | None], digits: int = 2) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.{digits}f}" if known else "-"


def markdown(title: str, sections: Sequence[Section], picture: str | None = None) -> str:
    """The sections as a page; picture: a path from the page to an image."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        lines += [line for sentence in section.text for line in (_escaped(sentence), "")]
        if section.rows:
            lines += [_row(section.columns), _row(["---", *["---:"] * (len(section.columns) - 1)])]
            lines += [*map(_row, section.rows), ""]
        lines += [f"- {_escaped(note)}" for note in section.notes] + ([""] if section.notes else [])
    if picture:
        lines += [f"![{title}]({picture})", ""]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
