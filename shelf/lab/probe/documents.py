"""Which tools' documents would help: tasks that no plain rollout passes, played again with a few entries."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from seal.launch.recipe import Recipe
from seal.method.interface.cues import Omega, catalogue
from seal.rollout.siblings import broken_tools
from shelf.lab.probe.rollouts import Job, Played, by_task, plain_rollouts, playing
from shelf.statistics.intervals import paired_difference
from shelf.suites.bar import Bar
from shelf.view.plots import tidy

NOTHING, OWN, OTHER, RANDOM, ALL = "nothing", "own", "other", "random", "all"
ARMS = (NOTHING, OTHER, RANDOM, OWN, ALL)
MEANS = {
    NOTHING: "no entry",
    OTHER: "as many entries of visible tools that broke no schema",
    RANDOM: "as many entries of visible tools, drawn",
    OWN: "the entries of the tools whose schema its own calls broke",
    ALL: "all entries, or as many as the prompt mode has room for",
}
ENTRIES = Omega.of(name for name, cue in catalogue().items() if cue.tells_documents)
MOST = 20
"""The most tools in the table and in the picture."""


class Lost(NamedTuple):
    """A task that no plain rollout passes. broken: by tool, the number of plain rollouts that broke its schema."""

    task: int
    broken: Mapping[str, int]

    def shown(self, arm: str) -> Omega | None:
        """The Omega of an arm. None is the plain prompt: a task without a broken call has it in every arm but `all`."""
        own = tuple(sorted(self.broken))
        if arm == ALL:
            return ENTRIES
        limits = {OWN: (own, 0), OTHER: (own, len(own)), RANDOM: ((), len(own))}
        if arm == NOTHING or not own:
            return None
        tools, others = limits[arm]
        return replace(ENTRIES, tools=tools, others=others)


def lost_tasks(plain: Mapping[int, Sequence[Played]]) -> list[Lost]:
    """The tasks with usable rollouts, none of which passes."""
    lost = []
    for task, played in sorted(plain.items()):
        usable = [each.record for each in played if each.record.usable]
        if usable and not any(record.passed for record in usable):
            lost.append(Lost(task, Counter(name for record in usable for name in broken_tools(record.evidence))))
    return lost


def play_documents(recipe: Recipe, out: Path, bar: Bar) -> dict[str, Any]:
    """Play all arms; return what :func:`report` reads. LaunchError or ValueError for errors that a user can fix."""
    n, tasks = recipe.config.actor_rollout_ref.rollout.n, recipe.rows.train
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with playing(recipe, out, bar) as rollouts:
        plain = by_task(plain_rollouts(recipe, rollouts))
        lost = lost_tasks(plain)
        asked = [(each, arm, each.shown(arm)) for each in lost for arm in ARMS]
        asked = [(each, arm, shown) for each, arm, shown in asked if arm == NOTHING or shown is not None]
        jobs = [Job(each.task, sample, shown, taught=False) for each, _, shown in asked for sample in range(n, 2 * n)]
        rest = iter(rollouts("rollouts with entries", jobs))
    outcomes: dict[int, dict[str, str]] = defaultdict(dict)
    for each, arm, _ in asked:
        outcomes[each.task][arm] = _digits([next(rest) for _ in range(n)])
    broken = {each.task: dict(each.broken) for each in lost}
    rows = []
    for task, played in sorted(plain.items()):
        row = {"task": tasks[task].task_id, "scenario": f"{tasks[task].environment}/{tasks[task].scenario}"}
        rows.append(row | {"plain": _digits(played), "broken": broken.get(task), "arms": outcomes.get(task)})
    return {"started": started, "samples": n, "rows": rows}


def _digits(played: Sequence[Played]) -> str:
    """Per rollout: 1 if it passed, 0 if not, - if infrastructure lost it or a cut excluded it."""
    return "".join("-" if not each.record.usable else str(int(each.record.passed)) for each in played)


def rate(digits: str) -> float | None:
    counted = [digit == "1" for digit in digits if digit != "-"]
    return fmean(counted) if counted else None


def report(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures from the rows of :func:`play_documents`.

    passed: each arm's pass rate over the lost tasks. differences: own less each other arm, with a bootstrap interval
    over scenarios, for all lost tasks and for the diagnosed ones, which have a broken call; for the others, own, other
    and random show no entries. tools: for each tool with a broken call, the number of tasks in which it was broken,
    their mean rates, and `passes`, the tasks that its entry adds: the sum over these tasks of own less nothing.
    """
    lost = {number: row for number, row in enumerate(rows) if row["arms"] is not None}
    rates: dict[str, dict[int, float]] = {arm: {} for arm in ARMS}
    for task, row in lost.items():
        for arm in ARMS:
            if (found := rate(row["arms"].get(arm, row["arms"][NOTHING]))) is not None:
                rates[arm][task] = found
    diagnosed = {task for task, row in lost.items() if row["broken"]}
    scenarios = {task: row["scenario"] for task, row in lost.items()}

    def compared(tasks: set[int]) -> dict[str, dict[str, float]]:
        found = {}
        own = {task: value for task, value in rates[OWN].items() if task in tasks}
        for arm in (each for each in ARMS if each != OWN and own.keys() & rates[each].keys()):
            each = paired_difference(rates[arm], own, scenarios, dict.fromkeys(scenarios, ""))
            found[arm] = {"points": each.difference, "low": each.low, "high": each.high, "tasks": each.pairs}
        return found

    tools = []
    for tool in sorted({name for row in lost.values() for name in row["broken"]}):
        told = [task for task in diagnosed if tool in lost[task]["broken"] and all(task in rates[arm] for arm in ARMS)]
        if told:
            means = {arm: fmean(rates[arm][task] for task in told) for arm in ARMS}
            tools.append(
                {"tool": tool, "tasks": len(told), **means, "passes": len(told) * (means[OWN] - means[NOTHING])}
            )
    outcomes = "".join(row["plain"] + "".join((row["arms"] or {}).values()) for row in rows)
    return {
        "tasks": len(rows),
        "lost": len(lost),
        "diagnosed": len(diagnosed),
        "entries": fmean(len(row["broken"]) for row in lost.values()) if lost else 0.0,
        "rollouts": len(outcomes),
        "without_verdict": outcomes.count("-"),
        "passed": {arm: fmean(each.values()) for arm, each in rates.items() if each},
        "differences": {"lost": compared(set(lost)), "diagnosed": compared(diagnosed)},
        "tools": sorted(tools, key=lambda each: (-each["passes"], each["tool"])),
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The table, 80 columns wide."""
    yield f"{found['lost']} of {found['tasks']} tasks pass in no plain rollout; in {found['diagnosed']} of these, calls"
    yield f"broke their schema. {found['rollouts']} rollouts, {found['without_verdict']} of them without a verdict.\n"
    for arm, passed in found["passed"].items():
        yield f"  {arm:<8}{passed:>6.1%}  {MEANS[arm]}"
    for where, differences in found["differences"].items():
        for arm, each in differences.items():
            points = f"{100 * each['points']:+.1f} [{100 * each['low']:+.1f}, {100 * each['high']:+.1f}]"
            yield f"  own less {arm:<8}{points:>24} points, {each['tasks']} {where} tasks"
    if found["tools"]:
        names = "".join(f"{name:>9}" for name in (NOTHING, OTHER, OWN, ALL, "passes"))
        yield f"\n{'calls broke the schema of':<28}{'tasks':>6}{names}"
    for each in found["tools"][:MOST]:
        rates = "".join(f"{each[arm]:>9.0%}" for arm in (NOTHING, OTHER, OWN, ALL))
        yield f"{each['tool'][:27]:<28}{each['tasks']:>6}{rates}{each['passes']:>+9.1f}"
    if (more := len(found["tools"]) - MOST) > 0:
        yield f"and {more} more in documents.json"


def draw(found: Mapping[str, Any], title: str, path: Path) -> None:
    """Draw, by tool, the pass rates without an entry, with other tools' entries and with its own, as a PNG file."""
    tools = found["tools"][:MOST][::-1]
    figure = Figure(figsize=(8, 1.4 + 0.28 * len(tools)), layout="constrained")
    axes = figure.subplots()
    places = range(len(tools))
    marks = {NOTHING: ("#8A8A8A", "o", "nothing"), OTHER: ("#D55E00", "D", "another tool's entry")}
    marks[OWN] = ("#0072B2", "s", "its own entry")
    axes.hlines(places, [100 * t[NOTHING] for t in tools], [100 * t[OWN] for t in tools], color="#C8D8E8", linewidth=3)
    for arm, (color, mark, name) in marks.items():
        # A ring, because another mark may cover it.
        look = {"facecolors": "none", "s": 90} if arm == NOTHING else {"facecolors": color, "s": 26}
        axes.scatter([100 * t[arm] for t in tools], places, edgecolors=color, marker=mark, label=name, zorder=3, **look)
    axes.set_yticks(places, [f"{t['tool']} ({t['tasks']})" for t in tools])
    axes.set_xlim(-2, 102)
    axes.set_xlabel("passed, %, of the tasks (their number) in which a call broke this tool's schema")
    axes.set_title(title, loc="left")
    axes.legend(loc="lower right", frameon=False)
    tidy(axes)
    figure.savefig(path, dpi=110)
