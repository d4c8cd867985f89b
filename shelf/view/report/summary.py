"""The report of a run: tables for the terminal, and the output files."""

import math
import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from shlex import quote

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seal.system.jsonl import BadLine
from seal.training.checkpoints import last_step
from shelf.statistics.comparison import Side, compare
from shelf.statistics.launches import logged_changes
from shelf.statistics.log import Log
from shelf.statistics.runs import missing_sentences, name_mixtures, not_held_out, provenance
from shelf.statistics.summary import Summary, informative, tasks_in_words
from shelf.statistics.summary import summarise as summarise_log
from shelf.statistics.tables import percent, table, with_difference, with_interval
from shelf.view.examples import learnt_example
from shelf.view.headline import headline
from shelf.view.lifts import lift, withdrawal_log
from shelf.view.report.picture import draw
from shelf.view.report.run import Change, Quarters, Run, cue_of, practice, ranges, read_run, teaching, training_cost


def summarise(run_dir: Path | str) -> tuple[RenderableType, ...]:
    """Return the report of a run as rich renderables; draw ``report.png`` into its folder.

    ValueError for a folder that holds no run.
    """
    run = read_run(run_dir)
    first = headline(run.folder, run.steps, run.validation.lines if run.validation else ())
    rows = summarise_log(run.validation) if run.validation else ()
    # If no whole task passes, the turns say more.
    turns = not any(row.passed for row in rows) and any(row.turns_passed for row in rows)
    draw(run, rows, turns, first, run.folder.picture)
    example = learnt_example(run.validation) if run.validation else None
    withdrawal = withdrawal_log(run.folder)
    return (
        Text(f"{first}\n", style="bold"),
        *_validation(run, rows, turns),
        *_training(run, withdrawal),
        *([example] if example else []),
        *_bad_lines(run.bad, run.validation.bad if run.validation else (), run.rollouts.bad, withdrawal.bad),
        _output_files(run),
    )


def _validation(run: Run, rows: Sequence[Summary], turns: bool) -> list[RenderableType]:
    if not run.validation:
        return [Text("No validation yet: before and after cannot be compared.")]
    first = [row for row in rows if row.step == run.validation.steps[0]]
    parts = [_before_after(run.validation, rows, turns), Text(_validation_notes(run.validation, first), style="dim")]
    return [*parts, *(Text(problem, style="bold red") for problem in _validation_problems(run, run.validation))]


def _before_after(log: Log, rows: Sequence[Summary], turns: bool) -> Table:
    """Pass rates of tasks, or of turns, by category at the first and the last validation, with the paired change."""
    first, last = log.steps[0], log.steps[-1]
    rate = attrgetter("turn_rate" if turns else "rate")
    change = attrgetter("turn_rate" if turns else "pass_rate")
    name = tasks_in_words(line.category for line in log.lines)
    title = f"{name[0].upper()}{name[1:]}: % of {'turns' if turns else 'tasks'} passed without cues, at step {first}"
    before = informative([row for row in rows if row.step == first])
    columns = {"category": [row.name for row in before], "passed": [with_interval(rate(row)) for row in before]}
    if first != last:
        title += f" and step {last}"
        after = {row.name: with_interval(rate(row)) for row in rows if row.step == last}
        changes, sides = {}, (Side("before", (log.at(first),)), Side("after", (log.at(last),)))
        with suppress(ValueError):  # the sides may have no task in common
            changes = {row.name: with_difference(change(row)) for row in compare(*sides)}
        columns["before"] = columns.pop("passed")
        columns["after"] = [after.get(row.name, "-") for row in before]
        columns["change"] = [changes.get(row.name, "-") for row in before]
    made = table(title, list(columns))
    for row, following, *cells in zip(before, [*before[1:], None], *columns.values(), strict=True):
        ends = following is not None and following.prefix != row.prefix
        made.add_row(*cells, style="bold" if row.is_average else None, end_section=ends)
    return made


