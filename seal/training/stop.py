"""Reasons to end a run before its last step: a request, or too many failures of the infrastructure.

The trainer looks for the request, `RunFolder.stop`, between the stages of a step and while it waits for rollouts.
"""

from collections import Counter
from collections.abc import Sequence

from seal.records.trajectory import FATAL, TrajectoryRecord
from seal.system.causes import Cause


class StopRequested(RuntimeError):
    """The trainer was asked to stop; the message says what is saved."""


class InfrastructureFailure(RuntimeError):
    """Infrastructure lost too many of a step's trajectories, or failed in a way that no retry fixes; cause: of most."""

    def __init__(self, message: str, cause: Cause = "process") -> None:  # Ray's pickle passes only the message
        super().__init__(message)
        self.cause = cause


def check_infrastructure(records: Sequence[TrajectoryRecord], limit: float) -> None:
    """Raise InfrastructureFailure for a cause that no retry fixes, or if more than a share `limit` failed at all."""
    for record in records:
        if record.infra in FATAL:
            raise InfrastructureFailure(f"{record.task_id} cannot be rolled out: {record.infra_message}", record.infra)
    causes = Counter(record.infra for record in records if record.infra)
    lost = sum(causes.values())
    if lost > limit * len(records):
        named = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        commonest = causes.most_common(1)[0][0]
        example = next(record.infra_message for record in records if record.infra == commonest)
        raise InfrastructureFailure(
            f"{lost} of {len(records)} trajectories of this step were lost to infrastructure ({named}), more than "
            f"seal.infra_limit={limit}; the first {commonest}: {example}. Fix that and start again: the run "
            "resumes from its last checkpoint.",
            commonest,
        )
