"""The conformance suite: every check of an environment, each with what it saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from env_service.environments.kit.checks import CHECKS, Nonconforming, Subject
from env_service.environments.kit.runs import sample
from env_service.environments.registry import get_environment, locations

SAMPLE = 12
"""Tasks that are played by default."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: what held, or the first thing that did not. seconds: wall time."""

    check: str
    passed: bool
    detail: str
    seconds: float


def conformance(name: str, tasks: int = SAMPLE) -> Iterator[Finding]:
    """Check an environment on so many of its training tasks; ValueError if there is no such environment.

    Every check is made, also after one that does not pass.
    """
    environment = get_environment(name)
    subject = Subject(environment, locations()[name], sample(environment, tasks))
    for check, test in CHECKS.items():
        began = time.perf_counter()
        try:
            passed, detail = True, test(subject)
        except Nonconforming as problem:
            passed, detail = False, str(problem)
        except Exception as error:  # a check must judge whatever anybody's code raises
            passed, detail = False, f"{type(error).__name__} is raised: {error}"
        yield Finding(check, passed, detail, time.perf_counter() - began)
