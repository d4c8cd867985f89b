"""Rollouts of an evaluation under a progress bar, and what is said of them at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from shelf.suites.bar import Bar

if TYPE_CHECKING:
    from seal.records.trajectory import TrajectoryRecord
    from shelf.suites.bfcl.benchmark import Evaluation, Outcome
    from shelf.suites.bfcl.journal import Journal


def play(evaluation: Evaluation, title: str, console: Console) -> Outcome:
    """Run an evaluation under a progress bar."""
    from shelf.suites.bfcl.benchmark import evaluate

    passed = failed = 0
    with Bar(console) as progress:
        bar = progress.add_task(title, total=len(evaluation.rows) * evaluation.samples)

        def on_start(journal: Journal) -> None:
            nonlocal passed
            passed = sum(bool(line["score"]) for line in journal.lines.values())
            progress.update(bar, completed=len(journal.finished()))

        def on_rollout(record: TrajectoryRecord) -> None:
            nonlocal passed, failed
            passed += bool(record.score)
            failed += record.infra is not None
            lost = f", {failed} failed" if failed else ""
            progress.update(bar, advance=1, description=f"{title}: {passed} passed{lost}")

        return evaluate(evaluation, on_start, on_rollout)


def show_outcome(outcome: Outcome, console: Console) -> None:
    """Print how many rollouts were played and kept, their tokens, and how many failed."""
    from seal.records.trajectory import count_tokens
    from seal.records.validation import read_log

    tokens = " and ".join(f"{count:,} {way}" for way, count in count_tokens(read_log(outcome.log).lines).items())
    console.print(
        f"{outcome.played} rollouts played, {outcome.kept} kept from before (tokens: {tokens}); log: {outcome.log}"
    )
    if outcome.failed:
        console.print(
            f"{outcome.failed} rollouts failed for reasons other than the policy and are not counted; the same command "
            "plays them again.",
            style="bold red",
        )
