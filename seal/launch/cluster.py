"""A Ray cluster that is there already: what it holds and how it is joined.

`ray_kwargs.ray_init.address` names the cluster, RAY_ADDRESS where the recipe does
not; `local` starts one for the run alone. A joined cluster is left running.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from seal.launch.errors import LaunchError
from seal.paths import HOME
from seal.training.cluster import LOCAL

DEADLINE_S = 60.0
KEY = "ray_kwargs.ray_init.address"

AUTHENTICATION = "RAY_AUTH_MODE"


@dataclass(frozen=True)
class Node:
    """One machine of a cluster: its address and the processors and GPUs that Ray counts there."""

    ip: str
    cpus: float
    gpus: float


@dataclass(frozen=True)
class Cluster:
    """What a Ray cluster holds, and how it is joined.

    taken: a run is using it (verl keeps one queue of trajectories a cluster).
    authentication: the RAY_AUTH_MODE of a process that joins it.
    """

    nodes: tuple[Node, ...]
    taken: bool
    authentication: str = "disabled"

    @property
    def machines(self) -> int:
        """Distinct addresses of its nodes."""
        return len({node.ip for node in self.nodes})


def look_at(address: str) -> Cluster:
    """What is at `address`, found within a deadline by a process that joins; LaunchError when none can.

    Ray wants the same of both sides: a driver that shows a token demands one of a
    cluster that has none, which then gives up its actors, and a guarded cluster
    turns away a driver without. So each way that is left to try has an actor answer.
    """
    if "://" in address:
        raise LaunchError(
            f"{KEY}={address} is no address of a cluster's head: give HOST:PORT (the port of `ray start --head`), not "
            "the dashboard's or a client's."
        )
    reasons = []
    for mode in authentication_modes():
        try:
            found = _ask(address, mode)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"No Ray cluster answered at {address} within {DEADLINE_S:.0f} s: {_mend()}") from error
        except _NotJoined as error:
            reasons.append(f"{AUTHENTICATION}={mode}: {error}")
        else:
            return Cluster(tuple(Node(**node) for node in found["nodes"]), found["taken"], mode)
    raise LaunchError(f"No Ray cluster can be joined at {address} ({'; '.join(reasons)}): {_mend()}")


class _NotJoined(Exception):
    """A process could not join; the message is the last line that it wrote."""


def _ask(address: str, mode: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "seal.launch.cluster", address],
        cwd=HOME,
        env={**os.environ, AUTHENTICATION: mode},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise _NotJoined(said[-1].rstrip(".") if said else f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def _mend() -> str:
    return f"start one with `ray start --head`, correct {KEY} or RAY_ADDRESS, or set {KEY}={LOCAL}."


def authentication_modes(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The values of RAY_AUTH_MODE to try, the likeliest first.

    `ray start` guards a cluster with the token of `~/.ray`, which every `ray.init` of
    a local cluster makes; the head does not say whether it is guarded.
    """
    if AUTHENTICATION in environment:
        return (environment[AUTHENTICATION],)
    has_token = any(name in environment for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if has_token or (Path.home() / ".ray" / "auth_token").is_file():
        return ("token", "disabled")
    return ("disabled",)


class _Answer:
    """An actor that shows that the cluster can start one for us."""

    def ping(self) -> bool:
        return True


def main() -> int:
    """`python -m seal.launch.cluster ADDRESS`: prints what look_at reads."""
    import ray

    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    ray.get(ray.remote(_Answer).options(num_cpus=0).remote().ping.remote())
    nodes = [
        Node(node["NodeManagerAddress"], node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0))
        for node in ray.nodes()
        if node["Alive"]
    ]
    try:
        ray.get_actor("TransferQueueController", namespace="transfer_queue")
        taken = True
    except ValueError:
        taken = False
    sys.stdout.write(json.dumps({"nodes": [asdict(node) for node in nodes], "taken": taken}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
