"""The conformance suite: every check of an environment, each with what it saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from env_service.environments.registry import get_environment, locations
from shelf.authoring.checks import (
    CHECKS,
    EPISODES_PER_SECOND,
    NEED_DETERMINISM,
    Nonconforming,
    Subject,
)
from shelf.authoring.runs import sample

SAMPLE = 12
"""Tasks that are played by default."""


Outcome = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: what held, or the first thing that did not. seconds: wall time."""

    check: str
    outcome: Outcome
    detail: str
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """True if the check was made and every requirement was met."""
        return self.outcome == "pass"


def conformance(name: str, tasks: int = SAMPLE, floor: float = EPISODES_PER_SECOND) -> Iterator[Finding]:
    """Check an environment on some of its training tasks; ValueError if there is no such environment.

    A failed check does not stop the others, except those that would only repeat that the
    environment is not deterministic. tasks: how many are played. floor: episodes per second of processor time.
    """
    environment = get_environment(name)
    subject = Subject(environment, locations()[name], sample(environment, tasks), floor)
    deterministic = True
    for check in CHECKS:
        if check in NEED_DETERMINISM and not deterministic:
            yield Finding(check, "skipped", "the environment is not deterministic")
            continue
        finding = _found(check, subject)
        deterministic = deterministic and not (check == "determinism" and not finding.passed)
        yield finding


def _found(check: str, subject: Subject) -> Finding:
    began, outcome = time.perf_counter(), "pass"
    try:
        detail = CHECKS[check](subject)
    except Nonconforming as problem:
        outcome, detail = "fail", str(problem)
    except Exception as error:  # a check must judge whatever anybody's code raises
        outcome, detail = "fail", f"{type(error).__name__} is raised: {error}"
    return Finding(check, outcome, detail, time.perf_counter() - began)
