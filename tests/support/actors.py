"""Ray actors that stand in for the processes of a run; their processes import Ray alone."""

import os
import pkgutil
import time

import ray
from ray.exceptions import ActorUnavailableError


@ray.remote
class Process:
    """An actor that tells its process id, works or fails."""

    def pid(self):
        return os.getpid()

    def work(self, seconds):
        time.sleep(seconds)

    def fail(self, error, *arguments):
        """Raise an error, named as MODULE:CLASS: it is imported where it is raised."""
        raise pkgutil.resolve_name(error)(*arguments)

    def ask(self, other, error, *arguments):
        return ray.get(other.fail.remote(error, *arguments))


@ray.remote
class Server:
    """A rollout server whose engine can die."""

    class Engine:
        errored = False

    def __init__(self):
        self.engine = Server.Engine()

    async def lose_engine(self):
        self.engine.errored = True


@ray.remote
class Unreachable:
    """A rollout server that Ray cannot reach, as after a lost connection, whenever it is asked."""

    class Engine:
        @property
        def errored(self):
            raise ActorUnavailableError("the connection is lost", None)

    def __init__(self):
        self.engine = Unreachable.Engine()
