"""Why a rollout was lost or a run ended: the words of errors, of `infra` in logs, and of a run's `ending.json`."""

from typing import Literal

Cause = Literal[
    # The environment service:
    "environment_unreachable",  # nothing answers
    "environment_timeout",
    "environment_server_error",  # 5xx
    "environment_busy",  # 429
    "environment_protocol",  # an unreadable answer
    "environment_foreign",  # something else answers
    "environment_version",  # another protocol
    "environment_lost",  # the episode is not open, for example after a restart
    "environment_broken",  # the episode exceeds the service's limits
    "environment_failed",  # the environment raised an exception, which the message names
    "environment_replay",  # a rebuilt episode got different answers
    "environment_refused",  # the request is wrong
    # A rollout:
    "engine",
    "engine_timeout",
    "engine_cancelled",
    "engine_aborted",
    "prompt_too_long",
    "token_path",  # the tokens differ from those that were sampled
    "trajectory_deadline",
    "harness",  # it raised, exited or asked too often
    "harness_timeout",
    "user",  # the endpoint of the model that plays the user failed
    "user_timeout",
    "user_role",  # that model said what no user says
    # A run:
    "finished",
    "stopped",  # on request
    "refused",  # before training
    "process",  # one of the run's processes has died
    "memory",  # the machine ran low on memory
    "stalled",  # a stage exceeded its deadline
    "checkpoint",
    "error",  # any other exception
]
