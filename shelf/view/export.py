"""One self-contained page: overview, failures, cues and a sample of trajectories.

It is the viewer with its server's answers inside, so it opens from a file, without a network and without SEAL.
"""

import base64
import contextlib
import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from env_service.encoding import encode
from seal import __version__
from seal.system.files import write_text
from shelf.view.app import STATIC
from shelf.view.index import VALIDATION
from shelf.view.query import By, Filters, key_of
from shelf.view.replayer import Replayer
from shelf.view.runs import ViewedRun
from shelf.view.trajectory import trajectory
from shelf.view.viewed import Viewed


def write_page(runs: Sequence[ViewedRun], path: Path, sample: int) -> int:
    """Write the page and return its size in bytes. sample: trajectories over all runs."""
    viewed = [Viewed(each) for each in runs]
    answers: dict[str, Any] = {}
    with contextlib.closing(Replayer()) as replayer:
        for number, run in enumerate(viewed):
            try:
                run.index.update()
            except sqlite3.Error as error:
                what = f"the index {run.index.path} cannot be written ({error})"
                raise OSError(f"{what}: make room for it, or end the program that holds it.") from error
            answers |= _answers(run, len(range(number, sample, len(viewed))), replayer)
    listed = [run.listed() for run in viewed]
    for each in listed:
        each["stage"] = each["stage"] and each["stage"] | {"running": None}  # unknown when the page is read
    answers["api/runs"] = {"runs": listed, "version": __version__}
    text = page(answers)
    write_text(text, path)
    return len(text.encode())


def _answers(viewed: Viewed, sample: int, replayer: Replayer) -> dict[str, Any]:
    """The server's answers about a run, by the address under which the page asks for them."""
    name, curves, filters = viewed.run.name, viewed.overview(), Filters()
    if not curves["step"] and not viewed.trajectories(filters, 0, 1)["total"]:
        filters = Filters(log=VALIDATION)  # an evaluation, or rollouts of other programs
    answers: dict[str, Any] = {
        f"api/overview?run={name}": {"runs": [curves]},
        f"api/validation?run={name}": {"runs": [viewed.validation()]},
        f"api/examples?run={name}": viewed.examples(),
        f"api/omega?run={name}": viewed.omega(),
    }
    for by in get_args(By):
        answers[f"api/failures?by={by}&run={name}"] = viewed.failures(filters, by)
    keys = viewed.ask(_sampled, filters.log, sample)
    for key in keys:
        answers[f"api/trajectory?key={key}&run={name}"] = viewed.ask(trajectory, viewed.run.folder, key)
        answers[f"api/replay?key={key}&run={name}"] = replayer.replay(*viewed.line(key))
    learnt = answers[f"api/examples?run={name}"]["learnt"] or {}
    for shown in (learnt[side] for side in ("before", "after") if learnt):
        answers[f"api/trajectory?key={shown['key']}&run={name}"] = shown
        answers[f"api/replay?key={shown['key']}&run={name}"] = replayer.replay(*viewed.line(shown["key"]))
    total = viewed.trajectories(filters, 0, 1)["total"]
    answers[f"api/sample?run={name}"] = {"keys": keys, "of": total}
    return answers


def _sampled(db: sqlite3.Connection, log: str, count: int) -> list[str]:
    """Keys of a log's trajectories, spread over the steps."""
    every = "SELECT log, step, line FROM trajectory WHERE log = ?"
    return [key_of(*row) for row in db.execute(f"{every} ORDER BY id * 7919 % 104729, id LIMIT ?", (log, count))]


def page(answers: dict[str, Any]) -> str:
    """The page with these answers; nothing in them can close the element that holds them."""
    script, style = ((STATIC / name).read_text(encoding="utf-8") for name in ("app.js", "app.css"))
    icon = base64.b64encode((STATIC / "favicon.svg").read_bytes()).decode()
    data = encode(answers).decode().replace("<", "\\u003c")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>SEAL viewer</title>
<link rel="icon" type="image/svg+xml" href="data:image/svg+xml;base64,{icon}">
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<script type="application/json" id="seal-export">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
