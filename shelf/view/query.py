"""The pages' queries of the index: lists of trajectories, groups, and counts of labels."""

import sqlite3
from collections import Counter
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field

from seal.records.source import UNSCORED
from shelf.statistics.log import MET
from shelf.view.index import TRAIN, VALIDATION

Log = Literal["train", "validation"]
By = Literal["step", "category", "tool", "turn"]

PAGE = 500
"""The most rows in one answer."""

_COLUMNS = (
    "line", "log", "step", "task", "source", "category", "split", "sample", "score", "passed", "w", "advantage",
    "stop", "excluded", "infra", "omega", "turns", "turns_passed", "calls", "errors", "tokens", "seconds", "labels",
    "blames", "prompt",
)  # fmt: skip
_ORDERS = {
    "new": "t.step DESC, t.line",
    "old": "t.step, t.line",
    "score": "t.score, t.step DESC, t.line",
    "w": "t.w DESC, t.step DESC, t.line",
    "advantage": "abs(t.advantage) DESC, t.step DESC, t.line",
    "tokens": "t.tokens DESC, t.step DESC, t.line",
    "errors": "t.errors DESC, t.step DESC, t.line",
}
_OUTCOMES = {
    "passed": "t.passed AND t.infra IS NULL",
    "failed": f"NOT t.passed AND t.infra IS NULL AND t.category NOT LIKE '{UNSCORED}/%'",
    "infra": "t.infra IS NOT NULL",
    "excluded": "t.excluded",
}


class Filters(BaseModel):
    """The filters in the address of a page; an empty field filters nothing.

    turn counts from 0. from_step and to_step are included. text: see `search`.
    """

    model_config = ConfigDict(extra="ignore")

    log: Log = TRAIN
    step: int | None = None
    from_step: int | None = None
    to_step: int | None = None
    category: str = ""
    source: str = ""
    task: str = ""
    label: str = ""
    blame: Literal["", "own", "inherited"] = ""
    tool: str = ""
    turn: int | None = Field(default=None, ge=0)
    outcome: Literal["", "passed", "failed", "infra", "excluded"] = ""
    stop: str = ""
    omega: int | None = None
    text: str = Field(default="", max_length=400)
    order: Literal["new", "old", "score", "w", "advantage", "tokens", "errors"] = "new"

    def spans(self, step: int) -> bool:
        """Return whether from_step and to_step include a step."""
        low, high = self.from_step, self.to_step
        return (low is None or step >= low) and (high is None or step <= high)


class Where(NamedTuple):
    """An SQL condition on trajectories `t`, and its values."""

    text: str
    values: tuple[Any, ...]


def where(filters: Filters) -> Where:
    """The condition of the filters, without `text`."""
    wanted: dict[str, Any] = {"t.log = ?": filters.log}
    for column in ("step", "category", "source", "stop", "omega"):
        wanted[f"t.{column} = ?"] = getattr(filters, column)
    wanted |= {"t.step >= ?": filters.from_step, "t.step <= ?": filters.to_step, "instr(t.task, ?) > 0": filters.task}
    given = {condition: value for condition, value in wanted.items() if value not in (None, "")}
    parts, values = list(given), list(given.values())
    if filters.outcome:
        parts.append(_OUTCOMES[filters.outcome])
    if (turn := _of_turns(filters)).text:
        parts.append(f"t.id IN (SELECT u.trajectory FROM turn u WHERE u.log = ? AND {turn.text})")
        values += [filters.log, *turn.values]
    return Where(" AND ".join(parts), tuple(values))


def _of_turns(filters: Filters) -> Where:
    """The condition on turns `u`: a single turn must meet all filters on turns; empty text without such filters."""
    in_turn = "EXISTS (SELECT 1 FROM tool x WHERE x.trajectory = u.trajectory AND x.turn = u.turn AND x.name = ?)"
    wanted = {"u.label = ?": filters.label, "u.blame = ?": filters.blame, "u.turn = ?": filters.turn}
    wanted[in_turn] = filters.tool
    given = {condition: value for condition, value in wanted.items() if value not in (None, "")}
    return Where(" AND ".join(given), tuple(given.values()))


def trajectories(
    db: sqlite3.Connection, filters: Filters, offset: int, limit: int, among: frozenset[int] | None = None
) -> dict[str, Any]:
    """`limit` rows of the list from `offset`, and the total. among: the ids that a text search found."""
    condition = where(filters)
    order = _ORDERS[filters.order]
    if among is not None:
        ids = orjson.dumps(sorted(among)).decode()
        condition = Where(f"{condition.text} AND t.id IN (SELECT value FROM json_each(?))", (*condition.values, ids))
    total = db.execute(f"SELECT count(*) FROM trajectory t WHERE {condition.text}", condition.values).fetchone()[0]
    rows = db.execute(
        f"SELECT {', '.join(f't.{name}' for name in _COLUMNS)} FROM trajectory t WHERE {condition.text} "
        f"ORDER BY {order} LIMIT ? OFFSET ?",
        (*condition.values, limit, offset),
    )
    return {"total": total, "offset": offset, "rows": [_row(row) for row in rows]}


def _row(row: sqlite3.Row) -> dict[str, Any]:
    value = dict(row)
    value["labels"], value["blames"] = orjson.loads(value["labels"]), orjson.loads(value["blames"])
    value["key"] = key_of(value.pop("log"), value["step"], value["line"])
    return value


def key_of(log: str, step: int, line: int) -> str:
    """The name of a trajectory in addresses: its log, step and line."""
    return f"{log}:{step}:{line}"


