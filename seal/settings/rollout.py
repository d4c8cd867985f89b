"""`seal.rollout`: budgets and deadlines of a trajectory."""

from typing import Literal

from pydantic import PositiveFloat

from seal.settings.base import Count, Settings


class RolloutSettings(Settings):
    """Budgets and deadlines of one trajectory (docs/how-it-works.md).

    A whole trajectory also has `data.max_response_length`, and together with its prompt
    `actor_rollout_ref.rollout.max_model_len`.
    """

    harness: str | tuple[str, ...] | None = None
    """An agent of your own that plays the policy's part: `module:function`, or a command with its arguments; `null` for
    SEAL's own loop (docs/harness.md)."""
    harness_failure: Literal["lost", "failed"] = "lost"
    """What a rollout is if the agent exits, raises or leaves before the end: `lost` to infrastructure and played again,
    or `failed`, the policy's failure once it has spoken."""
    harness_env: tuple[str, ...] = ()
    """Names of environment variables that a command inherits beside PATH, HOME and the like."""
    trained: Literal["all", "main"] = "all"
    """Which of an agent's dialogues with the policy are trained: `all`, or the `main` one, with the most
    calls and answers that reached the episode."""
    max_steps: Count = 20
    """Assistant messages of a training trajectory (paper, Table 4); validation follows the benchmark's limit."""
    max_message_tokens: Count = 1024
    """Tokens of one assistant message in training."""
    validation_message_tokens: Count = 4096
    """Tokens of one assistant message in validation, or what the context leaves: the official runner's limit."""
    deadline_s: PositiveFloat = 900
    """Seconds for a whole trajectory."""
    generation_timeout_s: PositiveFloat = 600
    """Seconds for one message of the rollout engine, from the request to the last token."""
    attempts: Count = 2
    """Number of times a trajectory is started before an infrastructure failure counts as its result."""
    concurrency: Count = 128
    """Trajectories that one agent-loop worker plays at a time; more of them wait."""
