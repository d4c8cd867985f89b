"""The end-of-run summary: tables for the terminal, and the output files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seal.data.suspected import load_suspected
from seal.evaluation.comparison import Comparison, Side, compare
from seal.evaluation.heldout import not_held_out
from seal.evaluation.summary import Summary, informative, missing_tasks, summarise_step, suspected_tasks
from seal.evaluation.summary import summarise as summarise_log
from seal.evaluation.tables import percent, table, with_difference, with_interval
from seal.report.picture import draw
from seal.report.run import Change, Run, ranges, read_run


def summarise(run_dir: Path | str) -> tuple[RenderableType, ...]:
    """What a run has shown, as rich renderables; draws ``report.png`` into its folder.

    ValueError for a folder that holds no run.
    """
    run = read_run(run_dir)
    rows = summarise_log(run.validation) if run.validation else ()
    draw(run, rows, run.folder.picture)
    return (*_validation(run, rows), *_training(run), _output_files(run))


def before_after_table(
    before: Sequence[Summary], after: Sequence[Summary], changes: Sequence[Comparison], title: str, turns: bool
) -> Table:
    """Pass rates (turns: per-turn rates) by category at two steps, with the paired change."""
    made = table(title, ["category", "before", "after", "change"] if after else ["category", "passed"])
    by_name = {row.name: row for row in after}
    change_of = {row.name: row for row in changes}
    rows = informative(before)
    for position, row in enumerate(rows):
        then, change = by_name.get(row.name), change_of.get(row.name)
        cells = [row.name, with_interval(row.turn_rate if turns else row.rate)]
        if after:
            cells.append(with_interval(then.turn_rate if turns else then.rate) if then else "-")
            cells.append(with_difference(change.turn_rate if turns else change.pass_rate) if change else "-")
        made.add_row(
            *cells,
            style="bold" if row.is_average else None,
            end_section=position + 1 < len(rows) and rows[position + 1].prefix != row.prefix,
        )
    return made


def _validation(run: Run, rows: Sequence[Summary]) -> list[RenderableType]:
    if not run.validation:
        return [Text("No validation yet: before and after cannot be compared.")]
    first, last = run.validation.steps[0], run.validation.steps[-1]
    lines_before, lines_after = run.validation.at(first), run.validation.at(last)
    changes = compare(Side("before", (lines_before,)), Side("after", (lines_after,))) if first != last else ()
    before = [row for row in rows if row.step == first]
    after = [row for row in rows if row.step == last and first != last]
    steps = f"step {first} and step {last}" if after else f"step {first}"
    parts: list[RenderableType] = [
        before_after_table(before, after, changes, f"Plain benchmark, % of {what} passed at {steps}", turns)
        for what, turns in (("tasks", False), ("turns", True))
        if not turns or any(row.turns > row.scored for row in before)
    ]
    parts.append(Text(_validation_notes(run, before), style="dim"))
    for problem in _validation_problems(run):
        parts.append(Text(problem, style="bold red"))
    return parts


def _validation_notes(run: Run, before: Sequence[Summary]) -> str:
    lines = run.validation.lines
    notes = ["95% intervals", *(["change in points, paired by task"] if len(run.validation.steps) > 1 else [])]
    if any(row.prefix > 0 for row in before):
        notes.append("NAME@k: only the first k user turns of each task")
    samples = max((row.samples for row in before), default=1)
    if samples > 1:
        notes.append(f"{samples} samples per task")
    modes = sorted({line.prompt_mode for line in lines if line.prompt_mode})
    hashes = sorted({line.data_hash[:12] for line in lines if line.data_hash})
    notes += [f"prompt mode {', '.join(modes)}"] if modes else []
    notes += [f"data {', '.join(hashes)}"] if hashes else []
    suspected = suspected_tasks(lines, load_suspected())
    if suspected:
        step = run.validation.steps[-1]
        prefixes = {prefix for _task, prefix in suspected}
        rows = summarise_step(run.validation.at(step), suspected)
        averages = [row for row in rows if row.is_average and row.rate and row.prefix in prefixes]
        less = ", ".join(f"{row.name} {percent(row.rate.rate)}" for row in averages)
        notes.append(f"without {len(suspected)} suspected items at step {step}: {less}")
    return "; ".join(notes) + "."


def _validation_problems(run: Run) -> list[str]:
    log = run.validation
    if log is None:
        return []
    problems = [f"{len(log.bad)} bad lines; the first is {log.bad[0]}"] if log.bad else []
    leak = not_held_out(run.folder.path, log.lines)
    problems += [leak] if leak else []
    for step, tasks in missing_tasks(log).items():
        problems.append(f"Validation at step {step} lacks {len(tasks)} tasks; the first is {tasks[0]}.")
    failed = sum(line.infra is not None for line in log.lines)
    if failed:
        problems.append(f"{failed} rollouts did not run to their end for reasons other than the policy: not counted.")
    return problems


def _training(run: Run) -> list[RenderableType]:
    quarters = run.quarters
    if quarters is None:
        return [Text(f"{len(run.steps)} training steps logged: first and last cannot be compared.")]
    spans = [f"steps {ranges([step.step for step in part])}" for part in (quarters.first, quarters.last)]
    made = table("Training", ["what", *spans, "change"])
    first, last = (str(mean or "-") for mean in quarters.rewards)
    made.add_row("mean reward ± standard error", first, last, str(run.reward_change or "-"), style="bold")
    weights = Change.between(*quarters.of(lambda step: step.w and step.w.mean))
    if weights:
        w_first, w_last = ([step.w for step in part if step.w] for part in (quarters.first, quarters.last))
        ranges_of_w = (
            f"({min(w.min for w in part):.2f} to {max(w.max for w in part):.2f})" for part in (w_first, w_last)
        )
        cells = (f"{mean:.2f} {span}" for mean, span in zip((weights.before, weights.after), ranges_of_w, strict=True))
        made.add_row("weight w: mean (range)", *cells, f"{weights.after - weights.before:+.2f}")
    signal = Change.between(*quarters.of(lambda step: step.groups_with_spread))
    made.add_row(
        "groups with signal per step",
        f"{signal.before:.1f}",
        f"{signal.after:.1f}",
        f"{signal.after - signal.before:+.1f}",
    )
    parts: list[RenderableType] = [made, _label_table(run)]
    parts += [_cue_table(run)] if run.cues else [Text("No cue was active at any step.")]
    infra = sum(sum(step.infra.values()) for step in run.steps)
    notes = []
    if run.seal_share is not None:
        total = run.total_seconds
        notes.append(
            f"SEAL itself took {percent(run.seal_share, 2)} % of {total:.0f} s in {len(run.steps)} steps "
            f"({total / len(run.steps):.1f} s per step)"
        )
    agreement = [step.logp_diff_max for step in run.steps if step.logp_diff_max is not None]
    if agreement:
        notes.append(f"rollout and actor log-probs differ by at most {max(agreement):.1e}")
    notes += [f"{infra} trajectories failed for reasons other than the policy"] if infra else []
    parts += [Text("; ".join(notes) + ".", style="dim")] if notes else []
    return parts


def _label_table(run: Run) -> Table:
    quarters = run.quarters
    first, last = quarters.labels if quarters else ({}, {})
    made = table(
        "Labels, % of turns in training, and their utility",
        ["label", "first", "last", "change", "rho first", "rho last"],
    )
    rho_first, rho_last = run.steps[0].rho, run.steps[-1].rho
    for label in run.labels:
        made.add_row(
            label,
            percent(first.get(label, 0.0)),
            percent(last.get(label, 0.0)),
            f"{100 * (last.get(label, 0.0) - first.get(label, 0.0)):+.1f}",
            _figure(rho_first.get(label)),
            _figure(rho_last.get(label)),
        )
    return made


def _cue_table(run: Run) -> Table:
    made = table("Active cues of the interface", ["cue", "steps", "% of steps", "now", "came on at"])
    last = run.steps[-1].cues
    for cue, steps in run.cues.items():
        share, now = percent(len(steps) / len(run.steps), 0), "on" if cue in last else "off"
        made.add_row(cue, ranges(steps), share, now, _cause(run.cause(cue)))
    return made


def _cause(figures: Mapping[str, float]) -> str:
    """The prevalence and mean reward of the weakness that a cue answers."""
    if not {"prevalence", "mean_reward"} <= set(figures):
        return "-"
    return f"{percent(figures['prevalence'], 0)} % of turns, reward {figures['mean_reward']:.2f}"


def _output_files(run: Run) -> RenderableType:
    files = Table.grid(padding=(0, 2))
    folder = run.folder
    paths = {"picture": folder.picture, "steps": folder.steps, "validations": folder.validations}
    for name, path in (paths | {"checkpoint": folder.last_checkpoint}).items():
        shown = os.path.relpath(path) if path is not None and path.exists() else "none yet"
        files.add_row(Text(name, style="dim"), Text(shown, overflow="fold"))
    bad = f"{len(run.bad)} bad lines in {folder.steps.name}; the first is {run.bad[0]}" if run.bad else ""
    return Group(*([Text(bad, style="bold red")] if bad else []), Text("Output files", style="bold"), files)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
