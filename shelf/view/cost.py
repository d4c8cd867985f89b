"""The cost of a run's training: rollouts, tokens in and out, wall time and device hours."""

import math
from collections.abc import Iterator
from itertools import pairwise

from seal.records.folder import FIRST, READY, RunFolder
from seal.records.step import read_steps
from seal.system.jsonl import Line, read_jsonl
from shelf.statistics.log import begun

_SECONDS = 3600.0


def training_cost(run: RunFolder, last: int) -> list[tuple[str, str]]:
    """Return the cost of the training up to and including the step `last`, as names and texts.

    Updates included, validations and saving left out. Tokens in are those of the prompts of all requests, as an
    endpoint counts them; device hours are the wall time of each device, added up, if there are several. A figure
    that one of the steps lacks is left out.
    """
    steps = [step for step in read_steps(run.steps)[0] if step.step <= last] if run.steps.is_file() else []
    launches = list(_launches(run))
    seconds = [step.total_seconds or None for step in steps]
    devices = [next((count for after, count, _ in launches[::-1] if after < step.step), None) for step in steps]
    hours = [None if None in pair else pair[0] * pair[1] / _SECONDS for pair in zip(seconds, devices, strict=True)]
    hours = hours if any(count != 1 for count in devices) else []
    columns = (
        ("rollouts", [step.trajectories for step in steps], "{:,}".format),
        ("tokens in", [step.tokens.get("in") for step in steps], "{:,}".format),
        ("tokens out", [step.tokens.get("out") for step in steps], "{:,}".format),
        ("wall time", seconds, _duration),
        (f"{launches[-1][2] if launches else 'device'} hours", hours, "{:.3g}".format),
    )
    return [(name, text(sum(values))) for name, values, text in columns if None not in values and sum(values)]


def _launches(run: RunFolder) -> Iterator[tuple[int, int, str]]:
    """The step after which each launch went on, its number of devices and their kind; none for a folder without."""
    lines = read_jsonl(run.launches) if run.launches.is_file() else ()
    for value in (line.value for line in lines if isinstance(line, Line)):
        trainer = value.get("config", {}).get("trainer", {})
        counts = trainer.get("n_gpus_per_node"), trainer.get("nnodes")
        if all(isinstance(count, int) for count in counts):
            yield int(value.get("step", 0)), counts[0] * counts[1], str(trainer.get("device") or "device")


def start_seconds(run: RunFolder) -> tuple[float, float] | None:
    """The seconds that a run's starts took, and its launches from command to last stage; None without any."""
    lines = [line.value for line in read_jsonl(run.start) if isinstance(line, Line)] if run.start.is_file() else []
    commands, ready = ([line["time"] for line in lines if line["stage"] == name] for name in (FIRST, READY))
    starts, whole = 0.0, 0.0
    for command, following in pairwise([*commands, math.inf]):
        ended = [time for time in ready if command < time < following]
        stages = [line["time"] for line in begun(run) if command < line["time"] < following]
        if ended and stages:
            starts, whole = starts + ended[0] - command, whole + stages[-1] - command
    return (starts, whole) if whole else None


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