def _validation_notes(log: Log, first: Sequence[Summary]) -> str:
    notes = ["95% intervals", *(["change in points, paired by task"] if len(log.steps) > 1 else [])]
    if any(row.prefix > 0 for row in first):
        notes.append("NAME@k: only the first k user turns of each task")
    samples = max((row.samples for row in first), default=1)
    notes += [f"{samples} samples per task"] if samples > 1 else []
    origin = provenance([log])
    notes += [f"prompt mode {', '.join(origin['prompt_mode'])}"] if origin["prompt_mode"] else []
    notes += [f"data {', '.join(digest[:12] for digest in origin['data_hash'])}"] if origin["data_hash"] else []
    return "; ".join(notes) + ".\n"


def _validation_problems(run: Run, log: Log) -> list[str]:
    leak = not_held_out(run.folder.path, log.lines)
    problems = [*([leak] if leak else []), *name_mixtures([log]), *missing_sentences({"": log})]
    failed = sum(line.infra is not None for line in log.lines)
    if failed:
        problems.append(f"{failed} rollouts did not run to their end for reasons other than the policy: not counted.")
    return problems


def _training(run: Run, withdrawal: Log) -> list[RenderableType]:
    if (quarters := Quarters.split(run.steps)) is None:
        return [Text(f"{len(run.steps)} training steps logged: first and last cannot be compared.")]
    tables = [_figure_table(run, quarters), _label_table(run, quarters), *_cues(run), *_teaching(run)]
    notes = [_lift_sentence(withdrawal)] if withdrawal.lines else []
    if run.seal_share is not None:
        seconds = statistics.fmean(step.total_seconds for step in run.steps)
        notes.append(f"SEAL itself took {percent(run.seal_share, 2)} % of the {seconds:.1f} s of a step")
    agreement = [step.logp_diff_max for step in run.steps if step.logp_diff_max is not None]
    notes += [f"rollout and actor log-probs differ by at most {max(agreement):.1e}"] if agreement else []
    cells = training_cost(run.folder, run.steps[-1].step)
    notes += [f"the training took {', '.join(f'{text} {name}' for name, text in cells)}"] if len(cells) > 2 else []
    infra = sum(sum(step.infra.values()) for step in run.steps)
    notes += [f"{infra} trajectories failed for reasons other than the policy"] if infra else []
    notes += map(str, logged_changes(run.folder, run.steps[-1].step))
    return [*tables, Text("".join(f"{note[0].upper()}{note[1:]}.\n" for note in notes), style="dim")]


def _figure_table(run: Run, quarters: Quarters) -> Table:
    spans = [f"steps {ranges([step.step for step in part])}" for part in quarters]
    made = table("Training", ["what", *spans, "change"])
    if practised := practice(run.rollouts):
        tasks, change = practised
        what = f"reward of the same {tasks} tasks"
        made.add_row(what, f"{change.before:.3f}", f"{change.after:.3f}", str(change), style="bold")
    rewards = quarters.of(lambda step: step.reward_mean)
    means = (str(mean or "-") for mean in rewards)
    made.add_row("mean reward of the steps ± SE", *means, str(Change.between(*rewards) or "-"))
    weights = [[step.w for step in part if step.w] for part in quarters]
    if all(weights):
        first, last = (statistics.fmean(w.mean for w in part) for part in weights)
        made.add_row("mean weight w", f"{first:.2f}", f"{last:.2f}", f"{round(last, 2) - round(first, 2):+.2f}")
        ends = [f"{min(w.min for w in part):.2f} to {max(w.max for w in part):.2f}" for part in weights]
        made.add_row("range of w", *ends, "")
    lifted = quarters.of(lambda step: step.lift.mean if step.lift else None)
    if all(lifted):
        what = "lift of the interface"
        made.add_row(what, *map(str, lifted), str(Change.between(*lifted)))
    first, last = (mean.value for mean in quarters.of(lambda step: step.groups_with_spread))
    made.add_row("groups with signal", f"{first:.1f}", f"{last:.1f}", f"{last - first:+.1f}")
    return made


