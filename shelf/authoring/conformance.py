"""The conformance suite: every check of an environment, and what each check saw."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from env_service.environments.registry import get_environment, locations
from shelf.authoring.checks import CHECKS, EPISODES_PER_SECOND, NEED_DETERMINISM, NEED_OWN_USERS, Nonconforming, Subject
from shelf.authoring.runs import sample


class Finding(NamedTuple):
    """The outcome of one check: what held, or the first violation."""

    check: str
    outcome: Literal["pass", "fail", "skipped"]
    detail: str

    @property
    def passed(self) -> bool:
        """True if the check ran and every requirement was met."""
        return self.outcome == "pass"


def conformance(name: str, tasks: int = 12, floor: float = EPISODES_PER_SECOND) -> Iterator[Finding]:
    """Check an environment on some of its training tasks; ValueError if there is no such environment.

    A failed check does not stop the others, except those that would only repeat that the
    environment is not deterministic. tasks: how many are played. floor: episodes per second of processor time.
    """
    environment = get_environment(name)
    try:
        played = sample(environment, tasks)
    except (Exception, SystemExit) as error:  # an author's `load` can raise anything
        yield Finding("tasks and splits", "fail", f"the tasks cannot be read: {type(error).__name__}: {error}")
        return
    subject = Subject(environment, locations()[name], played, floor)
    deterministic = True
    for check in CHECKS:
        if check in NEED_DETERMINISM and not deterministic:
            finding = Finding(check, "skipped", "says nothing while determinism fails")
        elif check in NEED_OWN_USERS and not getattr(environment, "own_users", True):
            said = "only a model plays the users: show verdicts on whole dialogues, by a test"
            finding = Finding(check, "skipped", said)
        else:
            finding = _found(check, subject)
        deterministic = deterministic and not (check == "determinism" and not finding.passed)
        yield finding


def _found(check: str, subject: Subject) -> Finding:
    try:
        return Finding(check, "pass", CHECKS[check](subject))
    except Nonconforming as problem:
        return Finding(check, "fail", str(problem))
    except (Exception, SystemExit) as error:  # a check must handle any exception of third-party code
        return Finding(check, "fail", f"{type(error).__name__} is raised: {error}")
