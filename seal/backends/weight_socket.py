"""A socket of its own for each run's weight transfer.

verl sends new weights to vLLM over a socket in /tmp that it names after the Ray job, the replica and the rank. A
cluster counts its jobs from 1, so two runs on one host, each with a cluster of its own, use the same name: the
second one removes the socket of the first, which then waits forever.
"""

import os
import uuid

VARIABLE = "SEAL_WEIGHT_SOCKET"
"""Holds the run's part of the name; all its processes inherit it, and vLLM's workers take it (`vllm_plugin`)."""


def claim() -> None:
    """Give the run of this process a name of its own; call before its cluster starts."""
    os.environ[VARIABLE] = uuid.uuid4().hex


def register() -> None:
    """Make verl's workers send weights over this run's socket."""
    from verl.workers.rollout import base

    base._ROLLOUT_REGISTRY["vllm", "async"] = "seal.backends.weight_sender.WeightSender"