def parse_key(key: str) -> tuple[str, int, int]:
    """Log, step and line of a key; ValueError with one sentence for another text."""
    log, _, rest = key.partition(":")
    step, _, line = rest.partition(":")
    if log not in (TRAIN, VALIDATION) or not (step.isdecimal() and line.isdecimal() and len(rest) < 24):
        raise ValueError(f"{key!r} names no trajectory: write train:STEP:LINE or validation:STEP:LINE.")
    return log, int(step), int(line)


def group(
    db: sqlite3.Connection, log: str, step: int, source: str, task: str, prompt: int | None
) -> list[dict[str, Any]]:
    """The rollouts of a prompt at a step, by sample. prompt: its number; None for all prompts with the task."""
    rows = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM trajectory WHERE log = ? AND step = ? AND task = ? AND source = ? "
        "AND prompt = coalesce(?, prompt) ORDER BY sample, line",
        (log, step, task, source, prompt),
    )
    return [_row(row) for row in rows]


_COUNTS = f"CASE WHEN g.infra IS NULL AND NOT g.excluded AND g.category NOT LIKE '{UNSCORED}/%' THEN"


def groups(
    db: sqlite3.Connection, filters: Filters, offset: int, limit: int, spread: bool, order: str = "step DESC, task"
) -> dict[str, Any]:
    """The groups with a trajectory that passes the filters. spread: only those with unequal rewards, some advantage.

    counted: the rollouts with a reward that counts, of which `passed` passed and `mean` is the mean reward.
    """
    condition = where(filters)
    signal = f" HAVING count(DISTINCT {_COUNTS} g.score END) > 1 AND coalesce(max(abs(g.advantage)) > 0, 1)"
    inner = (
        f"SELECT g.step, g.source, g.task, g.prompt, count(*) AS size, count({_COUNTS} 1 END) AS counted, "
        f"count({_COUNTS} nullif(g.passed, 0) END) AS passed, avg({_COUNTS} g.score END) AS mean, "
        "sum(g.infra IS NOT NULL) AS infra, max(g.turns) AS turns, count(DISTINCT g.labels) AS kinds, "
        "group_concat(g.labels, char(10)) AS labels "
        "FROM trajectory g WHERE g.log = ? AND (g.step, g.source, g.task, g.prompt) IN "
        f"(SELECT t.step, t.source, t.task, t.prompt FROM trajectory t WHERE {condition.text}) "
        "GROUP BY 1, 2, 3, 4" + (signal if spread else "")
    )
    values = (filters.log, *condition.values)
    total = db.execute(f"SELECT count(*) FROM ({inner})", values).fetchone()[0]
    rows = db.execute(f"SELECT * FROM ({inner}) ORDER BY {order}, prompt LIMIT ? OFFSET ?", (*values, limit, offset))
    return {"total": total, "offset": offset, "rows": [dict(row) | {"labels": _decided(row["labels"])} for row in rows]}


def _decided(labels: str) -> list[tuple[str, int]]:
    """Rollouts by the label of their first turn that missed the verifier, else of their last turn; commonest first."""
    decided: Counter[str] = Counter()
    for line in labels.split("\n"):
        turns = orjson.loads(line)
        if turns:
            decided[next((label for label in turns if label not in MET), turns[-1])] += 1
    return decided.most_common()


def counts(db: sqlite3.Connection, filters: Filters, by: By) -> list[dict[str, Any]]:
    """Turns by label and by step, category, tool or turn position, among those that pass the filters.

    A turn counts once under each tool that it called or needed.
    """
    condition = where(filters)
    column = {"step": "u.step", "category": "u.category", "turn": "u.turn", "tool": "o.name"}[by]
    join = "JOIN tool o ON o.trajectory = u.trajectory AND o.turn = u.turn" if by == "tool" else ""
    turn = _of_turns(filters)
    rows = db.execute(
        f"SELECT {column} AS at, u.label AS label, count(*) AS count FROM turn u "
        f"JOIN trajectory t ON t.id = u.trajectory {join} WHERE {condition.text} AND {turn.text or 'true'} "
        "GROUP BY 1, 2",
        (*condition.values, *turn.values),
    )
    return [dict(row) for row in rows]


def choices(db: sqlite3.Connection) -> dict[str, list[Any]]:
    """The values that the filters can have."""
    statements = {
        "category": "SELECT DISTINCT category FROM trajectory ORDER BY 1",
        "source": "SELECT DISTINCT source FROM trajectory ORDER BY 1",
        "label": "SELECT label FROM turn GROUP BY 1 ORDER BY count(*) DESC",
        "tool": "SELECT name FROM tool GROUP BY 1 ORDER BY 1",
        "stop": "SELECT DISTINCT stop FROM trajectory ORDER BY 1",
        "train": "SELECT step FROM file WHERE log = 'train' ORDER BY 1",
        "validation": "SELECT step FROM file WHERE log = 'validation' ORDER BY 1",
    }
    return {name: [row[0] for row in db.execute(statement)] for name, statement in statements.items()}


def bad_lines(db: sqlite3.Connection) -> dict[str, Any]:
    """Return the number of trajectory lines that cannot be used, and the first 50 of them."""
    joined = "bad b JOIN file f ON f.id = b.file ORDER BY f.step, b.line LIMIT 50"
    rows = db.execute(f"SELECT f.log, f.name, b.line, b.problem FROM {joined}")
    return {"count": db.execute("SELECT count(*) FROM bad").fetchone()[0], "first": [dict(row) for row in rows]}
