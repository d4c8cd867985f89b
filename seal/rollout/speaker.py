"""Who speaks to the environment: a policy in an engine or behind an endpoint, or a stored record."""

from typing import Any, NamedTuple

from seal.rollout.dialogue import Dialogue

REFUSAL = "refusal"
"""The stop of an episode whose speaker will not speak: an endpoint's model or filter refused."""

FAILED = "failed"
"""The stop of an episode that its harness gave up as the policy's failure."""


class SpeakerFault(RuntimeError):
    """The speaker could not say its next message; cause: a word for the record's `infra`."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


class Said(NamedTuple):
    """One assistant message; truncated: a length limit cut it."""

    text: str
    truncated: bool = False


class Speaker:
    """The source of messages for `play`.

    name: in messages to the user. limit: the budget (a key of CUTS) that cut the last message, or why there is no
    further one: a budget, REFUSAL or FAILED; "" without one. late: the cause when nothing is said within the deadline.
    """

    name = "the policy"
    limit = ""
    late = "trajectory_deadline"

    async def say(self, dialogue: Dialogue) -> Said | None:
        """The next message, None if there is none; raises SpeakerFault."""
        raise NotImplementedError

    async def ended(self, dialogue: Dialogue) -> None:
        """Called after the last message, before the evaluation; SpeakerFault if the dialogue must not be used."""

    async def close(self, dialogue: Dialogue) -> None:
        """Called last, however the episode ended."""

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        """The fields of the record that the speaker knows."""
        return {}