def _label_table(run: Run, quarters: Quarters) -> Table:
    columns = ["label", "first", "last", "change", "rho first", "rho last"]
    made = table("Labels, % of a step's turns in training, and their utility", columns)
    for label in run.labels:
        first, last = (mean and mean.value for mean in quarters.share(label))
        change = "-" if None in (first, last) else f"{100 * (last - first):+.1f}"
        rho = (step.rho.get(label) for step in (run.steps[0], run.steps[-1]))
        utilities = ("-" if value is None else f"{value:.2f}" for value in rho)
        made.add_row(label, percent(first), percent(last), change, *utilities)
    return made


def _cues(run: Run) -> list[RenderableType]:
    """The cues that were always active, and a table of those that were turned on or off."""
    if not run.cues:
        return [Text("No cue was active at any step.")]
    always = [cue for cue, steps in run.cues.items() if len(steps) == len(run.steps)]
    made = table("Cues that came or went", ["cue", "steps", "came on at"])
    causes = {cue_of(event): event.figures for step in run.steps[::-1] for event in step.events[::-1] if event.on}
    for cue, steps in run.cues.items():
        figures, cause = causes.get(cue, {}), "-"
        if {"prevalence", "mean_reward"} <= set(figures):
            cause = f"prevalence {percent(figures['prevalence'], 0)} %, reward {figures['mean_reward']:.2f}"
        if cue not in always:
            made.add_row(cue, ranges(steps), cause)
    throughout = [Text(f"Active cues at every step: {', '.join(always)}.\n")] if always else []
    return [*([made] if made.row_count else []), *throughout]


def _teaching(run: Run) -> list[RenderableType]:
    """A table of the rollouts that cues taught, and their lift in both halves of the run; empty without a teacher."""
    half, whole = len(run.steps) // 2, teaching(run.steps)
    made = table("What cues taught", ["cue", "shown", "passed", "taught", "lift at first", "at last"])
    for name, row in whole.items():
        halves = (run.steps[:half], run.steps[half:])
        lifts = (teaching(steps).get(name, {"lift": math.nan})["lift"] for steps in halves)
        shown = ("-" if math.isnan(lift) else f"{lift:+.2f}" for lift in lifts)
        made.add_row(name, *(f"{row[key]:.0f}" for key in ("shown", "passed", "taught")), *shown)
    return [made] if whole else []


def _lift_sentence(withdrawal: Log) -> str:
    """A sentence on the lift of the whole interface on the tasks of `seal.data.withdrawal`."""
    if (measured := lift(withdrawal.lines)) is None:
        return "no task was played with and without the interface"
    found = measured.overall
    rates = f"{percent(found.mean_b)} % with the interface and {percent(found.mean_a)} % without"
    return f"other tasks of the training side passed {rates}, {with_difference(found)}"


def _bad_lines(*logs: Sequence[BadLine]) -> list[Text]:
    texts = (f"{len(bad)} bad lines, left out of every figure; the first is {bad[0]}" for bad in logs if bad)
    return [Text(text, style="bold red") for text in texts]


def _output_files(run: Run) -> RenderableType:
    files = Table.grid(padding=(0, 2))
    folder, named = run.folder, quote(os.path.relpath(run.folder.path))
    checkpoint = folder.checkpoints / f"global_step_{last_step(folder.checkpoints)}"
    for name, path in {"picture": folder.picture, "checkpoint": checkpoint}.items():
        shown = os.path.relpath(path) if path.exists() else "none yet"
        files.add_row(Text(name, style="dim"), Text(shown, overflow="fold"))
    for name, command in {"rollouts, cues": "view", "all rates": "stats"}.items():
        files.add_row(Text(name, style="dim"), Text(f"seal {command} {named}", overflow="fold"))
    files.add_row(Text("words", style="dim"), Text("docs/glossary.md"))
    return Group(Text("More", style="bold"), files)
